"""Bad input: a typed error that names the value, nothing written, the connection still usable."""

from __future__ import annotations

import inspect
import math
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest
import pytest_asyncio

import penstock
from penstock import AsyncStore, Message, Store
from penstock.errors import ConditionNotActivated, ValidationError
from tests.conftest import Server

ID = UUID("a1b2c3d4-e5f6-4a5b-8c9d-0e1f2a3b4c5d")
HALF = "a\ud800b"
NUL = "a\0b"
TOO_HIGH = 2**63


class Bad:
    """A call with one bad value, and the name that the error gives to what is bad."""

    def __init__(self, named: str, value: object, method: str, *args: Any, **kwargs: Any) -> None:
        self.named = named
        self.value = value
        self.method = method
        self.args = args
        self.kwargs = kwargs

    def __call__(self, store: Any) -> Any:
        return getattr(store, self.method)(*self.args, **self.kwargs)

    def __repr__(self) -> str:
        return f"{self.method}, {self.named}: {self.value!a:.40}"


def write(named: str, value: object, *args: Any, **kwargs: Any) -> Bad:
    return Bad(named, value, "write_message", *args, **kwargs)


BAD_IDS = [
    write("id", id, "account-1", "Opened", id=id)
    for id in ["nope", "", 5, str(ID)[:-1], str(ID).replace("-", ""), b"x" * 16, HALF]
]

BAD_NAMES = [
    *(
        bad
        for name in ["", None, 5, NUL, HALF, "-1", "$all", b"account-1"]
        for bad in (
            write("stream_name", name, name, "Opened"),
            Bad("stream_name", name, "write_messages", name, [Message("Opened")]),
            Bad("stream_name", name, "get_stream_messages", name),
            Bad("stream_name", name, "get_last_stream_message", name),
            Bad("stream_name", name, "stream_version", name),
            Bad("stream_name", name, "read_stream", name),
        )
    ),
    Bad("stream_name", "account", "get_stream_messages", "account"),
    *(
        bad
        for name in ["", None, 5, NUL, HALF, "account-1"]
        for bad in (
            Bad("category", name, "get_category_messages", name),
            Bad("category", name, "category_head", name),
            Bad("category", name, "read_category", name),
            Bad("category", name, "follow_category", name),
        )
    ),
    *(
        Bad("correlation", name, "get_category_messages", "account", correlation=name)
        for name in ["", 5, NUL, HALF]
    ),
]

BAD_TYPES = [
    bad
    for type in ["", None, 5, NUL, HALF]
    for bad in (
        write("type", type, "account-1", type),
        *([Bad("type", type, "get_last_stream_message", "account-1", type)] if type else []),
    )
]

BAD_DATA = [
    *(
        write(field, value, "account-1", "Opened", **{field: value})
        for field in ("data", "metadata")
        for value in [[], [1], 5, 0, "text", "", True, HALF]
    ),
    *(
        write(f"{field}{path}", value, "account-1", "Opened", **{field: data})
        for field in ("data", "metadata")
        for path, value, data in [
            ("['n']", math.nan, {"n": math.nan}),
            ("['n'][0]['m']", math.inf, {"n": [{"m": math.inf}]}),
            ("['n']", -math.inf, {"a": None, "n": -math.inf}),
            ("['text'][1]", NUL, {"text": ["a", NUL]}),
            ("['a\\x00b']", NUL, {NUL: 1}),
            ("", {"text": HALF}, {"text": HALF}),
            ("", {HALF: 1}, {HALF: 1}),
            ("", {"x": object}, {"x": object}),
            (" key", 5, {5: 1}),
        ]
    ),
    Bad("messages", [], "write_messages", "account-1", []),
    Bad("messages", "Opened", "write_messages", "account-1", ["Opened"]),
    Bad("messages", None, "write_messages", "account-1", None),
    Bad("messages", 5, "write_messages", "account-1", 5),
    Bad(
        "messages",
        ID,
        "write_messages",
        "account-1",
        [Message("A", id=ID), Message("B"), Message("C", id=ID)],
    ),
    Bad(
        "data['n']",
        math.nan,
        "write_messages",
        "account-1",
        [Message("Opened"), Message("Opened", {"n": math.nan})],
    ),
]

