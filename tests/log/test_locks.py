"""Promise 3, Parallel: who waits for whom, and that nobody waits for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier

import psycopg
import pytest

import penstock
from penstock import Message, Store, Transaction
from penstock.errors import CategoryBusy, TransactionConflict
from penstock.message import names
from tests.log.client import Client
from tests.racing import at_once, wait_until_blocked, wait_until_it_waits

MANY = 600  # more than the locks that one transaction takes before it makes do with coarser ones

#: the ways to write to a stream
WAYS = {
    "write_message":
        "select message_store.write_message(gen_random_uuid()::varchar, %s, 'Opened', '{}')",
    "write_messages":
        "select penstock.write_messages("
        "%s, array[gen_random_uuid()], '{Opened}', array['{}'], '{null}')",
    "write_many":
        "select penstock.write_many("
        "array[%s]::varchar[], array[gen_random_uuid()], '{Opened}', array['{}'], '{null}')",
    "append_one":
        "select penstock.append_one(%s, gen_random_uuid(), 'Opened', '{}')",
    "append":
        "select penstock.append(%s, array[gen_random_uuid(), gen_random_uuid()],"
        " '{Opened,Closed}', array['{}', '{}'], '{null,null}')",
}  # fmt: skip
#: the ways to append messages to streams of their own, in the category `account`
OWN_STREAMS = {
    "append_one":
        "select penstock.append_one(null, gen_random_uuid(), 'account', '{}')",
    "append":
        "select penstock.append(null, array[gen_random_uuid(), gen_random_uuid()],"
        " '{account,account}', array['{}', '{}'], '{null,null}')",
    "append of two types":
        "select penstock.append(null, array[gen_random_uuid(), gen_random_uuid()],"
        " '{order,account}', array['{}', '{}'], '{null,null}')",
}  # fmt: skip


@pytest.fixture
def tx(store: Store) -> Iterator[Transaction]:
    """A transaction that stays open while others write."""
    tx = store.begin_transaction()
    yield tx
    tx.rollback()


@pytest.fixture
def impatient(other: Client) -> Client:
    """A client that fails where it would have to wait for somebody's transaction."""
    other.execute("set lock_timeout = '100ms'")
    return other


@contextmanager
def must_wait() -> Iterator[None]:
    with pytest.raises(psycopg.errors.LockNotAvailable):
        yield


def streams(client: Client) -> set[str]:
    """Return the streams that have messages."""
    return set(client.values("select stream_name from message_store.messages"))


def fill(tx: Transaction, category: str = "account", count: int = MANY) -> None:
    """Write one message to each of so many streams, in as many calls."""
    for number in range(count):
        tx.write_message(f"{category}-{number}", "Opened")


class TestWriters:
    def test_of_different_streams_of_a_category_do_not_wait(
        self, tx: Transaction, impatient: Client
    ) -> None:
        tx.write_message("account-1", "Opened")

        assert impatient.write("account-2") == 2

    @pytest.mark.parametrize("way", WAYS)
    def test_of_different_streams_of_a_category_do_not_wait_whichever_way_they_write(
        self, writer: Client, impatient: Client, way: str
    ) -> None:
        writer.execute(WAYS[way], "account-1")

        impatient.execute(WAYS[way], "account-2")

        assert streams(impatient) == {"account-2"}

    @pytest.mark.parametrize("way", OWN_STREAMS)
    def test_of_messages_in_streams_of_their_own_do_not_wait(
        self, writer: Client, impatient: Client, way: str
    ) -> None:
        writer.execute(OWN_STREAMS[way])

        impatient.execute(OWN_STREAMS[way])

        assert "account" in {names.category(one) for one in streams(impatient)}

    def test_of_different_categories_do_not_wait(self, tx: Transaction, impatient: Client) -> None:
        tx.write_message("account-1", "Opened")

        assert impatient.write("order-1") == 2

    def test_of_one_stream_take_turns(self, tx: Transaction, impatient: Client) -> None:
        tx.write_message("account-1", "Opened")

        with must_wait():
            impatient.write("account-1")

    @pytest.mark.parametrize("way", WAYS)
    def test_of_one_stream_take_turns_whichever_way_they_write(
        self, database_url: str, writer: Client, other: Client, way: str
    ) -> None:
        writer.write("account-1")
        with ThreadPoolExecutor(1) as thread:
            second = thread.submit(other.execute, WAYS[way], "account-1")
            wait_until_it_waits(database_url, second)
            writer.execute("commit")

            second.result()

        assert other.value("select message_store.stream_version('account-1')") > 0

    def test_get_the_positions_of_their_turns(
        self, database_url: str, store: Store, tx: Transaction
    ) -> None:
        first = tx.write_message("account-1", "Opened")
        with ThreadPoolExecutor(1) as thread:
            second = thread.submit(store.write_message, "account-1", "Closed")
            wait_until_blocked(database_url)

            tx.commit()

        assert (first, second.result()) == (0, 1)

    def test_of_one_stream_need_not_wait_after_a_rollback_to_a_savepoint(
        self, tx: Transaction, impatient: Client
    ) -> None:
        tx.savepoint("a")
        tx.write_message("account-1", "Opened")

        tx.rollback_to_savepoint("a")

        assert impatient.write("account-1") == 2

    def test_of_a_category_stream_and_of_a_stream_in_it_do_not_wait(
        self, tx: Transaction, impatient: Client
    ) -> None:
        tx.write_message("account", "Audited")

        assert impatient.write("account-1") == 2

    def test_never_keep_a_reader_waiting(self, tx: Transaction, impatient: Client) -> None:
        tx.lock_categories("account")
        tx.write_message("account-1", "Opened")

        assert (impatient.read("account"), impatient.head("account")) == ([], 0)


