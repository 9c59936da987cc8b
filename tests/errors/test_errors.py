"""Errors: one tree, fields that survive pickling, and the translation of server errors."""

from __future__ import annotations

import hashlib
import pickle
import re
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields
from multiprocessing import get_context
from threading import Lock
from typing import Any, get_type_hints
from uuid import UUID

import psycopg
import pytest

import penstock
from penstock import AsyncStore, Message, PenstockError, Store, WrongExpectedVersion, errors
from penstock.database.operation import Operation, call, only_value
from penstock.errors import (
    CategoryBusy,
    CommandTimeout,
    ConditionNotActivated,
    DatabaseUnreachable,
    DuplicateMessageId,
    IncompatibleVersion,
    SizeLimitExceeded,
    TransactionConflict,
    TransactionTimeout,
    ValidationError,
    WatermarkRequired,
)
from penstock.errors.tree import all_errors

SAMPLES: dict[object, object] = {
    int: 3,
    str: "text of some length",
    int | None: None,
    str | None: "text of some length",
    object: {"a": [1]},
    UUID: UUID(int=7),
    UUID | str: UUID(int=7),
    Mapping[str, str]: {"bill": "there is no paper"},
}


def sample(error_class: type[PenstockError]) -> PenstockError:
    hints = get_type_hints(error_class)
    return error_class(**{f.name: SAMPLES.get(hints[f.name], ()) for f in fields(error_class)})


def facts_of(error: PenstockError) -> dict[str, object]:
    return {one.name: getattr(error, one.name) for one in fields(error)}


ALL = [one for one in all_errors() if one is not PenstockError]


@pytest.mark.parametrize("error_class", ALL)
class TestEveryError:
    def test_is_a_public_name(self, error_class: type[PenstockError]) -> None:
        assert getattr(errors, error_class.__name__) is error_class
        assert error_class.__name__ in errors.__all__

    def test_travels_between_processes_with_its_facts(
        self, error_class: type[PenstockError]
    ) -> None:
        error = sample(error_class)

        copy = pickle.loads(pickle.dumps(error))

        assert type(copy) is error_class
        assert facts_of(copy) == facts_of(error)
        assert str(copy) == str(error)

    def test_says_what_happened_in_one_line(self, error_class: type[PenstockError]) -> None:
        if not error_class.__subclasses__():
            assert re.fullmatch(r".{10,400}", str(sample(error_class)))


def test_all_errors_are_found_in_one_tree() -> None:
    in_the_package = {
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, PenstockError)
    }

    assert {PenstockError, *ALL} == in_the_package


def test_the_package_exports_errors_only() -> None:
    assert set(errors.__all__) == {"PenstockError", *(one.__name__ for one in ALL)}


def test_no_sqlstate_belongs_to_two_errors() -> None:
    codes = [code for one in ALL for code in vars(one).get("sqlstates", ())]

    assert len(codes) == len(set(codes))


@pytest.mark.parametrize(
    ("name", "retryable"),
    [
        ("ValidationError", False),
        ("WrongExpectedVersion", True),
        ("TransactionConflict", True),
        ("CategoryBusy", True),
        ("DuplicateMessageId", False),
        ("DecodingError", False),
        ("ConditionNotActivated", False),
        ("WatermarkRequired", False),
        ("TransactionClosed", False),
        ("TransactionAborted", False),
        ("StoreClosed", False),
        ("DatabaseUnreachable", True),
        ("AuthenticationFailed", False),
        ("PoolExhausted", True),
        ("CommandTimeout", True),
        ("TransactionTimeout", True),
        ("LockTableFull", True),
        ("NotInstalled", False),
        ("IncompatibleVersion", False),
    ],
)
def test_an_error_says_whether_a_retry_may_help(name: str, retryable: bool) -> None:
    assert getattr(errors, name).retryable is retryable


class TestTheCategoriesOfTheSpecification:
    def test_can_be_caught_as_such(self) -> None:
        assert issubclass(WrongExpectedVersion, penstock.ConcurrencyError)
        assert issubclass(ValidationError, ValueError)
        for name in ("DatabaseUnreachable", "AuthenticationFailed", "CommandTimeout"):
            assert issubclass(getattr(errors, name), penstock.UnavailableError)

    def test_leave_not_found_to_none(self, any_store: Store) -> None:
        assert any_store.stream_version("account-1") is None
        assert any_store.get_last_stream_message("account-1") is None


