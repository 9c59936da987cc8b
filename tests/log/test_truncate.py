"""After `truncate message_store.messages` everything that points into the log is as new.

Message DB's own clear-messages.sh and the tests of many services clear a store that way.
"""

from __future__ import annotations

import itertools
import logging
from typing import Any
from uuid import uuid4

import psycopg
import pytest

import penstock
from penstock import (
    AsyncConsumer,
    AsyncStore,
    Claim,
    CommitMode,
    ConcurrentAppendError,
    Consumer,
    QueryCondition,
    Store,
    TypedMessage,
)
from penstock.errors import LogChanged, PositionConflict, SessionFenced, StaleClaim

WAYS = {
    "plain": "truncate message_store.messages",
    "restart": "truncate message_store.messages restart identity",
    "restart cascade": "truncate message_store.messages restart identity cascade",
    "cascade": "truncate message_store.messages cascade",
    "with others": (
        "truncate message_store.messages, penstock.message_attributes, penstock.partitions"
    ),
    "as a replica": (
        "set session_replication_role = replica; truncate message_store.messages restart identity"
    ),
}
RESTART = WAYS["restart"]

#: what becomes of the rows of each table
FORGOTTEN = {
    "consumer_positions", "deliveries", "feed_partitions", "group_fanouts", "group_feeds",
    "claim_cursors", "group_rechecks", "group_replays", "group_types", "message_attributes",
    "archive_catalog", "archive_segments", "archived_correlations", "partition_states",
    "partitions", "removed_groups", "retentions", "staged_slices",
    "archived_messages", "archived_types", "decider_snapshots",
}  # fmt: skip
BEGUN_AGAIN = {
    "consumer_groups", "group_progress", "identity", "message_types", "processor_progress",
    "processors", "sessions",
}  # fmt: skip
KEPT = {
    "boundary_gate", "installations", "join_members", "join_nesting", "join_steps", "joins",
    "outbox", "staged", "stagings",
}  # fmt: skip


class Heard(TypedMessage, type="truncated.heard"):
    room: str


ROOM = [QueryCondition("truncated.heard", "room", "1")]


@pytest.fixture(params=WAYS.values(), ids=list(WAYS))
def clear(request: pytest.FixtureRequest, database_url: str) -> Any:
    """Truncate the log, in one of the ways."""
    return lambda: truncate(database_url, request.param)


def truncate(url: str, statement: str = RESTART) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


