"""Promise 6, Flat: what an operation reads does not grow with the log, the partitions or a hot key.

Counted are the index entries and table rows that the server reads, over all tables of ours. They
tell a cost that grows from one that does not, on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

import penstock
from penstock import BorrowedConnection, Claim, NewMessage, Store, TypedMessage
from penstock.consumers.positions import TablePositions
from penstock.database.batch import Refused, write_batch
from penstock.log import append as log_append
from penstock.log import write as log_write
from penstock.outbox import operations
from tests.conftest import Server

SMALL, LARGE = 100, 3000
SLACK = 50  # entries: where pages happen to end, and a claim of ten messages reads each of them

READ = """
select sum(pg_stat_get_xact_tuples_returned(c.oid)) from pg_class c
where c.relnamespace in ('message_store'::regnamespace, 'penstock'::regnamespace)
  and c.relkind in ('r', 'i')
"""


class ReadingTaken(TypedMessage, type="flat.reading_taken"):
    device: str


@contextmanager
def filled(server: Server, devices: list[str]) -> Iterator[Store]:
    """A store with a reading of each of these devices, routed to the partitions of a group."""
    name = server.create_database(server.template("penstock"))
    with penstock.connect(server.url(name)) as store:
        for first in range(0, len(devices), 300):
            store.append([ReadingTaken(device=one) for one in devices[first : first + 300]])
        store.groups.register("group")
        while store.groups.list()[0].routed_to < store.category_head("$all"):
            claim = claim_next(store)
            assert claim is not None
            store.groups.release(claim)
        yield store
    server.drop_database(name)


@pytest.fixture(scope="module")
def few(server: Server) -> Iterator[Store]:
    with filled(server, [str(number) for number in range(SMALL)]) as store:
        yield store


@pytest.fixture(scope="module")
def many(server: Server) -> Iterator[Store]:
    with filled(server, [str(number) for number in range(LARGE)]) as store:
        yield store


@pytest.fixture(scope="module")
def hot(server: Server) -> Iterator[Store]:
    with filled(server, ["1"] * LARGE) as store:
        yield store


def claim_next(store: Store | BorrowedConnection) -> Claim | None:
    return store.groups.claim_next(
        "group", partition_by="device", handled_types=[ReadingTaken], batch_size=10
    )


def entries_read(store: Store, work: Callable[[BorrowedConnection], object]) -> int:
    """How many index entries and rows the server reads for this, once its plans are made."""
    with psycopg.connect(store.settings.conninfo()) as connection:
        for _ in range(2):
            work(store.using(connection))
            connection.rollback()
        before = _count(connection)
        work(store.using(connection))
        read = _count(connection) - before
        connection.rollback()
    return read


def _count(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute(READ).fetchone()
    assert row is not None
    return int(row[0] or 0)


def write(log: BorrowedConnection) -> object:
    return log.write_message("note-1", "Taken")


def append(log: BorrowedConnection) -> object:
    return log.append(ReadingTaken(device="1"))


def claim(log: BorrowedConnection) -> None:
    assert claim_next(log) is not None


def claim_and_acknowledge(log: BorrowedConnection) -> None:
    claimed = claim_next(log)
    assert claimed is not None
    log.groups.ack(claimed)


OPERATIONS = [write, append, claim, claim_and_acknowledge]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_reads_as_much_with_many_partitions(
    few: Store, many: Store, operation: Callable[[BorrowedConnection], object]
) -> None:
    small = entries_read(few, operation)

    large = entries_read(many, operation)

    assert large <= small + SLACK


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_reads_as_much_with_a_hot_key(
    few: Store, hot: Store, operation: Callable[[BorrowedConnection], object]
) -> None:
    small = entries_read(few, operation)

    large = entries_read(hot, operation)

    assert large <= small + SLACK


@pytest.mark.parametrize("shape", ["many", "hot"])
def test_a_guard_reads_as_much_however_much_it_covers(
    few: Store, shape: str, request: pytest.FixtureRequest
) -> None:
    store: Store = request.getfixturevalue(shape)
    conditions = ReadingTaken.to_conditions(device="1")
    guards = [one.read(conditions)[1] for one in (few, store)]

    small, large = (
        entries_read(one, lambda log, guard=guard: log.append(ReadingTaken(device="1"), guard))  # type: ignore[misc]
        for one, guard in zip((few, store), guards, strict=True)
    )

    assert large <= small + SLACK


@pytest.mark.parametrize(
    ("devices", "partitions"),
    [([str(number) for number in range(600)], 600), (["1"] * 600, 1)],
    ids=["many", "hot"],
)
def test_a_claim_that_finds_nothing_reads_next_to_nothing(
    server: Server, devices: list[str], partitions: int
) -> None:
    def find_nothing(log: BorrowedConnection) -> None:
        assert claim_next(log) is None

    read = []
    for some in (devices[:20], devices):
        with filled(server, some) as store:
            while (claimed := claim_next(store)) is not None:
                store.groups.ack(claimed)
            read.append(entries_read(store, find_nothing))
            (status,) = store.groups.list()
            assert (status.partitions, status.pending) == (min(partitions, len(some)), 0)

    small, large = read
    assert large <= small + 10
    assert large <= SLACK


#: what is kept in one row, and replaced each time
REPLACED = {
    "a consumer's position": "penstock.save_position("
    "'order-me', {n}, nullif({n} - 1, 0), gen_random_uuid())",
    "a session's offset": "penstock.commit_session('queue-1', 'me', 1, 1)",
    "a delivery": "penstock.publish('nightly', {n}, '{{}}', '{{}}')",
    "a decider's snapshot": "penstock.save_snapshot('ledger', '1', 'a', '[]', {n}, '{{}}', {n}, 0,"
    " '00000000-0000-0000-0000-000000000000', repeat('0', 1500))",
}


@pytest.mark.parametrize("what", REPLACED)
def test_what_is_replaced_each_time_is_found_at_once_while_vacuum_is_held_back(
    store: Store, database_url: str, what: str
) -> None:
    store.write_message("queue-1", "Sent")
    holder = store.begin_transaction("repeatable read")
    holder.get_stream_messages("queue-1")
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("select penstock.open_session('queue-1', 'me')")
        connection.execute("update penstock.sessions set epoch = 1")
        replace, times = REPLACED[what].format(n="n"), 500
        connection.execute(
            f"do $$begin for n in 1 .. {times} loop perform {replace}; commit; end loop; end$$"
        )

    read = entries_read(
        store, lambda log: log.connection.execute(f"select {REPLACED[what].format(n=times + 1)}")
    )
    holder.rollback()

    assert 0 < read <= SLACK


@pytest.mark.parametrize("topics", [None, ["mail"]])
def test_a_claim_of_the_outbox_does_not_read_what_is_not_due_yet(
    store: Store, topics: list[str] | None
) -> None:
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    store.outbox.enqueue_many([NewMessage("mail", due=tomorrow)] * LARGE)
    store.outbox.enqueue("mail")

    read = entries_read(store, lambda log: claim_two_and_get_one(log, topics))

    assert read <= SLACK


def test_a_claim_of_the_outbox_does_not_read_topics_that_it_does_not_handle(store: Store) -> None:
    store.outbox.enqueue_many([NewMessage("bill")] * LARGE)
    store.outbox.enqueue("mail")

    read = entries_read(store, lambda log: claim_two_and_get_one(log, ["mail"]))

    assert read <= SLACK


def claim_two_and_get_one(log: BorrowedConnection, topics: list[str] | None) -> None:
    """Look for a second message, where there is only one."""
    claimed = log.outbox.claim("me", 2, topics=topics)
    assert [one.topic for one in claimed] == ["mail"]


def test_copies_of_errors_are_dropped_in_one_pass_whatever_the_statistics_say(
    store: Store, database_url: str
) -> None:
    token, rows = uuid4(), 600
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("analyze penstock.staged")  # as autovacuum does, while it is empty
        connection.execute(
            "insert into penstock.staged (token, ordinal, id, category, type, metadata)"
            " select %s, n, gen_random_uuid(), 'errors', 'T',"
            " jsonb_build_object('failed_global_position', n / 2) from generate_series(1, %s) n",
            (token, rows),
        )

    def drop(log: BorrowedConnection) -> None:
        query = "select dropped from penstock.drop_repeated_errors(array[%s::uuid])"
        assert log.connection.execute(query, (token,)).fetchone() == (rows // 2 - 1,)

    assert entries_read(store, drop) <= 2 * rows + SLACK


def test_the_topics_that_wait_are_found_without_reading_their_messages(store: Store) -> None:
    store.outbox.enqueue_many([NewMessage("ab"[n % 2]) for n in range(LARGE)])

    def look(log: BorrowedConnection) -> None:
        found = log.run(operations.report_unhandled("me", ["c"], 0))
        assert [topic for topic, _ in found] == ["a", "b"]

    assert entries_read(store, look) <= SLACK


def save_position(log: Store | BorrowedConnection) -> None:
    positions = TablePositions("order", "mailer")
    stored = log.run(positions.load(log.context))
    log.run(positions.save(log.context, stored, 0))


def commit_offset(log: Store | BorrowedConnection) -> None:
    log.queue("orders").commit_offset("worker", 0)


@pytest.mark.parametrize("save", [save_position, commit_offset])
def test_a_save_reads_as_much_after_many_others_under_an_old_snapshot(
    store: Store, save: Callable[[Store | BorrowedConnection], None]
) -> None:
    holder = store.begin_transaction("repeatable read")  # keeps vacuum from its work
    holder.stream_version("order-1")
    read = []

    for count in (10, 300):
        for _ in range(count):
            save(store)
        read.append(entries_read(store, save))
    holder.rollback()

    small, large = read
    assert large <= small + SLACK


def write_in_batch(log: Store | BorrowedConnection) -> None:
    calls = [
        *(log_write.write_message(log.context, f"order-{number}", "Placed") for number in range(5)),
        *(log_append.append(log.context, [ReadingTaken(device="1")]) for _ in range(5)),
    ]
    outcomes = log.run(write_batch(calls))
    assert not any(isinstance(one, Refused) for one in outcomes)


def test_a_batch_reads_as_much_after_many_others_under_an_old_snapshot(store: Store) -> None:
    store.declare(ReadingTaken)
    holder = store.begin_transaction("repeatable read")
    holder.stream_version("order-1")
    read = []

    for count in (10, 200):
        for _ in range(count):
            write_in_batch(store)
        read.append(entries_read(store, write_in_batch))
    holder.rollback()

    small, large = read
    assert large <= small + SLACK


def test_a_claim_of_the_outbox_goes_on_from_its_floor(store: Store) -> None:
    store.outbox.enqueue_many([NewMessage("mail", number) for number in range(LARGE)])
    holder = store.begin_transaction("repeatable read")  # keeps vacuum from its work
    holder.outbox.list(limit=1)
    last = None
    while claimed := store.outbox.claim("me", 500):
        store.outbox.ack(claimed)
        last = claimed[-1]
    assert last is not None
    floor = (last.due, last.id)

    from_the_floor = entries_read(
        store, lambda log: log.run(operations.claim("me", 1, 30, None, floor))
    )
    from_the_start = entries_read(store, lambda log: log.run(operations.claim("me", 1, 30)))
    holder.rollback()

    assert from_the_start >= LARGE
    assert from_the_floor <= SLACK
