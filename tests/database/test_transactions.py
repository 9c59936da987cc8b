"""Transactions: all or nothing, isolation, timeouts, savepoints, and your own connection."""

# ruff: noqa: PT012 -- a whole block is what raises

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, LiteralString
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row

import penstock
from penstock import (
    AsyncStore,
    ConcurrencyError,
    IsolationLevel,
    Message,
    Store,
    Transaction,
    WrongExpectedVersion,
)
from penstock.errors import (
    CategoryBusy,
    ConditionNotActivated,
    DatabaseUnreachable,
    DuplicateMessageId,
    StoreClosed,
    TransactionAborted,
    TransactionClosed,
    TransactionConflict,
    TransactionTimeout,
    ValidationError,
    WatermarkRequired,
)
from tests.racing import at_once, wait_until_blocked, wait_until_gone

ID = UUID("a1b2c3d4-e5f6-4a5b-8c9d-0e1f2a3b4c5d")


class Mishap(Exception):
    """Something of the caller's that goes wrong."""


@pytest.fixture
def narrow_store(database_url: str) -> Iterator[Store]:
    """A store with one connection: one that is not given back is missed at once."""
    with penstock.connect(database_url, pool_max_size=1, pool_timeout_ms=2000) as store:
        yield store


class TestABlock:
    def test_commits_all_at_its_end(self, any_store: Store) -> None:
        with any_store.transaction() as transaction:
            transaction.write_message("account-123", "Withdrawn", {"amount": 50})
            transaction.write_message("account-456", "Deposited", {"amount": 50})

            assert any_store.stream_version("account-123") is None

        versions = [any_store.stream_version(name) for name in ("account-123", "account-456")]
        assert versions == [0, 0]

    def test_writes_nothing_if_it_raises_and_raises_the_same(self, any_store: Store) -> None:
        mishap = Mishap()

        with pytest.raises(Mishap) as caught, any_store.transaction() as transaction:
            transaction.write_message("account-123", "Withdrawn")
            transaction.write_messages("account-456", [Message("Deposited")])
            raise mishap

        assert caught.value is mishap
        assert any_store.get_category_messages("account") == []

    def test_writes_nothing_if_a_later_write_fails(self, any_store: Store) -> None:
        with pytest.raises(WrongExpectedVersion), any_store.transaction() as transaction:
            transaction.write_message("account-123", "Withdrawn", expected_version=-1)
            transaction.write_message("account-456", "Deposited", expected_version=5)

        assert any_store.get_category_messages("account") == []

    def test_sees_its_own_writes(self, any_store: Store) -> None:
        with any_store.transaction() as transaction:
            transaction.write_message("account-1", "Opened")

            assert transaction.stream_version("account-1") == 0
            assert len(transaction.get_stream_messages("account-1")) == 1
            assert len(transaction.get_category_messages("account")) == 1
            assert transaction.get_last_stream_message("account-1") is not None

    def test_may_be_ended_from_inside(self, any_store: Store) -> None:
        with any_store.transaction() as transaction:
            transaction.write_message("account-1", "Opened")
            transaction.commit()
        with any_store.transaction() as transaction:
            transaction.write_message("account-1", "Closed")
            transaction.rollback()

        assert any_store.stream_version("account-1") == 0

    def test_runs_sql_of_the_callers_in_the_same_transaction(self, store: Store) -> None:
        with pytest.raises(Mishap), store.transaction() as transaction:
            transaction.connection.execute("create table mine (id int)")
            transaction.write_message("account-1", "Opened")
            raise Mishap

        with store.transaction() as transaction:
            row = transaction.connection.execute("select to_regclass('mine')").fetchone()
        assert row == (None,)


class TestAFailedStatement:
    def test_that_was_caught_makes_the_commit_raise(self, any_store: Store) -> None:
        with pytest.raises(TransactionAborted, match="savepoint"), any_store.transaction() as tx:
            tx.write_message("account-1", "Opened")
            with suppress(WrongExpectedVersion):
                tx.write_message("account-2", "Opened", expected_version=7)

        assert any_store.get_category_messages("account") == []

    def test_of_the_callers_own_makes_the_commit_raise(self, any_store: Store) -> None:
        with pytest.raises(TransactionAborted), any_store.transaction() as transaction:
            transaction.write_message("account-1", "Opened")
            with suppress(psycopg.errors.DivisionByZero):
                transaction.connection.execute("select 1 / 0")

        assert any_store.get_category_messages("account") == []

    def test_is_reported_to_who_goes_on(self, any_store: Store) -> None:
        with any_store.transaction() as transaction:
            with suppress(psycopg.errors.DivisionByZero):
                transaction.connection.execute("select 1 / 0")

            with pytest.raises(TransactionAborted, match="savepoint"):
                transaction.write_message("account-1", "Opened")
            transaction.rollback()

    def test_lets_the_transaction_be_rolled_back(self, any_store: Store) -> None:
        transaction = any_store.begin_transaction()
        with suppress(psycopg.errors.DivisionByZero):
            transaction.connection.execute("select 1 / 0")

        transaction.rollback()

        assert any_store.write_message("account-1", "Opened") == 0


