"""An operator removes a consumer: no trace is left, and a running one learns it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import LiteralString

import psycopg
import pytest

import penstock
from penstock import FailurePolicy, RecordedMessage, Store
from penstock.errors import PositionConflict, UnsupportedEdition, ValidationError
from tests.consumers.consuming import Numbers, consume, fill, new_consumer
from tests.racing import wait_until_it_waits

KEPT_IN = pytest.mark.parametrize("positions", ["stream", "table", "hybrid"])


@KEPT_IN
def test_its_position_is_gone_wherever_it_was_kept(store: Store, positions: str) -> None:
    fill(store, "order", 30)
    consume(store, "order", positions=positions, batch_size=2, position_update_interval=1)

    store.admin.remove_consumer("order", "mailer")

    assert store.admin.consumers() == []
    assert store.get_stream_messages("order:position-mailer") == []
    assert consume(store, "order", positions=positions) == list(range(30))


@KEPT_IN
def test_it_does_not_hold_retention_back(store: Store, positions: str) -> None:
    fill(store, "order", 4, streams=1)
    store.admin.seek("order", "mailer", 0, positions)
    held = store.admin.retain("order", keep_count=1)

    store.admin.remove_consumer("order", "mailer")

    assert held.removed == 0
    assert store.admin.retain("order", keep_count=1).removed == 3


@KEPT_IN
def test_one_that_runs_gets_an_error_and_does_not_come_back(store: Store, positions: str) -> None:
    fill(store, "order", 2)
    consumer = new_consumer(store, "order", handlers={"Placed": Numbers()}, positions=positions)
    consumer.run_once()
    fill(store, "order", 1)

    store.admin.remove_consumer("order", "mailer")

    with pytest.raises(PositionConflict, match="penstock consumers remove"):
        consumer.run_once()
    assert store.admin.consumers() == []


SAVES: dict[str, LiteralString] = {
    "stream": "select message_store.write_message(gen_random_uuid()::varchar,"
    " 'order:position-mailer', 'PositionUpdated', '{\"position\": 2}')",
    "table": "select penstock.save_position('order-mailer', 2, 1, gen_random_uuid())",
}


@pytest.mark.parametrize("positions", SAVES)
def test_a_save_under_way_is_removed_with_the_rest(
    store: Store, database_url: str, positions: str
) -> None:
    fill(store, "order", 2)
    store.admin.seek("order", "mailer", 1, positions)
    with psycopg.connect(database_url) as saving, ThreadPoolExecutor(1) as threads:
        saving.execute(SAVES[positions])
        removal = threads.submit(store.admin.remove_consumer, "order", "mailer")
        wait_until_it_waits(database_url, removal)
        saving.commit()
        removal.result()

    assert store.admin.consumers() == []


def test_its_parked_messages_are_removed(store: Store) -> None:
    def fail(message: RecordedMessage) -> None:
        raise RuntimeError("no")

    fill(store, "order", 3)
    policy = FailurePolicy.park(attempts=1)
    new_consumer(store, "order", handlers={"Placed": fail}, on_failure=policy).run_once()
    parked = len(store.admin.parked("order", "mailer"))

    store.admin.remove_consumer("order", "mailer")

    assert (parked, store.admin.parked("order", "mailer")) == (3, [])


def test_the_others_stay(store: Store) -> None:
    fill(store, "order", 2)
    for category, consumer_id in (("order", "mailer"), ("order", "mail"), ("$all", "mailer")):
        for kept_in in ("stream", "table"):
            store.admin.seek(category, f"{consumer_id}.{kept_in}", 1, kept_in)

    store.admin.remove_consumer("order", "mailer.stream")
    store.admin.remove_consumer("order", "mailer.table")

    left = [(one.category, one.consumer_id) for one in store.admin.consumers()]
    assert sorted(left) == [
        ("$all", "mailer.stream"),
        ("$all", "mailer.table"),
        ("order", "mail.stream"),
        ("order", "mail.table"),
    ]


def test_what_a_reader_of_the_whole_log_read_of_it_is_no_other_log(store: Store) -> None:
    fill(store, "order", 2)
    consume(store, "order")
    *_, last = store.read_category("$all")
    store.admin.remove_consumer("order", "mailer")
    fill(store, "order", 1)

    found = store.get_category_messages("$all", after=last.resume_token)

    assert [one.stream_name for one in found] == ["order-0"]


@pytest.mark.parametrize(
    "wrong", [("order", "mialer"), ("invoice", "mailer"), ("order-1", "mailer"), ("order", "")]
)
def test_an_unknown_one_is_refused(store: Store, wrong: tuple[str, str]) -> None:
    store.admin.seek("order", "mailer", 0)

    with pytest.raises(ValidationError):
        store.admin.remove_consumer(*wrong)

    assert len(store.admin.consumers()) == 1


@pytest.mark.parametrize("role", ["message_store", "penstock_reader"])
def test_only_the_owner_may(store: Store, database_url: str, role: str) -> None:
    store.admin.seek("order", "mailer", 0)

    with psycopg.connect(database_url) as connection:
        connection.execute(f"set role {role}".encode())
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("select penstock.remove_consumer('order', 'mailer')")


def test_message_db_alone_cannot(new_database: Callable[[str], str]) -> None:
    with penstock.connect(new_database("genuine")) as store, pytest.raises(UnsupportedEdition):
        store.admin.remove_consumer("order", "mailer")


def test_a_long_stream_of_positions_is_shortened_first(store: Store, database_url: str) -> None:
    fill(store, "order", 1)
    for _ in range(5):
        store.admin.seek("order", "mailer", 1)

    store.admin.remove_consumer("order", "mailer")

    with psycopg.connect(database_url) as connection:
        removals = connection.execute("select message_count from penstock.retentions order by id")
        assert removals.fetchall() == [(4,), (1,)]