BAD_NUMBERS = [
    *(
        bad
        for version in [-2, 1.5, "0", True, TOO_HIGH]
        for bad in (
            write("expected_version", version, "account-1", "Opened", expected_version=version),
            Bad(
                "expected_version",
                version,
                "write_messages",
                "account-1",
                [Message("Opened")],
                expected_version=version,
            ),
        )
    ),
    *(
        Bad(name, value, method, stream, **{name: value})
        for method, stream in [
            ("get_stream_messages", "account-1"),
            ("get_category_messages", "account"),
            ("read_stream", "account-1"),
            ("read_category", "account"),
            ("follow_category", "account"),
        ]
        for name, value in [
            ("position", -1),
            ("position", 0.5),
            ("position", "1"),
            ("position", None),
            ("position", True),
            ("position", TOO_HIGH),
            ("batch_size", 0),
            ("batch_size", -2),
            ("batch_size", 1.5),
            ("batch_size", "10"),
            ("batch_size", True),
            ("batch_size", TOO_HIGH),
        ]
    ),
]

BAD_GROUPS = [
    Bad(
        f"consumer_group_{named}",
        value,
        method,
        "account",
        consumer_group_member=member,
        consumer_group_size=size,
    )
    for method in ("get_category_messages", "read_category", "follow_category")
    for named, value, member, size in [
        ("size", None, 0, None),
        ("member", None, None, 3),
        ("member", 3, 3, 3),
        ("member", 7, 7, 3),
        ("member", -1, -1, 3),
        ("member", 0.5, 0.5, 3),
        ("member", True, True, 3),
        ("size", 0, 0, 0),
        ("size", -3, 0, -3),
        ("size", 32768, 0, 32768),
        ("size", "3", 0, "3"),
    ]
]

BAD_TERMS = [
    *(
        Bad("isolation", level, "transaction", level)
        for level in ["chaos", "", "read", 5, b"serializable", HALF]
    ),
    *(Bad("timeout", time, "transaction", timeout=time) for time in [0, -1, math.nan, "5", True]),
]

IN_A_TRANSACTION = BAD_IDS + BAD_NAMES + BAD_TYPES + BAD_DATA + BAD_NUMBERS + BAD_GROUPS
ALL = IN_A_TRANSACTION + BAD_TERMS


@pytest.fixture(scope="module")
def url(server: Server) -> Iterator[str]:
    """One database for all these tests, which leave it as they found it: empty."""
    name = server.create_database(server.template("penstock"))
    yield server.url(name)
    server.drop_database(name)


@pytest.fixture(scope="module")
def store(url: str) -> Iterator[Store]:
    with penstock.connect(url, pool_max_size=1) as store:
        yield store


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def async_store(url: str) -> AsyncIterator[AsyncStore]:
    async with await penstock.connect_async(url, pool_max_size=1) as store:
        yield store