class TestExplicitControl:
    def test_commits(self, any_store: Store) -> None:
        transaction = any_store.begin_transaction()
        transaction.write_message("account-1", "Opened")
        active = transaction.is_active

        transaction.commit()

        assert (active, transaction.is_active) == (True, False)
        assert any_store.stream_version("account-1") == 0

    def test_rolls_back(self, any_store: Store) -> None:
        transaction = any_store.begin_transaction()
        transaction.write_message("account-1", "Opened")

        transaction.rollback()

        assert not transaction.is_active
        assert any_store.stream_version("account-1") is None

    def test_may_roll_back_what_has_ended(self, store: Store) -> None:
        transaction = store.begin_transaction()
        transaction.write_message("account-1", "Opened")
        transaction.commit()

        transaction.rollback()
        transaction.rollback()

        assert store.stream_version("account-1") == 0

    @pytest.mark.parametrize(
        "use",
        [
            lambda transaction: transaction.write_message("account-1", "Opened"),
            lambda transaction: transaction.stream_version("account-1"),
            lambda transaction: transaction.commit(),
            lambda transaction: transaction.savepoint("a"),
            lambda transaction: transaction.connection,
        ],
    )
    def test_refuses_to_use_what_has_ended(
        self, store: Store, use: Callable[[Transaction], object]
    ) -> None:
        transaction = store.begin_transaction()
        transaction.commit()

        with pytest.raises(TransactionClosed):
            use(transaction)

        assert store.stream_version("account-1") is None

    @pytest.mark.parametrize("end", ["commit", "rollback"])
    @pytest.mark.parametrize(
        "use",
        [
            lambda transaction: transaction.write_message("account-2", "Opened"),
            lambda transaction: transaction.commit(),
            lambda transaction: transaction.nested().__enter__(),
        ],
    )
    def test_refuses_to_use_what_was_ended_with_sql_of_the_callers_own(
        self, narrow_store: Store, use: Callable[[Transaction], object], end: LiteralString
    ) -> None:
        transaction = narrow_store.begin_transaction()
        transaction.write_message("account-1", "Opened")
        transaction.connection.execute(end)

        with pytest.raises(TransactionClosed):
            use(transaction)

        assert narrow_store.stream_version("account-2") is None

    def test_a_transaction_that_was_not_begun_is_not_active(self, store: Store) -> None:
        transaction = store.transaction()

        assert not transaction.is_active
        with pytest.raises(TransactionClosed):
            transaction.write_message("account-1", "Opened")

    def test_a_transaction_is_begun_once(self, narrow_store: Store) -> None:
        with narrow_store.transaction() as transaction:
            transaction.write_message("account-1", "Opened")

            with pytest.raises(ValidationError, match="a transaction that is not open"):
                transaction.begin()

        assert narrow_store.stream_version("account-1") == 0


class TestWithTransaction:
    def test_commits_and_returns_what_the_work_returned(self, any_store: Store) -> None:
        def work(transaction: Transaction) -> str:
            transaction.write_message("account-1", "Opened")
            transaction.write_message("account-2", "Opened")
            return "done"

        assert any_store.with_transaction(work) == "done"
        assert len(any_store.get_category_messages("account")) == 2

    def test_rolls_back_and_raises_what_the_work_raised(self, any_store: Store) -> None:
        def work(transaction: Transaction) -> None:
            transaction.write_message("account-1", "Opened")
            raise Mishap

        with pytest.raises(Mishap):
            any_store.with_transaction(work)

        assert any_store.stream_version("account-1") is None

    def test_takes_the_same_terms(self, store: Store) -> None:
        def isolation_and_access(transaction: Transaction) -> Any:
            return transaction.connection.execute(
                "select current_setting('transaction_isolation'),"
                " current_setting('transaction_read_only')"
            ).fetchone()

        answer = store.with_transaction(isolation_and_access, "serializable", read_only=True)

        assert answer == ("serializable", "on")


class TestConnections:
    def test_one_serves_the_whole_transaction(self, store: Store) -> None:
        with store.transaction() as transaction:
            connection = transaction.connection
            pids = {pid_of(transaction), pid_of(transaction)}
            transaction.write_message("account-1", "Opened")

            assert transaction.connection is connection
            assert pids == {connection.info.backend_pid}

    def test_go_back_to_the_pool_however_a_transaction_ends(self, narrow_store: Store) -> None:
        def fail(transaction: Transaction) -> None:
            transaction.write_message("account-1", "Opened", expected_version=9)

        for _ in range(3):
            narrow_store.with_transaction(lambda tx: tx.write_message("account-1", "Opened"))
            narrow_store.begin_transaction().rollback()
            with suppress(WrongExpectedVersion):
                narrow_store.with_transaction(fail)
            with suppress(TransactionAborted):
                narrow_store.with_transaction(lambda tx: suppressed(fail, tx))
            with suppress(psycopg.errors.ReadOnlySqlTransaction):
                narrow_store.with_transaction(
                    lambda tx: tx.write_message("account-1", "Opened"), read_only=True
                )

        assert narrow_store.stream_version("account-1") == 2

    def test_go_back_clean(self, narrow_store: Store) -> None:
        with narrow_store.transaction("serializable", read_only=True, timeout=5):
            pass

        with narrow_store.transaction() as transaction:
            settings = transaction.connection.execute(
                "select current_setting('transaction_isolation'),"
                " current_setting('transaction_read_only'), current_setting('transaction_timeout')"
            ).fetchone()
        assert settings == ("read committed", "off", "30s")

    def test_that_are_lost_end_the_transaction_and_not_the_store(self, any_store: Store) -> None:
        transaction = any_store.begin_transaction()
        transaction.write_message("account-1", "Opened")
        terminate(any_store, pid_of(transaction))

        with pytest.raises(DatabaseUnreachable):
            transaction.write_message("account-1", "Deposited")

        assert not transaction.is_active
        transaction.rollback()
        assert any_store.write_message("account-1", "Opened") == 0

    def test_that_are_lost_do_not_hide_the_error_of_the_block(self, store: Store) -> None:
        with pytest.raises(Mishap), store.transaction() as transaction:
            terminate(store, pid_of(transaction))
            raise Mishap

    def test_that_are_lost_make_the_commit_raise(self, store: Store) -> None:
        with pytest.raises(DatabaseUnreachable), store.transaction() as transaction:
            transaction.write_message("account-1", "Opened")
            terminate(store, pid_of(transaction))

        assert store.stream_version("account-1") is None

    def test_of_a_closed_store_are_refused(self, database_url: str) -> None:
        store = penstock.connect(database_url)
        store.close()

        with pytest.raises(StoreClosed):
            store.begin_transaction()