class TestMessageDbsLock:
    def test_keeps_our_writers_out_of_the_category(self, writer: Client, impatient: Client) -> None:
        writer.execute("select message_store.acquire_lock('account-1')")

        with must_wait():
            impatient.write("account-2")

    @pytest.mark.parametrize("way", WAYS)
    def test_keeps_writers_out_whichever_way_they_write(
        self, writer: Client, impatient: Client, way: str
    ) -> None:
        writer.execute("select message_store.acquire_lock('account-1')")

        with must_wait():
            impatient.execute(WAYS[way], "account-2")

    @pytest.mark.parametrize("way", OWN_STREAMS)
    def test_keeps_out_messages_in_streams_of_their_own(
        self, writer: Client, impatient: Client, way: str
    ) -> None:
        writer.execute("select message_store.acquire_lock('account-1')")

        with must_wait():
            impatient.execute(OWN_STREAMS[way])

    def test_leaves_other_categories_alone(self, writer: Client, impatient: Client) -> None:
        writer.execute("select message_store.acquire_lock('account-1')")

        assert impatient.write("order-1") == 1

    def test_waits_for_our_writers(self, tx: Transaction, impatient: Client) -> None:
        tx.write_message("account-1", "Opened")

        with must_wait():
            impatient.execute("select message_store.acquire_lock('account-2')")

    def test_does_not_keep_out_its_own_holder(self, writer: Client) -> None:
        writer.execute("select message_store.acquire_lock('account-1')")

        assert writer.write("account-1") == 1


class TestBesideAGenuineMessageDb:
    """Its readers rely on it that the writers of a category take turns."""

    @pytest.mark.parametrize(
        "streams",
        [("account-1", "account-2"), (None, None)],
        ids=["named streams", "their own streams"],
    )
    def test_appends_to_a_category_take_turns(
        self, new_database: Callable[[str], str], streams: tuple[str | None, str | None]
    ) -> None:
        with penstock.connect(new_database("beside")) as store:
            first, second = store.begin_transaction(), store.begin_transaction()
            first.append(Message("account"), stream_name=streams[0])
            second.connection.execute("set local lock_timeout = '100ms'")

            with pytest.raises(TransactionConflict, match="lock timeout"):
                second.append(Message("account"), stream_name=streams[1])
            first.rollback()
            second.rollback()


class TestATransactionOfManyStreams:
    def test_holds_a_bounded_number_of_locks(self, tx: Transaction, other: Client) -> None:
        fill(tx)

        assert other.advisory_locks(tx.connection.info.backend_pid) <= 502

    def test_has_the_category_to_itself(self, tx: Transaction, impatient: Client) -> None:
        fill(tx)

        with must_wait():
            impatient.write("account-new")

    def test_leaves_other_categories_alone(self, tx: Transaction, impatient: Client) -> None:
        fill(tx)

        assert impatient.write("order-1") == MANY + 1

    def test_fails_if_others_write_to_the_category(self, tx: Transaction, writer: Client) -> None:
        writer.write("account-new")
        tx.connection.execute("set local lock_timeout = '5s'")  # it has to fail without waiting

        with pytest.raises(CategoryBusy) as caught:
            fill(tx)

        assert (caught.value.category, caught.value.retryable) == ("account", True)

    def test_does_not_deadlock_with_its_twin(self, store: Store) -> None:
        barrier = Barrier(2)

        def write(twin: str) -> str:
            with store.transaction() as tx:
                tx.write_message(f"account-{twin}", "Opened")
                barrier.wait()  # both share the category now, so neither can have it
                for number in range(MANY):
                    tx.write_message(f"account-{twin}{number}", "Opened")
            return twin

        outcomes = at_once(lambda: write("a"), lambda: write("b"))

        assert any(isinstance(outcome, CategoryBusy) for outcome in outcomes)
        assert all(isinstance(outcome, CategoryBusy | str) for outcome in outcomes)

    def test_gets_through_by_trying_again(self, store: Store) -> None:
        @penstock.retry(attempts=20)
        def write(twin: str) -> str:
            with store.transaction() as tx:
                for number in range(MANY):
                    tx.write_message(f"account-{twin}{number}", "Opened")
            return twin

        assert at_once(lambda: write("a"), lambda: write("b")) == ["a", "b"]

    def test_may_write_on_once_it_has_the_category(self, tx: Transaction) -> None:
        fill(tx)

        positions = [tx.write_message(f"account-{number}", "Closed") for number in range(MANY)]

        assert positions == [1] * MANY

    def test_is_not_one_that_writes_to_one_stream_many_times(
        self, tx: Transaction, impatient: Client
    ) -> None:
        for _ in range(MANY):
            tx.write_message("account-1", "Changed")

        assert impatient.write("account-2") == MANY + 1

    def test_is_not_one_that_writes_many_messages_in_one_call(
        self, tx: Transaction, impatient: Client
    ) -> None:
        tx.write_messages("account-1", [Message("Changed") for _ in range(MANY)])

        assert impatient.write("account-2") == MANY + 1

    def test_is_not_one_that_undid_them(self, tx: Transaction, impatient: Client) -> None:
        for _ in range(2):
            tx.savepoint("a")
            fill(tx, count=400)
            tx.rollback_to_savepoint("a")

        tx.write_message("account-1", "Opened")

        assert impatient.write("account-new") == 802