def write(store: Store, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        store.write_message(f"order-{number}", "Placed", {"number": number})


def claim(store: Store) -> Claim | None:
    return store.groups.claim_next("group", partition_by="room", handled_types=[Heard])


def test_what_becomes_of_each_table_was_decided(store: Store) -> None:
    with psycopg.connect(store.settings.conninfo()) as connection:
        rows = connection.execute(
            "select relname from pg_class"
            " where relnamespace = 'penstock'::regnamespace and relkind = 'r'"
        ).fetchall()

    assert {name for (name,) in rows} == FORGOTTEN | BEGUN_AGAIN | KEPT


def test_appends_and_guards_begin_anew(store: Store, clear: Any) -> None:
    store.append([Heard(room="1"), Heard(room="1")])
    clear()

    guard = store.append(Heard(room="1"), store.read(ROOM)[1]).guard
    store.append(Heard(room="1"))

    assert len(store.read(ROOM)[0]) == 2
    with pytest.raises(ConcurrentAppendError):
        store.append(Heard(room="1"), guard)


@pytest.mark.parametrize("count", [1, 2])
def test_a_guard_of_the_old_log_is_refused(store: Store, database_url: str, count: int) -> None:
    store.append([Heard(room="1") for _ in range(9)])
    guard = store.read(ROOM)[1]
    truncate(database_url)
    store.append(Heard(room="1"))  # at a position that the guard has seen, so it seems

    with pytest.raises(LogChanged):
        store.append([Heard(room="1") for _ in range(count)], guard)

    assert len(store.read(ROOM)[0]) == 1


def test_a_group_handles_the_new_messages(store: Store, clear: Any) -> None:
    store.groups.register("group")
    store.append([Heard(room="1"), Heard(room="2"), Heard(room="1")])
    for _ in range(2):
        claimed = claim(store)
        assert claimed is not None
        store.groups.ack(claimed)
    clear()

    store.append([Heard(room="1"), Heard(room="1")])
    claimed = claim(store)

    assert claimed is not None
    assert len(claimed.messages) == 2
    assert not claimed.replaying
    store.groups.ack(claimed)
    assert claim(store) is None


def test_a_claim_in_flight_is_stale(store: Store, clear: Any) -> None:
    store.groups.register("group")
    store.append(Heard(room="1"))
    claimed = claim(store)
    assert claimed is not None

    clear()

    with pytest.raises(StaleClaim):
        store.groups.ack(claimed)


@pytest.mark.parametrize("positions", ["stream", "table", "hybrid"])
def test_a_consumer_that_starts_handles_the_new_messages(
    store: Store, clear: Any, positions: str
) -> None:
    def consume() -> list[int]:
        numbers: list[int] = []
        consumer = Consumer(store, "order", "mailer", positions=positions)
        consumer.handler("Placed")(lambda message: numbers.append(message.data["number"]))
        while consumer.run_once():
            pass
        return numbers

    write(store, 5)
    assert consume() == [0, 1, 2, 3, 4]
    clear()

    write(store, 2)

    assert consume() == [0, 1]


@pytest.mark.parametrize("positions", ["stream", "table", "hybrid"])
def test_a_consumer_that_is_running_starts_again(
    store: Store, database_url: str, positions: str, caplog: pytest.LogCaptureFixture
) -> None:
    numbers: list[int] = []
    consumer = Consumer(store, "order", "mailer", positions=positions)
    consumer.handler("Placed")(lambda message: numbers.append(message.data["number"]))
    write(store, 5)
    consumer.run_once()
    truncate(database_url)
    write(store, 2, first=10)

    with caplog.at_level(logging.WARNING, "penstock"):
        consumer.run_once()
        consumer.run_once()

    assert numbers == [0, 1, 2, 3, 4, 10, 11]
    assert "starts again: a message was read at position 5, and the log ends at" in caplog.text


async def test_an_async_consumer_that_is_running_starts_again(
    async_store: AsyncStore, database_url: str
) -> None:
    numbers: list[int] = []
    consumer = AsyncConsumer(async_store, "order", "mailer", positions="table")

    @consumer.handler("Placed")
    async def note(message: penstock.RecordedMessage) -> None:
        numbers.append(message.data["number"])

    for number in range(5):
        await async_store.write_message("order-1", "Placed", {"number": number})
    await consumer.run_once()
    truncate(database_url)
    await async_store.write_message("order-1", "Placed", {"number": 10})

    await consumer.run_once()
    await consumer.run_once()

    assert numbers == [0, 1, 2, 3, 4, 10]


@pytest.mark.parametrize("positions", ["stream", "table", "hybrid"])
def test_a_consumer_that_runs_on_cannot_save_a_position_of_the_old_log(
    store: Store, database_url: str, positions: str
) -> None:
    consumer = Consumer(store, "order", "mailer", positions=positions)
    consumer.handler("Placed")(lambda message: None)
    write(store, 2)
    consumer.run_once()
    truncate(database_url, WAYS["plain"])  # positions go on, so nothing else tells
    write(store, 2)

    with pytest.raises(PositionConflict, match="truncated"):
        consumer.run_once()


def test_a_follower_gets_an_error(store: Store, database_url: str) -> None:
    write(store, 3)
    looks = itertools.count()
    followed = store.follow_category("order", polling_interval_ms=1, stop=lambda: next(looks) == 10)
    assert [next(followed).data["number"] for _ in range(3)] == [0, 1, 2]
    truncate(database_url)

    with pytest.raises(LogChanged) as raised:
        next(followed)

    assert (raised.value.target, raised.value.position) == ("order", 3)


async def test_an_async_follower_gets_an_error(async_store: AsyncStore, database_url: str) -> None:
    await async_store.write_message("order-1", "Placed")
    looks = itertools.count()
    followed = async_store.follow_category(
        "order", polling_interval_ms=1, stop=lambda: next(looks) == 10
    )
    await anext(followed)
    truncate(database_url)

    with pytest.raises(LogChanged):
        await anext(followed)


def test_a_follower_may_wait_for_a_position_that_is_still_to_come(store: Store) -> None:
    looks = iter([False, False, True])

    found = list(
        store.follow_category("order", 10, polling_interval_ms=1, stop=lambda: next(looks))
    )

    assert found == []


def test_a_session_begins_at_the_first_record(store: Store, clear: Any) -> None:
    queue = store.queue("mail")
    queue.offer_many([{"n": 0}, {"n": 1}])
    with queue.create_consumer("me", CommitMode.MANUAL_COMMIT) as session:
        for _ in range(2):
            session.poll()
            session.commit()
        clear()

        with pytest.raises(SessionFenced, match="truncated"):
            session.poll()

    queue.offer({"n": 2})
    with queue.create_consumer("me", CommitMode.MANUAL_COMMIT) as session:
        record = session.poll()

    assert record is not None
    assert record.value == {"n": 2}


def test_a_processor_begins_again(store: Store, clear: Any) -> None:
    snapshot = '{"hash": "a", "generation": 0, "ranges": {"order": ["0", "5"]}}'
    step = "select * from penstock.commit_step('shop', 'bill', %s, '{}', '{}', '{\"cursor\": 7}')"
    opened = "select * from penstock.open_processor('shop', 'bill', 'stream')"
    begun = (
        "select message_store.write_message("
        "gen_random_uuid()::varchar, 'shop:try-bill', 'Snapshot', %s)"
    )
    with psycopg.connect(store.settings.conninfo(), autocommit=True) as connection:
        connection.execute(opened)
        connection.execute(begun, (snapshot,))
        connection.execute(step, (snapshot,))
        connection.execute(begun, (snapshot,))
        clear()

        with pytest.raises(psycopg.Error, match="not committed") as raised:
            connection.execute(step, (snapshot,))
        row = connection.execute(opened).fetchone()

    assert raised.value.sqlstate == "PS071"
    assert row == (1, {}, None, False, {}, [])


def test_a_delivery_can_be_made_again(store: Store, clear: Any) -> None:
    stage = (
        "insert into penstock.staged (token, ordinal, category, type) values (%s, 1, 'order', 'T')"
    )
    publish = "select published, repeated from penstock.publish('nightly', 1, array[%s], '{1}')"
    with psycopg.connect(store.settings.conninfo(), autocommit=True) as connection:
        first, second = uuid4(), uuid4()
        connection.execute(stage, (first,))
        assert connection.execute(publish, (first,)).fetchone() == (1, False)
        clear()

        connection.execute(stage, (second,))

        assert connection.execute(publish, (second,)).fetchone() == (1, False)


def test_what_retention_removed_before_is_not_missed(store: Store, clear: Any) -> None:
    for _ in range(5):
        store.write_message("order-1", "Placed")
    store.admin.retain("order-1", keep_count=1)
    clear()

    with psycopg.connect(store.settings.conninfo()) as connection:
        missed = connection.execute("select penstock.missed('order', 0, 100)").fetchone()

    assert missed == (0,)


def test_what_people_declared_and_what_is_to_be_done_stays(store: Store, clear: Any) -> None:
    store.declare(Heard)
    store.groups.register("group")
    store.groups.stop("group")
    store.outbox.enqueue("mail", {"to": "joe"})
    join = store.joins.start("customer-7", 2)
    clear()

    assert store.read(ROOM)[0] == []
    assert [(one.group_id, one.status) for one in store.groups.list()] == [("group", "stopped")]
    assert [one.topic for one in store.outbox.list()] == ["mail"]
    assert store.joins.get(join).expected_steps == 2


def test_the_transaction_that_truncates_may_write_before_and_after(store: Store) -> None:
    write(store, 3)
    with store.transaction() as transaction:
        transaction.append(Heard(room="1"))
        transaction.connection.execute(RESTART)
        transaction.append(Heard(room="1"))

    assert [one.global_position for one in store.get_category_messages("$all")] == [1]
    assert len(store.read(ROOM)[0]) == 1


def test_a_truncate_that_is_rolled_back_changes_nothing(store: Store) -> None:
    store.append([Heard(room="1"), Heard(room="1")])
    with store.transaction() as transaction:
        transaction.connection.execute(RESTART)
        transaction.rollback()

    assert len(store.read(ROOM)[0]) == 2
    assert store.append(Heard(room="1")).position == 3