class TestIdempotency:
    def test_a_retry_after_a_commit_finds_the_first_write(self, any_store: Store) -> None:
        def work(transaction: Transaction) -> list[int]:
            return [
                transaction.write_message("account-1", "Opened", id=ID, expected_version=-1),
                *transaction.write_messages("account-2", [opened]),
            ]

        opened = Message("Opened")

        assert any_store.with_transaction(work) == any_store.with_transaction(work) == [0, 0]
        assert len(any_store.get_category_messages("account")) == 2

    def test_a_retry_after_a_rollback_writes_anew(self, any_store: Store) -> None:
        def work(transaction: Transaction, version: int) -> list[int]:
            return [
                transaction.write_message("account-1", "Opened", id=ID),
                transaction.write_message("account-1", "Deposited", expected_version=version),
            ]

        with pytest.raises(WrongExpectedVersion):
            any_store.with_transaction(partial(work, version=7))

        assert any_store.with_transaction(partial(work, version=0)) == [0, 1]

    def test_an_id_repeated_within_a_transaction_is_written_once(self, any_store: Store) -> None:
        with any_store.transaction() as transaction:
            first = transaction.write_message("account-1", "Opened", id=ID)
            again = transaction.write_message("account-1", "Opened", id=ID)

        assert first == again == any_store.stream_version("account-1") == 0

    def test_an_id_of_another_stream_fails_within_a_transaction(self, any_store: Store) -> None:
        with pytest.raises(DuplicateMessageId), any_store.transaction() as transaction:
            transaction.write_message("account-1", "Opened", id=ID)
            transaction.write_message("account-2", "Opened", id=ID)

        assert any_store.get_category_messages("account") == []


class TestConcurrency:
    def test_a_version_is_checked_when_the_write_is_made(self, any_store: Store) -> None:
        any_store.write_message("account-1", "Opened")

        with pytest.raises(WrongExpectedVersion) as caught, any_store.transaction() as transaction:
            version = transaction.stream_version("account-1")
            any_store.write_message("account-1", "Deposited")
            transaction.write_message("account-1", "Withdrawn", expected_version=version)

        assert (caught.value.expected, caught.value.actual) == (0, 1)
        assert any_store.stream_version("account-1") == 1

    def test_a_version_counts_the_writes_of_the_same_transaction(self, any_store: Store) -> None:
        with any_store.transaction() as transaction:
            positions = [
                transaction.write_message("order-123", type, expected_version=version)
                for version, type in enumerate(["Packed", "Shipped", "Billed"], start=-1)
            ]

        assert positions == [0, 1, 2]

    def test_others_do_not_see_what_is_not_committed(self, any_store: Store) -> None:
        with any_store.transaction() as one, any_store.transaction() as two:
            one.write_message("account-1", "Opened")

            assert two.stream_version("account-1") is None
            assert two.get_stream_messages("account-1") == []

    def test_a_writer_of_the_same_stream_waits_and_comes_after(self, any_store: Store) -> None:
        with any_store.transaction() as first:
            first.write_message("account-1", "Opened")

            def commit_once_the_other_waits() -> None:
                wait_until_blocked(any_store.settings.conninfo())
                first.commit()

            position, _ = at_once(
                partial(any_store.write_message, "account-1", "Deposited"),
                commit_once_the_other_waits,
            )

        assert position == 1

    def test_two_that_wait_for_each_other_have_one_loser_who_may_retry(self, store: Store) -> None:
        one, two = store.begin_transaction(), store.begin_transaction()
        one.write_message("account-1", "Opened")
        two.write_message("account-2", "Opened")

        def cross(transaction: Transaction, stream_name: str) -> None:
            try:
                transaction.write_message(stream_name, "Opened")
                transaction.commit()
            finally:
                transaction.rollback()

        outcomes = at_once(partial(cross, one, "account-2"), partial(cross, two, "account-1"))

        (loser,) = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
        assert isinstance(loser, TransactionConflict)
        assert loser.retryable
        assert len(store.get_category_messages("account")) == 2

    def test_read_process_write_under_contention_loses_no_update(self, any_store: Store) -> None:
        any_store.write_message("account-1", "Opened", {"balance": 0})

        @penstock.retry(attempts=50, delay=0.001)
        def deposit() -> None:
            with any_store.transaction() as transaction:
                last = transaction.get_last_stream_message("account-1")
                assert last is not None
                data = {"balance": last.data["balance"] + 1}
                transaction.write_message(
                    "account-1", "Deposited", data, expected_version=last.position
                )

        assert at_once(*[deposit] * 6) == [None] * 6

        last = any_store.get_last_stream_message("account-1")
        assert last is not None
        assert last.data == {"balance": 6}

    def test_hundreds_of_streams_in_one_transaction_take_the_category(self, store: Store) -> None:
        with store.transaction() as transaction:
            transaction.lock_categories("account", "order")
            for number in range(600):
                transaction.write_message(f"account-{number}", "Opened")

        assert store.category_head("account") == 600

    def test_hundreds_of_streams_while_others_write_may_be_retried(self, store: Store) -> None:
        with (
            store.transaction() as other,
            pytest.raises(CategoryBusy) as caught,
            store.transaction() as transaction,
        ):
            other.write_message("account-x", "Opened")
            for number in range(600):
                transaction.write_message(f"account-{number}", "Opened")

        assert (caught.value.category, caught.value.retryable) == ("account", True)
        assert len(store.get_category_messages("account")) == 1

    def test_a_locked_category_keeps_other_writers_out(self, any_store: Store) -> None:
        with any_store.transaction() as transaction:
            transaction.lock_categories("account")

            def finish_once_the_other_waits() -> None:
                wait_until_blocked(any_store.settings.conninfo())
                transaction.write_message("account-1", "Opened")
                transaction.commit()

            position, _ = at_once(
                partial(any_store.write_message, "account-1", "Deposited"),
                finish_once_the_other_waits,
            )

        assert position == 1