@pytest.fixture(scope="module")
def reader(url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


@pytest.fixture(autouse=True)
def nothing_written(reader: psycopg.Connection) -> Iterator[None]:
    yield
    row = reader.execute("select count(*) from message_store.messages").fetchone()
    assert row == (0,)


def check(error: ValidationError, bad: Bad) -> None:
    assert error.name == bad.named
    assert repr(error.value) == repr(bad.value)
    assert error.name in str(error)
    assert penstock.errors.shown(bad.value) in str(error)


def call(bad: Bad, store: Any) -> None:
    result = bad(store)
    if inspect.isgenerator(result):
        next(result)


async def call_async(bad: Bad, store: Any) -> None:
    result = bad(store)
    if inspect.isasyncgen(result):
        await anext(result)
    elif inspect.isawaitable(result):
        await result


@pytest.mark.parametrize("bad", ALL, ids=repr)
def test_is_refused_by_a_store(store: Store, bad: Bad) -> None:
    with store.transaction() as transaction:
        before = transaction.connection.info.backend_pid

    with pytest.raises(ValidationError) as caught:
        call(bad, store)

    check(caught.value, bad)
    with store.transaction() as transaction:
        assert transaction.connection.info.backend_pid == before
        assert transaction.stream_version("account-1") is None


@pytest.mark.parametrize("bad", ALL, ids=repr)
@pytest.mark.asyncio(loop_scope="module")
async def test_is_refused_by_an_async_store(async_store: AsyncStore, bad: Bad) -> None:
    with pytest.raises(ValidationError) as caught:
        await call_async(bad, async_store)

    check(caught.value, bad)
    assert await async_store.stream_version("account-1") is None


def test_is_refused_in_a_transaction_which_goes_on(store: Store) -> None:
    with store.transaction() as transaction:
        for bad in IN_A_TRANSACTION:
            with pytest.raises(ValidationError):
                call(bad, transaction)

        position = transaction.write_message("account-1", "Opened")
        transaction.rollback()

    assert position == 0


@pytest.mark.asyncio(loop_scope="module")
async def test_is_refused_in_an_async_transaction_which_goes_on(async_store: AsyncStore) -> None:
    async with async_store.transaction() as transaction:
        for bad in IN_A_TRANSACTION:
            with pytest.raises(ValidationError):
                await call_async(bad, transaction)

        position = await transaction.write_message("account-1", "Opened")
        await transaction.rollback()

    assert position == 0


def test_is_refused_on_a_connection_of_your_own_which_goes_on(store: Store, url: str) -> None:
    with psycopg.connect(url) as connection:
        mine = store.using(connection)
        for bad in IN_A_TRANSACTION:
            with pytest.raises(ValidationError):
                call(bad, mine)

        position = mine.write_message("account-1", "Opened")
        connection.rollback()

    assert position == 0


@pytest.mark.parametrize("edition", ["beside", "genuine"])
def test_is_refused_on_other_editions(new_database: Callable[[str], str], edition: str) -> None:
    with penstock.connect(new_database(edition), pool_max_size=1) as store:
        for bad in ALL:
            with pytest.raises(ValidationError):
                call(bad, store)

        assert store.get_category_messages("account") == []
        assert store.write_message("account-1", "Opened") == 0


@pytest.mark.parametrize("condition", ["", 5, NUL, HALF])
def test_a_condition_that_is_no_text_is_refused(url: str, condition: Any) -> None:
    with penstock.connect(url, sql_condition=True) as store:
        with pytest.raises(ValidationError) as caught:
            store.get_category_messages("account", condition=condition)

        assert (caught.value.name, caught.value.value) == ("condition", condition)
        assert store.stream_version("account-1") is None


async def test_a_condition_is_refused_unless_switched_on(
    store: Store, async_store: AsyncStore
) -> None:
    with pytest.raises(ConditionNotActivated, match="true"):
        store.get_category_messages("account", condition="true")
    with pytest.raises(ConditionNotActivated, match="true"):
        await async_store.get_category_messages("account", condition="true")


@pytest.mark.parametrize("categories", [("",), ("account-1",), (5,), (NUL,), ("account", "a-1")])
def test_a_lock_on_what_is_no_category_is_refused(store: Store, categories: Any) -> None:
    with store.transaction() as transaction:
        with pytest.raises(ValidationError, match="category"):
            transaction.lock_categories(*categories)

        assert transaction.stream_version("account-1") is None


@pytest.mark.parametrize(
    "address", ["not a url", "http://localhost/store", "", "postgresql://ada:hunter2@host:port/x"]
)
async def test_a_url_that_is_none_is_refused_without_its_password(address: str) -> None:
    with pytest.raises(ValidationError, match="database_url") as caught:
        penstock.connect(address)
    with pytest.raises(ValidationError, match="database_url") as caught_async:
        await penstock.connect_async(address)

    assert str(caught.value) == str(caught_async.value)
    assert "hunter2" not in str(caught.value)