class TestPickling:
    def test_shows_a_fact_that_cannot_travel(self) -> None:
        error = ValidationError("data", Lock(), "a JSON object")

        copy = pickle.loads(pickle.dumps(error))

        assert str(copy.value).startswith("<unlocked _thread.lock")

    def test_works_from_a_worker_process(self) -> None:
        with (
            ProcessPoolExecutor(1, mp_context=get_context("spawn")) as workers,
            pytest.raises(ValidationError) as caught,
        ):
            workers.submit(penstock.Message, "").result()

        assert (caught.value.name, caught.value.value) == ("type", "")


def test_a_long_value_is_shortened() -> None:
    error = ValidationError("type", "x" * 10_000, "shorter")

    assert len(str(error)) < 200


FAIL = """
create function public.fail(code text, detail text) returns int language plpgsql as $$
begin
  raise exception using errcode = code, message = 'some failure', detail = detail;
end
$$
"""


def fail(code: str, detail: str = "") -> Operation[Any]:
    return call("fail", "select public.fail(%s, %s)", (code, detail), only_value)


class TestTranslation:
    @pytest.fixture
    def failing(self, store: Store) -> Store:
        with store.transaction() as transaction:
            transaction.connection.execute(FAIL.encode())
        return store

    @pytest.mark.parametrize(
        ("code", "becomes"),
        [
            ("40001", TransactionConflict),
            ("40P01", TransactionConflict),
            ("55P03", TransactionConflict),
            ("57014", CommandTimeout),
            ("25P03", TransactionTimeout),
            ("25P04", TransactionTimeout),
            ("08006", DatabaseUnreachable),
            ("57P01", DatabaseUnreachable),
            ("57P03", DatabaseUnreachable),
            ("PS003", WatermarkRequired),
        ],
    )
    def test_is_by_the_code_and_has_the_message_of_the_server(
        self, failing: Store, code: str, becomes: type[PenstockError]
    ) -> None:
        with pytest.raises(becomes, match="some failure") as caught:
            failing.run(fail(code))

        assert isinstance(caught.value.__cause__, psycopg.Error)
        assert caught.value.__cause__.sqlstate == code

    @pytest.mark.parametrize(
        ("detail", "becomes"),
        [
            (
                '{"code": "PS001", "stream_name": "a-1", "expected": 4, "actual": 6}',
                WrongExpectedVersion("a-1", 4, 6),
            ),
            (
                '{"code": "PS002", "id": "x", "stream_name": "a-1"}',
                DuplicateMessageId("x", "a-1"),
            ),
            ('{"code": "PS004", "category": "a"}', CategoryBusy("a")),
            ('{"code": "PS004", "category": "a", "since": "later"}', CategoryBusy("a")),
            ('{"code": "PS008"}', ConditionNotActivated("")),
        ],
    )
    def test_takes_code_and_facts_from_the_detail(
        self, failing: Store, detail: str, becomes: PenstockError
    ) -> None:
        with pytest.raises(type(becomes)) as caught:
            failing.run(fail("P0001", detail))

        assert facts_of(caught.value) == facts_of(becomes)

    @pytest.mark.parametrize("code", ["22012", "42P01", "P0001", "23505", "PS001", "XX000"])
    def test_leaves_other_errors_as_psycopg_raised_them(self, failing: Store, code: str) -> None:
        for detail in ["", "text", "[1]", '"text"', "5", "{}", '{"a": 1}']:
            with pytest.raises(psycopg.Error, match="some failure") as caught:
                failing.run(fail(code, detail))

            assert caught.value.sqlstate == code
        assert failing.write_message("account-1", "Opened") == 0

    def test_reports_a_name_that_no_index_can_hold(self, failing: Store) -> None:
        noise = "".join(hashlib.sha256(bytes([n])).hexdigest() for n in range(200))

        with pytest.raises(SizeLimitExceeded, match="index row"):
            failing.write_message(f"account-{noise}", "Opened")

        assert failing.write_message("account-1", "Opened") == 0

    def test_says_what_to_do_where_an_older_version_has_set_up_the_database(
        self, failing: Store, database_url: str
    ) -> None:
        with psycopg.connect(database_url) as connection:
            connection.execute("drop function penstock.append_one")

        with pytest.raises(IncompatibleVersion, match="run `penstock init`"):
            failing.append(Message("account.opened", {}))

    def test_is_the_same_in_a_transaction(self, failing: Store) -> None:
        with pytest.raises(TransactionConflict), failing.transaction() as transaction:
            transaction.run(fail("40001"))

    async def test_is_the_same_in_async_code(self, failing: Store, async_store: AsyncStore) -> None:
        with pytest.raises(TransactionConflict):
            await async_store.run(fail("40001"))

    def test_names_the_database_and_no_password(self, failing: Store) -> None:
        with pytest.raises(CommandTimeout) as caught:
            failing.run(fail("57014"))

        assert caught.value.where == failing.settings.where()