class TestIsolation:
    @pytest.mark.parametrize("level", [*IsolationLevel, None])
    def test_is_the_one_that_was_asked_for(
        self, any_store: Store, level: IsolationLevel | None
    ) -> None:
        with any_store.transaction(level) as transaction:
            row = transaction.connection.execute("show transaction_isolation").fetchone()

        assert row == ((level or IsolationLevel.READ_COMMITTED).value,)

    @pytest.mark.parametrize(
        "name", ["repeatable read", "REPEATABLE READ", "repeatable_read", "REPEATABLE_READ"]
    )
    def test_may_be_named(self, store: Store, name: str) -> None:
        with store.transaction(name) as transaction:
            row = transaction.connection.execute("show transaction_isolation").fetchone()

        assert row == ("repeatable read",)

    def test_read_committed_sees_what_others_commit_meanwhile(self, any_store: Store) -> None:
        with any_store.transaction() as transaction:
            before = transaction.stream_version("account-1")
            any_store.write_message("account-1", "Opened")

            assert (before, transaction.stream_version("account-1")) == (None, 0)

    @pytest.mark.parametrize("level", ["repeatable read", "serializable"])
    def test_above_that_all_reads_are_of_one_moment(self, any_store: Store, level: str) -> None:
        any_store.write_message("account-123", "Opened")
        with any_store.transaction(level, read_only=True) as transaction:
            account = transaction.get_stream_messages("account-123")
            any_store.write_message("account-123", "Withdrawn")
            any_store.write_message("ledger-456", "Entered")

            ledger = transaction.get_stream_messages("ledger-456")

            assert (len(account), ledger) == (1, [])
            assert transaction.get_stream_messages("account-123") == account
            assert len(transaction.get_category_messages("account")) == 1

    @pytest.mark.parametrize("level", ["repeatable read", "serializable"])
    def test_above_that_many_streams_are_read_up_to_the_watermark_before_it(
        self, store: Store, level: str
    ) -> None:
        store.write_message("account-1", "Opened")
        with store.transaction() as late:
            late.write_message("account-2", "Opened")
            store.write_message("account-3", "Opened")

            with store.transaction(level) as transaction:
                late.commit()
                read = [m.stream_name for m in transaction.get_category_messages("account")]
                whole = [m.stream_name for m in transaction.read_category("$all", 1, 1)]
                head = transaction.category_head("account")

        assert (read, whole, head) == (["account-1"], ["account-1"], 1)

    def test_above_that_the_server_refuses_many_streams_without_a_watermark(
        self, store: Store, database_url: str
    ) -> None:
        store.write_message("account-1", "Opened")
        with psycopg.connect(database_url) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ

            with pytest.raises(WatermarkRequired, match="before it began"):
                store.using(connection).get_category_messages("account")

    def test_a_writer_that_lost_a_race_above_read_committed_may_retry(self, store: Store) -> None:
        store.write_message("account-1", "Opened")

        with (
            pytest.raises(ConcurrencyError) as caught,
            store.transaction("repeatable read") as transaction,
        ):
            transaction.get_stream_messages("account-1")
            store.write_message("account-1", "Deposited")
            transaction.write_message("account-1", "Withdrawn")

        assert caught.value.retryable
        assert store.stream_version("account-1") == 1

    def test_serializable_lets_only_one_of_two_crossed_decisions_commit(self, store: Store) -> None:
        def decide(transaction: Transaction, read: str, write: str) -> None:
            if transaction.stream_version(read) is None:
                transaction.write_message(write, "Claimed")

        one, two = (store.begin_transaction("serializable") for _ in range(2))
        decide(one, "seat-1", "seat-2")
        decide(two, "seat-2", "seat-1")

        one.commit()
        with pytest.raises(TransactionConflict):
            two.commit()

        assert not two.is_active
        assert [m.stream_name for m in store.get_category_messages("seat")] == ["seat-2"]


