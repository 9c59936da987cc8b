"""Servers that are restarted and crash while somebody waits, or reads from the replica."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import Queue

import psycopg
import pytest

import penstock
from penstock import Consumer, Store
from tests.log.test_watermark_faults import copy_data
from tests.servers import OwnServer, own_folder, own_server
from tests.standby import SETTINGS

Fault = Callable[[OwnServer], None]
every_fault = pytest.mark.parametrize(
    "fault", [OwnServer.restart, OwnServer.crash], ids=["restart", "crash"]
)


@pytest.fixture(scope="module")
def primary() -> Iterator[OwnServer]:
    with own_server(SETTINGS) as server:
        yield server


@pytest.fixture
def standby(primary: OwnServer) -> Iterator[OwnServer]:
    with own_folder() as folder:
        with psycopg.connect(primary.url, autocommit=True) as connection:
            copy_data(connection, primary.folder / "data", folder / "s" / "data")
        server = OwnServer(folder / "s", SETTINGS)
        yield server
        server.stop()


def billing(store: Store, category: str, handled: Queue[int]) -> Consumer:
    return Consumer(
        store,
        category,
        "billing",
        handlers={"Placed": lambda message: handled.put(message.data["number"])},
        positions="table",
        polling_interval_ms=10,
    )


def test_readers_of_a_replica_miss_nothing_whichever_server_is_restarted(
    primary: OwnServer, standby: OwnServer
) -> None:
    handled: Queue[int] = Queue()
    with (
        penstock.connect(primary.url, replica=standby.url) as store,
        ThreadPoolExecutor(1) as threads,
    ):
        consumer = billing(store, "order", handled)
        running = threads.submit(consumer.run)
        try:
            for number, restart in enumerate(
                [standby.restart, primary.restart, standby.crash, primary.crash, None]
            ):
                for each in range(3):
                    store.write_message(f"order-{each}", "Placed", {"number": 3 * number + each})
                if restart is not None:
                    restart()

            assert [handled.get(timeout=30) for _ in range(15)] == list(range(15))
        finally:
            consumer.stop()
            running.result()
        assert handled.empty()


@every_fault
def test_who_waits_for_a_consumer_goes_on_after(primary: OwnServer, fault: Fault) -> None:
    handled: Queue[int] = Queue()
    category = f"paid{fault.__name__}"
    with penstock.connect(primary.url) as store, ThreadPoolExecutor(2) as threads:
        consumer = billing(store, category, handled)
        store.write_message(f"{category}-1", "Placed", {"number": 0})
        consumer.run_until_idle()
        position = store.write_message(
            f"{category}-1", "Placed", {"number": 1}, returning="global_position"
        )
        waiting = threads.submit(store.wait_until, "billing", position, category=category)

        fault(primary)
        was_done = waiting.done()
        consumer.run_until_idle()

        assert waiting.result() is None
        assert not was_done
        assert [handled.get(), handled.get(), handled.empty()] == [0, 1, True]


@every_fault
def test_who_waits_for_an_outbox_message_goes_on_after(primary: OwnServer, fault: Fault) -> None:
    with penstock.connect(primary.url) as store, ThreadPoolExecutor(1) as threads:
        id = store.outbox.enqueue("mail", "hello")
        waiting = threads.submit(store.wait_until, outbox=id)

        fault(primary)
        was_done = waiting.done()
        [message] = store.outbox.claim("me")
        store.outbox.ack(message)

        assert waiting.result() == "done"
        assert not was_done
