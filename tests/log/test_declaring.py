"""Declaring attributes finds every message, also those that were there before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg import conninfo

import penstock
from penstock import AsyncStore, Guard, Message, QueryCondition, Store
from penstock.errors import IndexingUnfinished
from tests.groups.school import DeviceSeen, claim_device, positions
from tests.racing import at_once, wait_for_lock_or_end, wait_until_blocked

SEEN = DeviceSeen.to_conditions(device_id="a")


@pytest.fixture
def old_snapshot(database_url: str) -> Iterator[psycopg.Connection]:
    """A transaction that keeps a snapshot from before, and has not written yet."""
    with psycopg.connect(database_url) as connection:
        connection.execute("begin isolation level repeatable read")
        connection.execute("select count(*) from message_store.messages")
        yield connection


def seen(device: str = "a") -> Message:
    return Message("device.seen", {"device_id": device})


def found(store: Store) -> list[int]:
    return [message.global_position for message in store.read(SEEN)[0]]


def test_messages_from_before_the_declaration_are_found(store: Store) -> None:
    store.append([seen(), seen("b"), seen()])

    store.declare(DeviceSeen)

    assert found(store) == [1, 3]


def test_messages_from_before_are_found_at_the_first_use_of_the_class(store: Store) -> None:
    store.append([seen(), seen("b"), seen()])

    assert found(store) == [1, 3]


def test_filling_can_be_stopped_and_resumed(store: Store, database_url: str) -> None:
    store.append([seen() for _ in range(10)])

    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("select penstock.declare_type('device.seen', '{device_id}')")
        first = connection.execute(
            "select filled_to, fill_until from penstock.fill_attributes('device.seen', 4)"
        )
        assert first.fetchone() == (4, 10)
    store.append(seen())  # meanwhile
    reported = []
    store.declare(DeviceSeen, progress=lambda *facts: reported.append(facts))

    assert found(store) == list(range(1, 12))


def test_a_transaction_that_saw_the_log_before_the_declaration_is_waited_for(
    store: Store, old_snapshot: psycopg.Connection
) -> None:
    store.append(DeviceSeen(device_id="a"))  # declares the type
    with pytest.raises(IndexingUnfinished):
        store.read(SEEN)

    # it does not see the declaration, so nobody indexes its message
    old_snapshot.execute(
        "insert into message_store.messages (stream_name, position, type, data)"
        " values ('device-1', 0, 'device.seen', '{\"device_id\": \"a\"}')"
    )
    old_snapshot.commit()

    assert found(store) == [1, 2]


def test_a_guard_does_not_overlook_a_message_of_such_a_transaction(
    store: Store, old_snapshot: psycopg.Connection
) -> None:
    store.append(DeviceSeen(device_id="b"))
    old_snapshot.execute(
        "insert into message_store.messages (stream_name, position, type, data)"
        " values ('device-1', 0, 'device.seen', '{\"device_id\": \"a\"}')"
    )
    old_snapshot.commit()
    _, guard = store.read(SEEN)

    assert store.append(DeviceSeen(device_id="a"), guard).position == 3


@pytest.mark.parametrize("count", [1, 2])
def test_a_guard_of_your_own_is_refused_while_such_a_transaction_is_open(
    store: Store, old_snapshot: psycopg.Connection, count: int
) -> None:
    messages = [DeviceSeen(device_id="a") for _ in range(count)]

    with pytest.raises(IndexingUnfinished):
        store.append(messages, Guard(SEEN))  # type: ignore[arg-type]

    old_snapshot.rollback()
    assert found(store) == []


def test_a_group_gets_the_messages_of_such_a_transaction(
    store: Store, old_snapshot: psycopg.Connection
) -> None:
    store.groups.register("group")
    store.append(DeviceSeen(device_id="a"))
    old_snapshot.execute(
        "insert into message_store.messages (stream_name, position, type, data)"
        " values ('device-1', 0, 'device.seen', '{\"device_id\": \"a\"}')"
    )
    old_snapshot.commit()

    assert positions(claim_device(store, types=[DeviceSeen])) == [1, 2]


def test_two_that_declare_different_attributes_at_once_declare_both(
    store: Store, database_url: str
) -> None:
    def declare(name: str) -> None:
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute("select penstock.declare_type('order.placed', %s)", ([name],))

    with psycopg.connect(database_url) as writer:  # so that both come to wait
        writer.execute("lock table message_store.messages in row exclusive mode")
        with ThreadPoolExecutor(2) as threads:
            waiting = [threads.submit(declare, name) for name in ("customer", "product")]
            wait_until_blocked(database_url, 2)
            writer.commit()
        for one in waiting:
            one.result()

    with psycopg.connect(database_url) as connection:
        row = connection.execute("select attributes from penstock.message_types").fetchone()
    assert row == (["customer", "product"],)


@pytest.mark.parametrize("count", [1, 2])
def test_an_append_that_waits_for_its_locks_does_not_miss_a_declaration(
    store: Store, database_url: str, count: int
) -> None:
    with (
        ThreadPoolExecutor(2) as threads,
        psycopg.connect(database_url, autocommit=True) as one,
        psycopg.connect(database_url, autocommit=True) as other,
        psycopg.connect(database_url) as decision,
        store.transaction() as writer,
    ):
        one.execute("select penstock.declare_type('device.seen', '{reading}')")
        decision.execute("select pg_advisory_xact_lock(penstock.key_pair('reading', '7'))")
        appending = threads.submit(
            writer.append,
            [Message("device.seen", {"device_id": "a", "reading": 7}) for _ in range(count)],
        )
        wait_until_blocked(database_url)
        declaring = threads.submit(
            one.execute, "select penstock.declare_type('device.seen', '{device_id}')"
        )
        wait_for_lock_or_end(database_url, declaring, 2)
        decision.commit()
        appending.result()
        writer.connection.execute("select 1")  # and so has no old snapshot any more
        wait_for_lock_or_end(database_url, declaring)
        other.execute("select penstock.fill_attributes('device.seen')")  # what is complete by now
        writer.commit()
        declaring.result()

    assert found(store) == list(range(1, count + 1))


def test_an_attribute_that_is_declared_while_another_is_filled_in_is_filled_in_too(
    store: Store, database_url: str
) -> None:
    store.append([Message("device.seen", {"device_id": "a", "reading": 7})])
    with (
        ThreadPoolExecutor(2) as threads,
        psycopg.connect(database_url) as hindrance,
        psycopg.connect(database_url, autocommit=True) as one,
        psycopg.connect(database_url, autocommit=True) as other,
    ):
        one.execute("select penstock.declare_type('device.seen', '{reading}')")
        hindrance.execute("lock table penstock.message_attributes in share mode")
        filling = threads.submit(one.execute, "select penstock.fill_attributes('device.seen')")
        wait_until_blocked(database_url)
        declaring = threads.submit(
            other.execute, "select penstock.declare_type('device.seen', '{device_id}')"
        )
        wait_for_lock_or_end(database_url, declaring, 2)
        hindrance.commit()
        filling.result()
        declaring.result()

    assert found(store) == [1]


def test_an_attribute_that_is_declared_later_is_filled_in(store: Store, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("select penstock.declare_type('device.seen', '{reading}')")
    store.append([Message("device.seen", {"device_id": "a", "reading": 7})])

    store.declare(DeviceSeen)

    assert found(store) == [1]
    assert len(store.read([QueryCondition("device.seen", "reading", "7")])[0]) == 1


def test_a_message_with_a_null_or_without_the_attribute_is_not_found(store: Store) -> None:
    store.declare(DeviceSeen)

    store.append(
        [
            Message("device.seen", {"device_id": None}),
            Message("device.seen", {}),
            Message("device.seen", {"device_id": "a"}),
        ]
    )

    assert found(store) == [3]


def test_removed_messages_are_forgotten(store: Store, database_url: str) -> None:
    store.append([DeviceSeen(device_id="a"), DeviceSeen(device_id="a")])

    with psycopg.connect(database_url) as connection:
        connection.execute("delete from message_store.messages where global_position = 1")
        rows = connection.execute(
            "select count(*) from penstock.message_attributes"
            " where global_position = 1 and key_pair <> penstock.removal_key()"
        ).fetchone()

    assert rows == (0,)
    assert found(store) == [2]


def test_many_stores_may_declare_at_once(store: Store, database_url: str) -> None:
    def use() -> list[int]:
        with penstock.connect(database_url) as own:
            own.declare(DeviceSeen)
            return found(own)

    store.append(seen())

    assert at_once(*[use] * 4) == [[1]] * 4


def test_what_was_declared_in_a_transaction_that_failed_is_declared_again(
    store: Store, database_url: str
) -> None:
    with psycopg.connect(database_url) as connection:
        store.using(connection).append(DeviceSeen(device_id="a"))
        connection.rollback()

    store.append(DeviceSeen(device_id="a"))

    assert len(found(store)) == 1


def test_the_snapshot_of_another_role_is_waited_for_too(store: Store, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        for role in ("ada", "bob"):
            connection.execute(f"create role {role} login in role message_store")
    ada, bob = (conninfo.make_conninfo(database_url, user=role) for role in ("ada", "bob"))
    try:
        with psycopg.connect(ada) as old:
            old.execute("begin isolation level repeatable read")
            old.execute("select count(*) from message_store.messages")
            with penstock.connect(bob) as other, pytest.raises(IndexingUnfinished):
                other.read(SEEN)
    finally:
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute("drop role ada")
            connection.execute("drop role bob")


def test_what_a_trigger_of_yours_inserts_during_an_append_is_indexed(
    store: Store, database_url: str
) -> None:
    store.declare(DeviceSeen)
    with psycopg.connect(database_url) as connection:
        connection.execute("""
            create function public.echo() returns trigger language plpgsql as $$
            begin
              if new.data ->> 'device_id' <> 'a' then
                insert into message_store.messages (stream_name, position, type, data)
                values ('echo-' || new.id, 0, 'device.seen', '{"device_id": "a"}');
              end if;
              return null;
            end $$;
            create trigger echo after insert on message_store.messages
              for each row execute function public.echo();
        """)

    store.append(DeviceSeen(device_id="b"))
    store.append([DeviceSeen(device_id="c"), DeviceSeen(device_id="d")])

    assert len(found(store)) == 3


def test_a_trigger_of_yours_may_append_during_an_append(store: Store, database_url: str) -> None:
    store.declare(DeviceSeen)
    with psycopg.connect(database_url) as connection:
        connection.execute("""
            create function public.echo() returns trigger language plpgsql as $$
            begin
              if new.data ->> 'device_id' = 'b' then
                perform penstock.append_one(
                  null, gen_random_uuid(), 'device.seen', '{"device_id": "a"}');
                perform penstock.append(null, array[gen_random_uuid()], '{device.seen}',
                  array['{"device_id": "a"}'], '{NULL}');
              end if;
              return new;
            end $$;
            create trigger echo before insert on message_store.messages
              for each row execute function public.echo();
        """)

    store.append(DeviceSeen(device_id="b"))
    store.append([DeviceSeen(device_id="b"), DeviceSeen(device_id="c")])
    store.write_message("device-1", DeviceSeen(device_id="b"))

    assert len(found(store)) == 6
    assert len(store.read(DeviceSeen.to_conditions(device_id="b"))[0]) == 3


def test_a_writer_does_not_wait_while_a_declaration_waits(store: Store, database_url: str) -> None:
    with store.transaction() as writing, ThreadPoolExecutor() as threads:
        writing.write_message("other-1", "Other")
        declaring = threads.submit(store.declare, DeviceSeen)
        wait_until_blocked(database_url)

        store.write_message("other-2", "Other")  # waits behind it for a moment, and not longer

        assert not declaring.done()
        writing.rollback()
        declaring.result()

    assert found(store) == []


async def test_a_class_is_declared_when_a_guard_of_it_is_first_used(
    store: Store, async_store: AsyncStore, new_database: Callable[[str], str]
) -> None:
    guard = Guard(SEEN)  # type: ignore[arg-type]

    assert store.append(Message("other", {}), guard).position == 1
    with penstock.connect(new_database("native")) as fresh, fresh.transaction() as transaction:
        transaction.lock(SEEN)
    assert (await async_store.append(Message("other", {}), guard)).position == 2
    async with async_store.transaction() as in_async:
        await in_async.lock(guard)