class TestReadOnly:
    def test_reads(self, any_store: Store) -> None:
        any_store.write_message("account-1", "Opened")

        with any_store.transaction(read_only=True) as transaction:
            assert transaction.stream_version("account-1") == 0
            assert len(transaction.get_category_messages("account")) == 1

    def test_writes_nothing(self, any_store: Store) -> None:
        with (
            pytest.raises(psycopg.errors.ReadOnlySqlTransaction),
            any_store.transaction(read_only=True) as transaction,
        ):
            transaction.write_message("account-1", "Opened")

        assert any_store.write_message("account-1", "Opened") == 0


class TestATimeout:
    def test_is_30_seconds_on_the_server_by_default(self, store: Store) -> None:
        with store.transaction() as transaction:
            assert timeout_of(transaction) == "30s"

    def test_has_the_default_of_the_settings(self, database_url: str) -> None:
        with (
            penstock.connect(database_url, transaction_timeout_ms=1234) as store,
            store.transaction() as transaction,
        ):
            assert timeout_of(transaction) == "1234ms"

    def test_is_limited_for_writers_whatever_it_is(self, database_url: str) -> None:
        with penstock.connect(database_url, max_write_seconds=7) as store:
            with store.transaction(timeout=3600) as transaction:
                writing = timeout_of(transaction)
            with store.transaction(timeout=3600, read_only=True) as transaction:
                reading = timeout_of(transaction)

        assert (writing, reading) == ("7s", "1h")

    @pytest.mark.parametrize("most", [0.5, timedelta(milliseconds=500)])
    def test_and_its_limit_are_seconds_or_a_timedelta(self, database_url: str, most: Any) -> None:
        with penstock.connect(database_url, max_write_seconds=most) as store:
            with store.transaction(timeout=timedelta(milliseconds=250)) as transaction:
                own = timeout_of(transaction)
            with store.transaction(timeout=timedelta(minutes=1)) as transaction:
                limited = timeout_of(transaction)

        assert (own, limited) == ("250ms", "500ms")

    def test_is_for_one_transaction_alone(self, narrow_store: Store) -> None:
        with narrow_store.transaction(timeout=2.5) as transaction:
            first = timeout_of(transaction)
        with narrow_store.transaction() as transaction:
            second = timeout_of(transaction)

        assert (first, second) == ("2500ms", "30s")

    def test_ends_an_idle_transaction_on_the_server(self, any_store: Store) -> None:
        transaction = any_store.begin_transaction(timeout=1)
        transaction.write_message("account-1", "Opened")

        wait_until_gone(any_store.settings.conninfo(), pid_of_connection(transaction))

        assert not transaction.is_active
        assert any_store.write_message("account-1", "Opened") == 0
        with pytest.raises(TransactionTimeout, match="longer than 1 s"):
            transaction.write_message("account-1", "Deposited")
        with pytest.raises(TransactionClosed):
            transaction.commit()

    def test_makes_the_commit_of_an_idle_transaction_raise(self, narrow_store: Store) -> None:
        with (
            pytest.raises(TransactionTimeout, match="rolled back") as caught,
            narrow_store.transaction(timeout=1) as transaction,
        ):
            transaction.write_message("account-1", "Opened")
            wait_until_gone(narrow_store.settings.conninfo(), pid_of_connection(transaction))

        assert caught.value.retryable
        assert narrow_store.stream_version("account-1") is None

    def test_ends_a_statement_under_way(self, any_store: Store) -> None:
        with any_store.transaction() as first:
            first.write_message("account-1", "Opened")

            with pytest.raises(TransactionTimeout), any_store.transaction(timeout=0.1) as second:
                pid = pid_of_connection(second)
                second.write_message("account-2:x", "Opened")
                second.write_message("account-1", "Deposited")

            wait_until_gone(any_store.settings.conninfo(), pid)
        assert len(any_store.get_category_messages("account")) == 1

    def test_counts_the_whole_transaction_and_not_each_statement(self, store: Store) -> None:
        transaction = store.begin_transaction(timeout=0.2)

        with pytest.raises(TransactionTimeout):
            while True:
                transaction.stream_version("account-1")

        assert not transaction.is_active

    def test_does_not_hide_the_error_of_the_block(self, narrow_store: Store) -> None:
        with pytest.raises(Mishap), narrow_store.transaction(timeout=0.1) as transaction:
            wait_until_gone(narrow_store.settings.conninfo(), pid_of_connection(transaction))
            raise Mishap

        assert narrow_store.write_message("account-1", "Opened") == 0

    def test_lets_a_rollback_pass(self, narrow_store: Store) -> None:
        transaction = narrow_store.begin_transaction(timeout=0.1)
        wait_until_gone(narrow_store.settings.conninfo(), pid_of_connection(transaction))

        transaction.rollback()

        assert narrow_store.write_message("account-1", "Opened") == 0

    @pytest.mark.parametrize("timeout", [0, -1, "5", float("nan"), float("inf"), 10**10, True])
    def test_that_is_no_time_is_refused(self, store: Store, timeout: Any) -> None:
        with pytest.raises(ValidationError, match="timeout"):
            store.transaction(timeout=timeout)


