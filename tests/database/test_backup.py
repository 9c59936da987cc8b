"""A dump, restored as docs/operations.md says, goes on where the original was."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import psycopg

import penstock
from penstock import Claim, Consumer, RecordedMessage, Store, TypedMessage
from penstock.database.cluster import binaries


class SeatTaken(TypedMessage, type="operations.seat_taken"):
    show: str


def claim(store: Store) -> Claim | None:
    return store.groups.claim_next("group", partition_by="show", handled_types=[SeatTaken])


def unhandled(store: Store) -> list[RecordedMessage]:
    """Handle the orders that the consumer has not handled before, and return them."""
    orders: list[RecordedMessage] = []
    consumer = Consumer(store, "order", "mailer", positions="table")
    consumer.handler("Placed")(orders.append)
    consumer.run_once()
    return orders


def fill(store: Store) -> None:
    """Leave something of every kind behind, half of it handled."""
    store.append([SeatTaken(show=show) for show in ("Hamlet", "Macbeth")])
    store.write_message("order-1", "Placed")
    unhandled(store)
    store.write_message("order-2", "Placed")
    store.groups.register("group")
    first = claim(store)
    assert first is not None
    store.groups.ack(first)
    store.queue("mails").offer_many(["first", "second"])
    store.queue("mails").create_consumer("sender").poll()
    store.outbox.enqueue("mail", "to ada")


def dump_and_restore(source: str, target: str, file: Path, *options: str) -> None:
    programs = binaries(18)
    subprocess.run([programs / "pg_dump", "--format=custom", f"--file={file}", source], check=True)
    subprocess.run(
        [programs / "pg_restore", "--exit-on-error", *options, f"--dbname={target}", file],
        check=True,
    )


def test_a_restored_dump_goes_on_where_it_was(
    new_database: Callable[[str], str], tmp_path: Path
) -> None:
    source, target = new_database("penstock"), new_database("empty")
    with penstock.connect(source) as store:
        fill(store)
        guard = store.read(SeatTaken.to_conditions(show="Hamlet"))[1]
        with store.transaction() as open_writer:
            open_writer.write_message("order-3", "Placed")  # not committed: not in the dump
            store.write_message("order-4", "Placed")
            head = store.status().head
            dump_and_restore(source, target, tmp_path / "dump")

    with penstock.connect(target) as store:
        assert not penstock.install(target, check=True).needed
        assert store.status().watermark == store.status().head == head
        assert [one.stream_name for one in unhandled(store)] == ["order-2", "order-4"]
        second, record = claim(store), store.queue("mails").create_consumer("sender").poll()
        assert second is not None
        assert record is not None
        assert (second.partition_key, record.value) == ("show:Macbeth", "second")
        assert [one.payload for one in store.outbox.claim("me")] == ["to ada"]
        assert store.append(SeatTaken(show="Hamlet"), guard).position > head


def test_rights_that_were_not_restored_are_given_by_init(
    new_database: Callable[[str], str], tmp_path: Path
) -> None:
    source, target = new_database("penstock"), new_database("empty")
    dump_and_restore(source, target, tmp_path / "dump", "--no-privileges")

    done = penstock.install(target)
    again = penstock.install(target)

    assert done.needed
    assert done.actions == ("grant privileges to message_store and penstock_reader",)
    assert not again.needed
    with penstock.connect(target, user="message_store") as store:
        store.write_message("account-1", "Opened")
    with psycopg.connect(target) as connection:
        connection.execute("set role penstock_reader")
        assert len(connection.execute("table message_store.messages").fetchall()) == 1
