"""Promise 6, Flat: a guard costs the same after a bulk append, late, and under a held watermark.

Counted are the index entries and rows that the server reads, and the bytes that a guard is sent as.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import psycopg
import pytest

import penstock
from penstock import (
    BorrowedConnection,
    ConcurrentAppendError,
    Guard,
    Message,
    QueryCondition,
    Store,
    Transaction,
    TypedMessage,
)
from penstock.errors import LockTableFull, TransactionConflict, ValidationError
from penstock.log.boundary import lock_guard
from penstock.log.guard import grouped_json
from tests.promises.test_flat import SLACK, entries_read
from tests.racing import wait_until_it_waits
from tests.servers import FAST, OwnServer, own_server

FEW, MANY = 100, 3_000
TYPE = QueryCondition("flat.seat_taken")
ALGEBRA = QueryCondition("flat.seat_taken", "course", "Algebra")


class SeatTaken(TypedMessage, type="flat.seat_taken"):
    course: str
    user: str = ""


def seats(count: int) -> list[SeatTaken]:
    return [SeatTaken(course="Algebra", user=str(number)) for number in range(count)]


@contextmanager
def a_writer_left_open(store: Store) -> Iterator[None]:
    """Hold the watermark back."""
    writer = store.begin_transaction()
    writer.write_message("elsewhere-1", "Opened")
    yield
    writer.rollback()


def append_alone(log: BorrowedConnection | Store, guard: Guard) -> object:
    return log.append(SeatTaken(course="Algebra"), guard)


def append_a_batch(log: BorrowedConnection | Store, guard: Guard) -> object:
    return log.append(seats(2), guard)


def append_late(log: BorrowedConnection, guard: Guard) -> object:
    log.write_message("diary-1", "Noted")
    return log.append(SeatTaken(course="Algebra"), guard)


@pytest.mark.parametrize("held_back", [False, True], ids=["complete", "held back"])
@pytest.mark.parametrize("append", [append_alone, append_a_batch, append_late])
@pytest.mark.parametrize("conditions", [[ALGEBRA], [TYPE]], ids=["attribute", "type"])
def test_the_guard_of_a_bulk_append_costs_as_much_as_that_of_a_few(
    store: Store,
    held_back: bool,
    append: Callable[[BorrowedConnection, Guard], object],
    conditions: list[QueryCondition],
) -> None:
    store.declare(SeatTaken)
    with ExitStack() as stack:
        if held_back:
            stack.enter_context(a_writer_left_open(store))
        few = store.append(seats(FEW), store.read(conditions)[1]).guard
        cost_of_few = entries_read(store, lambda log: append(log, few))  # type: ignore[arg-type]
        many = store.append(seats(MANY), few).guard
        assert few is not None
        assert many is not None

        cost_of_many = entries_read(store, lambda log: append(log, many))

    assert cost_of_many <= cost_of_few + SLACK
    assert len(many.as_json()) <= len(few.as_json()) + 50


def test_the_guard_of_a_bulk_append_still_sees_a_stranger(store: Store) -> None:
    store.declare(SeatTaken)
    with a_writer_left_open(store):
        guard = store.append(seats(MANY), store.read([ALGEBRA])[1]).guard
        assert guard is not None
        store.append(SeatTaken(course="Algebra", user="a stranger"))

        for append in (append_alone, append_a_batch):
            with pytest.raises(ConcurrentAppendError):
                append(store, guard)


def interleaved(store: Store, other: Store, count: int) -> Guard:
    """A guard whose own positions have those of others between them, one by one."""
    guard: Guard | None = store.read([ALGEBRA])[1]
    for _ in range(count):
        guard = store.append(SeatTaken(course="Algebra"), guard).guard
        other.append(SeatTaken(course="History"))
    assert guard is not None
    return guard


def test_a_guard_of_many_ranges_finds_what_was_written_between_them(
    store: Store, database_url: str
) -> None:
    store.declare(SeatTaken)
    with penstock.connect(database_url) as other, a_writer_left_open(store):
        late = other.begin_transaction()
        late.write_message("plain-1", "Noted")  # its position lies between those of the guard
        guard = interleaved(store, other, 60)
        assert len(guard.seen) == 60
        append_alone(store, guard)

        with psycopg.connect(database_url) as connection:
            connection.execute(  # as a writer whose message commits late
                "insert into penstock.message_attributes"
                " select penstock.key_pair('course', 'Algebra'), t.id, %s"
                " from penstock.message_types t where t.type = 'flat.seat_taken'",
                (guard.seen[0][0] - 1,),
            )
            row = connection.execute(
                "select penstock.has_unseen(array[penstock.key_pair('course', 'Algebra')],"
                " array(select id from penstock.message_types), %s, %s::int8multirange)",
                (guard.low, guard.seen_ranges()),
            ).fetchone()
            connection.rollback()
        late.rollback()

    assert row == (True,)


def test_a_read_above_a_held_watermark_returns_what_was_seen_once(store: Store) -> None:
    store.declare(SeatTaken)
    with a_writer_left_open(store):
        store.append(seats(MANY))
        with psycopg.connect(store.settings.conninfo()) as connection:
            lists = connection.execute(
                "select seen from penstock.read_boundary(%s::jsonb)", (grouped_json([ALGEBRA]),)
            ).fetchall()
        messages, guard = store.read([ALGEBRA])

    assert sum(len(seen) for (seen,) in lists if seen is not None) == MANY
    assert len(messages) == MANY
    assert len(guard.seen) == 1


def held_locks(transaction: Transaction) -> int:
    row = transaction.connection.execute(
        "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()"
    ).fetchone()
    assert row is not None
    return int(row[0])


def users(count: int, first: int = 0) -> list[QueryCondition]:
    return [QueryCondition("flat.seat_taken", "user", str(n)) for n in range(first, first + count)]


def lock_bit_by_bit(tx: Transaction) -> None:
    for number in range(20):
        tx.lock(users(100, 100 * number))


LOCKED: dict[str, Callable[[Transaction], object]] = {
    "alone": lambda tx: tx.append(SeatTaken(course="Algebra"), Guard(tuple(users(2_000)))),
    "in a batch": lambda tx: tx.append(seats(2), Guard(tuple(users(2_000, 10)))),
    "of another type": lambda tx: tx.append(Message("note"), Guard(tuple(users(2_000)))),
    "locked first": lambda tx: tx.run(lock_guard(tx.context, users(2_000))),
    "bit by bit": lock_bit_by_bit,
    "late": lambda tx: (
        [tx.write_message(f"diary-{n}", "Noted") for n in range(300)],
        tx.append(SeatTaken(course="Algebra"), Guard(tuple(users(300)))),
    ),
}


@pytest.mark.parametrize("way", LOCKED)
def test_a_guard_of_many_conditions_takes_few_locks(store: Store, way: str) -> None:
    store.declare(SeatTaken)
    with store.transaction() as transaction:
        LOCKED[way](transaction)

        assert 0 < held_locks(transaction) <= 510


def test_many_guards_of_many_conditions_at_once_leave_room_in_the_lock_table(
    database_url: str,
) -> None:
    types = [f"flat.{number}" for number in range(16)]  # so that they do not wait for each other
    with psycopg.connect(database_url) as connection:
        for one in types:
            connection.execute("select penstock.declare_type(%s, '{user}')", (one,))
            connection.execute("select penstock.fill_attributes(%s)", (one,))
    with penstock.connect(database_url, pool_max_size=20) as wide, ExitStack() as stack:
        for one in types:
            transaction = stack.enter_context(wide.transaction())
            transaction.lock([QueryCondition(one, "user", f"{one} {n}") for n in range(2_000)])


BULK = 600  # messages: from 500 on, a batch holds the gate in place of its keys


def append_one(tx: Transaction) -> object:
    return tx.append(SeatTaken(course="Algebra", user="7"))


def append_many(tx: Transaction) -> object:
    return tx.append(seats(BULK))


def write_past_the_index(tx: Transaction) -> object:
    return tx.write_message("seat-1", "flat.seat_taken", {"course": "Algebra", "user": "7"})


def write_many_past_the_index(tx: Transaction) -> object:
    messages = [Message("flat.seat_taken", {"user": str(number)}) for number in range(BULK)]
    return tx.write_messages("seat-2", messages)


def copy_many(tx: Transaction) -> object:
    return tx.connection.execute(
        "insert into message_store.messages (stream_name, position, type, data)"
        " select 'seat-' || n, 0, 'flat.seat_taken', jsonb_build_object('user', n)"
        " from generate_series(1, 600) n"
    )


WRITES = [append_one, append_many, write_past_the_index, write_many_past_the_index, copy_many]
#: guards of more keys than they take locks, and where they are checked
ESCALATED = {
    "alone": lambda log: log.append(Message("note"), Guard(tuple(users(600)))),
    "in a batch": lambda log: log.append(seats(2), Guard(tuple(users(600)))),
    "a bulk": lambda log: log.append(seats(BULK), Guard(tuple(users(600)))),
}


@pytest.mark.parametrize("guarded", ESCALATED)
@pytest.mark.parametrize("write", WRITES)
def test_a_guard_of_many_conditions_waits_for_a_writer_and_sees_its_message(
    store: Store,
    database_url: str,
    write: Callable[[Transaction], object],
    guarded: str,
) -> None:
    store.declare(SeatTaken)
    with ThreadPoolExecutor(1) as threads, store.transaction() as writer:
        write(writer)
        decision = threads.submit(ESCALATED[guarded], store)
        wait_until_it_waits(database_url, decision)

    with pytest.raises(ConcurrentAppendError):
        decision.result()


@pytest.mark.parametrize("guarded", ESCALATED)
@pytest.mark.parametrize("write", WRITES)
def test_a_writer_waits_for_a_guard_of_many_conditions(
    store: Store,
    database_url: str,
    write: Callable[[Transaction], object],
    guarded: str,
) -> None:
    store.declare(SeatTaken)

    def written() -> None:
        with store.transaction() as transaction:
            write(transaction)

    with ThreadPoolExecutor(1) as threads, store.transaction() as decider:
        ESCALATED[guarded](decider)
        later = threads.submit(written)
        wait_until_it_waits(database_url, later)
    later.result()


def test_a_guard_of_many_conditions_late_in_a_transaction_does_not_wait(store: Store) -> None:
    store.declare(SeatTaken)
    with store.transaction() as writer:
        append_one(writer)
        decider = store.begin_transaction()
        decider.write_message("diary-1", "Noted")

        with pytest.raises(TransactionConflict) as raised:
            ESCALATED["alone"](decider)
        decider.rollback()

    assert raised.value.retryable


def test_a_guard_of_more_types_than_it_may_lock_is_refused(store: Store) -> None:
    conditions = [QueryCondition(f"type.{number}") for number in range(401)]

    with pytest.raises(ValidationError, match="401 message types"):
        store.append(Message("note"), Guard(tuple(conditions)))


@pytest.fixture
def small_server() -> Iterator[OwnServer]:
    """A server whose lock table is small."""
    settings = {**FAST, "max_locks_per_transaction": "10", "max_connections": "10"}
    with own_server(settings) as server:
        yield server


def test_a_full_lock_table_is_an_error_that_says_what_to_do(small_server: OwnServer) -> None:
    url = small_server.url
    with penstock.connect(url) as store, psycopg.connect(url) as hoarder:
        store.declare(SeatTaken)
        with pytest.raises(psycopg.errors.OutOfMemory):
            hoarder.execute("select pg_advisory_lock(n) from generate_series(1, 100000) n")

        with pytest.raises(LockTableFull, match="max_locks_per_transaction") as raised:
            store.append(seats(400))

    assert raised.value.retryable