class TestSavepoints:
    def test_undo_a_part(self, any_store: Store) -> None:
        with any_store.transaction() as transaction:
            transaction.write_message("account-1", "Opened")
            transaction.savepoint("sp1")
            transaction.write_message("account-1", "Deposited")
            transaction.rollback_to_savepoint("sp1")
            position = transaction.write_message("account-1", "Closed")

        types = [message.type for message in any_store.get_stream_messages("account-1")]
        assert (position, types) == (1, ["Opened", "Closed"])

    def test_let_a_transaction_go_on_after_a_failure(self, any_store: Store) -> None:
        with any_store.transaction() as transaction:
            transaction.savepoint("tentative")
            with pytest.raises(WrongExpectedVersion):
                transaction.write_message("account-1", "Opened", expected_version=5)
            transaction.rollback_to_savepoint("tentative")
            transaction.write_message("account-1", "Opened")

        assert any_store.stream_version("account-1") == 0

    def test_may_be_released(self, any_store: Store) -> None:
        with any_store.transaction() as transaction:
            transaction.savepoint("sp1")
            transaction.write_message("account-1", "Opened")
            transaction.release_savepoint("sp1")

            with (
                pytest.raises(psycopg.errors.InvalidSavepointSpecification),
                transaction.nested(),
            ):
                transaction.rollback_to_savepoint("sp1")

        assert any_store.stream_version("account-1") == 0

    def test_may_have_any_name(self, store: Store) -> None:
        name = 'a "b"; rollback; --'

        with store.transaction() as transaction:
            transaction.write_message("account-1", "Opened")
            transaction.savepoint(name)
            transaction.write_message("account-1", "Deposited")
            transaction.rollback_to_savepoint(name)

        assert store.stream_version("account-1") == 0

    @pytest.mark.parametrize("name", ["", "a\0b", 5])
    def test_with_no_name_are_refused(self, store: Store, name: Any) -> None:
        with store.transaction() as transaction:
            with pytest.raises(ValidationError, match="savepoint"):
                transaction.savepoint(name)

            transaction.write_message("account-1", "Opened")

        assert store.stream_version("account-1") == 0

    def test_as_a_block_undo_only_the_block(self, any_store: Store) -> None:
        with any_store.transaction() as transaction:
            transaction.write_message("account-1", "Opened")
            with pytest.raises(Mishap), transaction.nested():
                transaction.write_message("account-1", "Deposited")
                raise Mishap
            with transaction.nested() as inner:
                inner.write_message("account-1", "Closed")

        types = [message.type for message in any_store.get_stream_messages("account-1")]
        assert types == ["Opened", "Closed"]

    def test_as_a_block_catch_a_failed_write(self, any_store: Store) -> None:
        with any_store.transaction() as transaction:
            with suppress(WrongExpectedVersion), transaction.nested():
                transaction.write_message("account-1", "Opened", expected_version=5)
            transaction.write_message("account-1", "Opened")

        assert any_store.stream_version("account-1") == 0

    def test_that_were_undone_hold_back_no_reader(self, store: Store) -> None:
        with store.transaction() as transaction:
            transaction.savepoint("sp1")
            transaction.write_message("account-1", "Opened")
            transaction.rollback_to_savepoint("sp1")
            store.write_message("account-2", "Opened")

            assert len(store.get_category_messages("account")) == 1


class TestPatterns:
    """The example scenarios of the specification's section 8."""

    def test_a_money_transfer(self, any_store: Store) -> None:
        debit, credit = uuid4(), uuid4()

        with any_store.transaction() as transaction:
            data = {"amount": 100, "transfer_id": "txn-789"}
            transaction.write_message("account-123", "Withdrawn", data, id=debit)
            transaction.write_message("account-456", "Deposited", data, id=credit)
            transaction.write_message(
                "transfer-789",
                "Completed",
                {"amount": 100, "debit_event_id": str(debit), "credit_event_id": str(credit)},
            )

        (completed,) = any_store.get_stream_messages("transfer-789")
        accounts = any_store.get_category_messages("account")
        assert [str(message.id) for message in accounts] == [
            completed.data["debit_event_id"],
            completed.data["credit_event_id"],
        ]

    def test_an_aggregate_with_several_events(self, any_store: Store) -> None:
        any_store.write_message("order-123", "Placed")

        with any_store.transaction() as transaction:
            version = transaction.get_stream_messages("order-123")[-1].position
            for type in ("Packed", "Shipped"):
                transaction.write_message("order-123", type, expected_version=version)
                version += 1

        types = [message.type for message in any_store.get_stream_messages("order-123")]
        assert types == ["Placed", "Packed", "Shipped"]

    def test_a_process_manager(self, any_store: Store) -> None:
        with any_store.transaction() as transaction:
            received = Message("PaymentReceived", metadata={"correlation_id": "abc"})
            transaction.write_messages("payment-process-abc", [received])
            transaction.write_messages("shipping:command-xyz", [received.follow("ShipOrder")])

        (command,) = any_store.get_category_messages("shipping:command")
        assert (command.correlation_id, command.causation_id) == ("abc", str(received.id))

    @pytest.mark.parametrize("fails", [False, True])
    def test_a_position_moves_with_the_work_it_stands_for(
        self, any_store: Store, fails: bool
    ) -> None:
        def process(transaction: Transaction) -> None:
            transaction.write_message("account-123", "Withdrawn")
            transaction.write_message("consumer:position-worker-1", "Moved", {"position": 7})
            if fails:
                raise Mishap

        with suppress(Mishap):
            any_store.with_transaction(process)

        versions = {
            any_store.stream_version("account-123"),
            any_store.stream_version("consumer:position-worker-1"),
        }
        assert versions == ({None} if fails else {0})