class TestLockCategories:
    def test_keeps_others_out_until_the_end(self, tx: Transaction, impatient: Client) -> None:
        tx.lock_categories("account", "order")

        with must_wait():
            impatient.write("account-1")
        with must_wait():
            impatient.write("order-1")
        assert impatient.write("invoice-1") == 1

    def test_waits_for_those_who_write_already(
        self, database_url: str, store: Store, writer: Client
    ) -> None:
        writer.write("account-1")

        def lock_and_write() -> int:
            with store.transaction() as tx:
                tx.lock_categories("account")
                return tx.write_message("account-1", "Closed")

        with ThreadPoolExecutor(1) as thread:
            position = thread.submit(lock_and_write)
            wait_until_blocked(database_url)
            writer.execute("commit")

        assert position.result() == 1

    def test_lets_the_holder_write_to_any_number_of_streams(
        self, database_url: str, store: Store, tx: Transaction, other: Client
    ) -> None:
        tx.lock_categories("account")
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(store.write_message, "account-0", "Closed")
            wait_until_blocked(database_url)
            fill(tx)
            locks = other.advisory_locks(tx.connection.info.backend_pid)

            tx.commit()

        assert (locks <= 502, waiting.result()) == (True, 1)

    def test_late_in_a_transaction_does_not_wait_but_fails(
        self, tx: Transaction, writer: Client
    ) -> None:
        writer.write("account-1")
        tx.write_message("account-2", "Opened")
        tx.connection.execute("set local lock_timeout = '5s'")

        with pytest.raises(CategoryBusy):
            tx.lock_categories("account")

    def test_in_any_order_do_not_deadlock(self, store: Store) -> None:
        def lock(*categories: str) -> int:
            with store.transaction() as tx:
                tx.lock_categories(*categories)
                return len(categories)

        for _ in range(20):
            outcomes = at_once(lambda: lock("a", "b", "c"), lambda: lock("c", "b", "a"))
            assert outcomes == [3, 3]

    def test_in_opposite_orders_take_turns(
        self, database_url: str, store: Store, writer: Client
    ) -> None:
        def lock(*categories: str) -> int:
            with store.transaction() as tx:
                tx.lock_categories(*categories)
                return len(categories)

        writer.execute("select message_store.acquire_lock('b-1')")
        with ThreadPoolExecutor(2) as threads:
            both = [threads.submit(lock, *order) for order in ("abc", "cba")]
            wait_until_blocked(database_url, 2)  # each has what comes before b in its order
            writer.execute("commit")

        assert [one.result() for one in both] == [3, 3]


def crossing(store: Store, first: str, second: str, both: Barrier) -> Callable[[], str]:
    """Return a call that writes to two streams; the first time it waits in between for its twin."""
    waits = iter([both.wait])

    def write() -> str:
        with store.transaction() as tx:
            tx.connection.execute("set local deadlock_timeout = '10ms'")
            tx.write_message(first, "Opened")
            next(waits, int)()
            tx.write_message(second, "Opened")
        return first

    return write


class TestTransactionsThatCross:
    def test_end_for_one_of_them_in_a_conflict_that_may_be_retried(self, store: Store) -> None:
        both = Barrier(2)

        outcomes = at_once(
            crossing(store, "account-1", "account-2", both),
            crossing(store, "account-2", "account-1", both),
        )

        (conflict,) = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
        assert isinstance(conflict, TransactionConflict)
        assert conflict.retryable

    def test_get_through_by_trying_again(self, store: Store) -> None:
        both = Barrier(2)

        outcomes = at_once(
            penstock.retry(crossing(store, "account-1", "account-2", both)),
            penstock.retry(crossing(store, "account-2", "account-1", both)),
        )

        assert outcomes == ["account-1", "account-2"]
        assert [store.stream_version(f"account-{number}") for number in (1, 2)] == [1, 1]