class TestYourOwnConnection:
    def test_writes_in_your_transaction(self, any_store: Store) -> None:
        with own_connection(any_store) as connection:
            mine = any_store.using(connection)
            connection.execute("create table public.mine (id int)")
            mine.write_message("account-1", "Opened")
            mine.write_messages("account-1", [Message("Deposited")])
            seen_before = any_store.stream_version("account-1")

            connection.commit()

        assert (seen_before, any_store.stream_version("account-1")) == (None, 1)

    def test_is_undone_with_your_transaction(self, any_store: Store) -> None:
        with own_connection(any_store) as connection:
            any_store.using(connection).write_message("account-1", "Opened")

            connection.rollback()

        assert any_store.stream_version("account-1") is None

    def test_commits_each_operation_where_you_chose_autocommit(self, any_store: Store) -> None:
        with own_connection(any_store, autocommit=True) as connection:
            any_store.using(connection).write_message("account-1", "Opened")

            assert any_store.stream_version("account-1") == 0
            assert connection.info.transaction_status is TransactionStatus.IDLE

    def test_goes_with_your_blocks_and_savepoints(self, any_store: Store) -> None:
        with own_connection(any_store, autocommit=True) as connection:
            mine = any_store.using(connection)
            with connection.transaction():
                mine.write_message("account-1", "Opened")
                with suppress(WrongExpectedVersion), connection.transaction():
                    mine.write_message("account-1", "Deposited", expected_version=9)
                mine.write_message("account-1", "Closed")

        types = [message.type for message in any_store.get_stream_messages("account-1")]
        assert types == ["Opened", "Closed"]

    def test_may_have_its_own_row_factory_and_time_zone(self, any_store: Store) -> None:
        any_store.write_message("account-1", "Opened")

        with own_connection(any_store, row_factory=dict_row) as mine:
            mine.execute("set timezone = 'Asia/Tokyo'")
            messages = any_store.using(mine).get_category_messages("account")

        assert messages == any_store.get_category_messages("account")

    def test_must_be_one_of_psycopgs_for_blocking_code(self, store: Store) -> None:
        other: Any
        for other in (None, 5, psycopg.AsyncConnection, store):
            with pytest.raises(ValidationError, match=r"connection must be a psycopg\.Connection"):
                store.using(other)

    @pytest.mark.parametrize("watermark", [-1, "1", 1.5, True, 2**63])
    def test_needs_a_watermark_that_is_one(self, store: Store, watermark: Any) -> None:
        with (
            own_connection(store) as mine,
            pytest.raises(ValidationError, match="watermark must be"),
        ):
            store.using(mine, watermark=watermark)

    def test_with_a_pipeline_that_was_aborted_is_not_taken_for_lost(self, store: Store) -> None:
        with own_connection(store, autocommit=True) as connection, connection.pipeline():
            mine = store.using(connection)
            with pytest.raises(WrongExpectedVersion):
                mine.write_message("account-1", "Opened", expected_version=7)

            with pytest.raises(psycopg.errors.PipelineAborted):
                mine.stream_version("account-1")

    def test_raises_typed_errors_and_stays_open(self, any_store: Store) -> None:
        with own_connection(any_store) as connection:
            mine = any_store.using(connection)
            with pytest.raises(WrongExpectedVersion):
                mine.write_message("account-1", "Opened", expected_version=9)
            connection.rollback()

            assert mine.write_message("account-1", "Opened") == 0

    @pytest.mark.parametrize("edition", ["penstock", "beside", "genuine"])
    def test_needs_sql_conditions_switched_on_itself(
        self, new_database: Callable[[str], str], edition: str
    ) -> None:
        with (
            penstock.connect(new_database(edition), sql_condition=True) as store,
            own_connection(store, autocommit=True) as connection,
        ):
            mine = store.using(connection)
            with pytest.raises(ConditionNotActivated, match=r"message_store\.sql_condition"):
                mine.get_category_messages("account", condition="true")
            connection.execute("set message_store.sql_condition = 'on'")

            assert mine.get_category_messages("account", condition="true") == []

    def test_that_is_closed_raises(self, store: Store) -> None:
        connection = psycopg.connect(store.settings.conninfo())
        connection.close()

        with pytest.raises(DatabaseUnreachable):
            store.using(connection).stream_version("account-1")


class TestAsync:
    async def test_commits_or_rolls_back_a_block(self, async_store: AsyncStore) -> None:
        async with async_store.transaction() as transaction:
            await transaction.write_message("account-1", "Opened")
            assert transaction.is_active
        with pytest.raises(Mishap):
            async with async_store.transaction() as transaction:
                await transaction.write_message("account-2", "Opened")
                raise Mishap

        assert await async_store.stream_version("account-1") == 0
        assert await async_store.stream_version("account-2") is None

    async def test_is_controlled_by_hand(self, async_store: AsyncStore) -> None:
        kept = await async_store.begin_transaction("serializable", timeout=5)
        await kept.write_message("account-1", "Opened")
        await kept.commit()
        undone = await async_store.begin_transaction()
        await undone.write_message("account-1", "Closed")
        await undone.rollback()
        await undone.rollback()

        assert (kept.is_active, undone.is_active) == (False, False)
        assert await async_store.stream_version("account-1") == 0
        with pytest.raises(TransactionClosed):
            await kept.stream_version("account-1")

    async def test_runs_a_function(self, async_store: AsyncStore) -> None:
        async def work(transaction: penstock.AsyncTransaction) -> int:
            return await transaction.write_message("account-1", "Opened")

        assert await async_store.with_transaction(work) == 0

    async def test_has_savepoints(self, async_store: AsyncStore) -> None:
        async with async_store.transaction() as transaction:
            await transaction.savepoint("a")
            await transaction.write_message("account-1", "Opened")
            await transaction.rollback_to_savepoint("a")
            await transaction.release_savepoint("a")
            with pytest.raises(WrongExpectedVersion):
                async with transaction.nested():
                    await transaction.write_message("account-1", "Opened", expected_version=9)
            await transaction.write_message("account-1", "Closed")

        (message,) = await async_store.get_stream_messages("account-1")
        assert message.type == "Closed"

    async def test_refuses_to_commit_after_a_failure(self, async_store: AsyncStore) -> None:
        with pytest.raises(TransactionAborted):
            async with async_store.transaction() as transaction:
                await transaction.write_message("account-1", "Opened")
                with suppress(WrongExpectedVersion):
                    await transaction.write_message("account-2", "Opened", expected_version=9)

        assert await async_store.get_category_messages("account") == []

    async def test_is_not_used_once_it_was_ended_with_sql_of_the_callers_own(
        self, async_store: AsyncStore
    ) -> None:
        with pytest.raises(TransactionClosed):
            async with async_store.transaction() as transaction:
                await transaction.write_message("account-1", "Opened")
                await transaction.connection.rollback()

        assert await async_store.stream_version("account-1") is None

    async def test_ends_in_time_on_the_server(self, async_store: AsyncStore) -> None:
        with pytest.raises(TransactionTimeout):
            async with async_store.transaction(timeout=1) as transaction:
                await transaction.write_message("account-1", "Opened")
                pid = transaction.connection.info.backend_pid
                wait_until_gone(async_store.settings.conninfo(), pid)

        assert await async_store.stream_version("account-1") is None

    async def test_keeps_to_the_watermark_above_read_committed(
        self, async_store: AsyncStore
    ) -> None:
        await async_store.write_message("account-1", "Opened")
        async with async_store.transaction("repeatable read") as transaction:
            await async_store.write_message("account-2", "Opened")

            assert len(await transaction.get_category_messages("$all")) == 1

    async def test_runs_on_a_connection_of_your_own(self, async_store: AsyncStore) -> None:
        conninfo = async_store.settings.conninfo()
        async with await psycopg.AsyncConnection.connect(conninfo) as connection:
            mine = async_store.using(connection)
            await mine.write_message("account-1", "Opened")
            await connection.rollback()
            await mine.write_message("account-2", "Opened")
            await connection.commit()

        assert len(await async_store.get_category_messages("account")) == 1

    async def test_does_not_run_on_a_connection_for_blocking_code(
        self, async_store: AsyncStore
    ) -> None:
        with psycopg.connect(async_store.settings.conninfo()) as connection:
            other: Any = connection
            with pytest.raises(ValidationError, match="connection must be"):
                async_store.using(other)

    async def test_locks_categories(self, async_store: AsyncStore) -> None:
        async with async_store.transaction() as transaction:
            await transaction.lock_categories("account")
            await transaction.write_message("account-1", "Opened")

        assert await async_store.stream_version("account-1") == 0


def own_connection(store: Store, **options: Any) -> psycopg.Connection[Any]:
    """Return a connection that is not the store's. Message DB's functions need this search path."""
    path = "-c search_path=message_store,public"
    return psycopg.connect(store.settings.conninfo(), options=path, **options)


def suppressed(work: Callable[[Transaction], None], transaction: Transaction) -> None:
    with suppress(WrongExpectedVersion):
        work(transaction)


def pid_of(transaction: Transaction) -> int:
    """Ask the server which of its backends serves the transaction."""
    row = transaction.connection.execute("select pg_backend_pid()").fetchone()
    assert row is not None
    return int(row[0])


def pid_of_connection(transaction: Transaction) -> int:
    return transaction.connection.info.backend_pid


def timeout_of(transaction: Transaction) -> str:
    row = transaction.connection.execute("show transaction_timeout").fetchone()
    assert row is not None
    return str(row[0])


def terminate(store: Store, pid: int) -> None:
    """End a backend, and return once it has gone."""
    with psycopg.connect(store.settings.conninfo(), autocommit=True) as connection:
        connection.execute("select pg_terminate_backend(%s)", [pid])
    wait_until_gone(store.settings.conninfo(), pid)


def test_your_own_repeatable_read_transaction_reads_up_to_a_watermark_from_before_it(
    store: Store, database_url: str
) -> None:
    store.write_message("account-1", "Opened")
    watermark = store.category_head("$all")
    with psycopg.connect(database_url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ

        messages = store.using(connection, watermark=watermark).get_category_messages("account")

    assert [message.type for message in messages] == ["Opened"]
