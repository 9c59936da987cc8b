"""Waiters of every kind, with safety looks switched off: a notification wakes them, or a due time.

So each test that passes here without its notification would wait for an hour.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

import penstock
from penstock import (
    AsyncConsumer,
    AsyncDispatcher,
    AsyncWorker,
    Call,
    Consumer,
    Dispatcher,
    FailurePolicy,
    Interceptor,
    Store,
    Worker,
)
from penstock.database.pool_async import AsyncPool
from penstock.database.waiters import EVERYTHING, of_stream
from penstock.database.wake_ups import Pace, WakeUps
from penstock.errors import SessionFenced
from penstock.store_async import AsyncStore
from tests.log.waiting import (
    AN_HOUR,
    AN_HOUR_MS,
    KINDS,
    LONG,
    NEVER,
    Kind,
    Numbered,
    listening,
    looks,
    running,
    store_with,
    wake_ups_of,
)
from tests.racing import pause

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture
def writer(database_url: str) -> Iterator[Store]:
    with penstock.connect(database_url) as store:
        yield store


class AfterEachLook(Interceptor):
    """Calls a function each time a waiter has looked and found nothing."""

    def __init__(self, act: Callable[[], None]) -> None:
        self.act = act

    @contextmanager
    def around(self, call: Call) -> Iterator[None]:
        yield
        if call.name == "poll" and call.result[1] is None:
            self.act()
        if call.name in ("get_category_messages", "claim_next", "claim") and not call.result:
            self.act()


class TestRings:
    def test_a_waiter_gets_what_another_process_writes(
        self, kind: Kind, database_url: str, writer: Store
    ) -> None:
        with store_with(database_url, NEVER) as store, running(kind, store) as waiter:
            listening(store)
            for number in range(5):
                kind.write(writer, number)

                assert waiter.next() == number

    def test_a_commit_between_the_look_and_the_sleep_is_not_missed(
        self, kind: Kind, database_url: str
    ) -> None:
        written: list[int] = []

        def write() -> None:
            if len(written) < 3:
                written.append(len(written))
                kind.write(store, written[-1])

        hook = AfterEachLook(write)
        with store_with(database_url, NEVER, [hook]) as store, running(kind, store) as waiter:
            for number in range(3):
                wake_ups_of(store).waiters.notify([EVERYTHING])  # it looks, in vain

                assert waiter.next() == number

    def test_a_rollback_wakes_nobody_and_loses_nothing(
        self, kind: Kind, database_url: str, writer: Store
    ) -> None:
        with store_with(database_url, NEVER) as store, running(kind, store) as waiter:
            listening(store)
            transaction: Any = writer.begin_transaction()
            kind.write(transaction, 1)
            transaction.rollback()
            kind.write(writer, 2)

            assert waiter.next() == 2

    @pytest.mark.parametrize("name", ["consumer", "worker", "follower"])
    @pytest.mark.parametrize("end", ["commit", "rollback"])
    def test_what_an_open_writer_held_back_is_found_when_that_ends(
        self, name: str, end: str, database_url: str, writer: Store
    ) -> None:
        kind = KINDS[name]
        kind.write(writer, 0)
        with (
            store_with(database_url, NEVER) as store,
            running(kind, store) as waiter,
            psycopg.connect(database_url) as late,
        ):
            assert waiter.next() == 0
            listening(store)
            late.execute("select message_store.write_message(%s, 'other-1', 'T', '{}')", (
                "9b5f8a39-7a3a-4d1a-9d3c-0d2a0a7c7f10",))  # fmt: skip
            kind.write(writer, 1)
            held_back = waiter.is_empty

            getattr(late, end)()

            assert held_back
            assert waiter.next() == 1

    def test_each_of_several_idle_workers_gets_a_partition(
        self, database_url: str, writer: Store
    ) -> None:
        both = threading.Barrier(2)
        handled: list[str] = []

        def handle(claim: Any) -> None:
            both.wait(LONG)  # returns when the other worker has a partition too
            handled.append(claim.partition_key)

        with store_with(database_url, NEVER) as store:
            workers = [
                Worker(
                    store,
                    "waiting",
                    handle,
                    partition_by="number",
                    handled_types=[Numbered],
                    polling_interval_ms=AN_HOUR_MS,
                )
                for _ in range(2)
            ]
            threads = [threading.Thread(target=one.run) for one in workers]
            for thread in threads:
                thread.start()
            listening(store)

            writer.append([Numbered(number="1"), Numbered(number="2")])
            while len(handled) < 2 and not both.broken:
                threading.Event().wait(0.01)
            for worker, thread in zip(workers, threads, strict=True):
                worker.stop()
                thread.join(LONG)

        assert sorted(handled) == ["number:1", "number:2"]

    def test_async_waiters_get_what_another_process_writes(
        self, database_url: str, writer: Store
    ) -> None:
        with penstock.connect(database_url) as first:
            context = first.context
        pool = AsyncPool(writer.settings, context.edition)
        pool.wake_ups = WakeUps(writer.settings, context.edition, NEVER)

        got = asyncio.run(_all_kinds(AsyncStore(pool, context, lambda: None), writer))

        assert got == {name: [0, 1, 2] for name in KINDS}


async def _all_kinds(store: AsyncStore, writer: Store) -> dict[str, list[int]]:
    """Run one waiter of each kind, and return what they got of three messages each."""
    got: dict[str, list[int]] = {name: [] for name in KINDS}
    changed = asyncio.Event()

    def take(name: str, number: int) -> None:
        got[name].append(number)
        changed.set()

    consumer = AsyncConsumer(
        store, "order", "c", polling_interval_ms=AN_HOUR_MS, idle_save_delay=AN_HOUR,
        handlers={"Placed": lambda message: take("consumer", message.data["number"])},
    )  # fmt: skip

    def handle(claim: Any) -> None:
        for message in claim.messages:
            take("worker", int(message.data["number"]))

    worker = AsyncWorker(
        store, "g", handle, partition_by="number", handled_types=[Numbered],
        polling_interval_ms=AN_HOUR_MS,
    )  # fmt: skip
    dispatcher = AsyncDispatcher(store, polling_interval_ms=AN_HOUR_MS, lease=AN_HOUR)
    dispatcher.handler("mail")(lambda message: take("dispatcher", message.payload["number"]))
    session = await store.queue("orders").create_consumer("s")

    async def poll() -> None:
        while (record := await session.poll(AN_HOUR)) is not None:
            take("session", record.value)

    async def follow() -> None:
        async for message in store.follow_category("order", polling_interval_ms=AN_HOUR_MS):
            take("follower", message.data["number"])

    running = [
        asyncio.ensure_future(one)
        for one in (consumer.run(), worker.run(), dispatcher.run(), poll(), follow())
    ]
    async with asyncio.timeout(LONG):
        for number in range(3):
            for kind in KINDS.values():
                if kind.name != "follower":  # it reads what the consumer reads
                    await asyncio.to_thread(kind.write, writer, number)
            while any(len(numbers) <= number for numbers in got.values()):
                changed.clear()
                await changed.wait()
    consumer.stop()
    worker.stop()
    dispatcher.stop()
    await asyncio.gather(*running[:3])
    for one in running[3:]:
        one.cancel()
    await asyncio.gather(*running[3:], return_exceptions=True)
    await store.close()
    return got


class TestDueTimes:
    def test_a_dispatcher_wakes_when_a_message_becomes_due(
        self, database_url: str, writer: Store
    ) -> None:
        kind = KINDS["dispatcher"]
        with store_with(database_url, NEVER) as store, running(kind, store) as waiter:
            listening(store)
            due = datetime.now(UTC) + timedelta(seconds=0.3)
            writer.outbox.enqueue("mail", {"number": 7}, due=due)

            assert waiter.next() == 7

    def test_and_when_the_lease_of_another_ends(self, database_url: str, writer: Store) -> None:
        kind = KINDS["dispatcher"]
        writer.outbox.enqueue("mail", {"number": 7})
        writer.outbox.claim("one that died", lease=0.5)
        with store_with(database_url, NEVER) as store, running(kind, store) as waiter:
            assert waiter.next() == 7

    def test_a_worker_wakes_when_a_delay_ends(self, database_url: str, writer: Store) -> None:
        attempts: list[int] = []

        def handle(claim: Any) -> None:
            attempts.append(claim.attempts)
            if len(attempts) < 3:
                raise RuntimeError("not yet")
            worker.stop()

        with store_with(database_url, NEVER) as store:
            worker = Worker(
                store,
                "waiting",
                handle,
                partition_by="number",
                handled_types=[Numbered],
                polling_interval_ms=AN_HOUR_MS,
                on_failure=FailurePolicy.park(attempts=5, delay=0.2, longest_delay=0.2),
            )
            writer.append(Numbered(number="1"))
            worker.run()

        assert attempts == [1, 2, 3]

    def test_a_consumer_saves_its_position_when_nothing_comes(
        self, database_url: str, writer: Store
    ) -> None:
        with store_with(database_url, NEVER) as store:
            consumer = Consumer(
                store, "order", "saver", polling_interval_ms=AN_HOUR_MS, idle_save_delay=0.2
            )
            consumer.handler("Placed")(lambda message: None)
            thread = threading.Thread(target=consumer.run)
            thread.start()
            listening(store)
            writer.write_message("order-1", "Placed")
            saved = next(store.follow_category("order:position"))
            consumer.stop()
            thread.join(LONG)

        assert saved.data["position"] == 1

    def test_a_retry_of_a_parked_message_is_not_overslept(
        self, database_url: str, writer: Store
    ) -> None:
        handled = threading.Event()
        broken = [True]

        def handle(message: Any) -> None:
            if broken.pop() if broken else False:
                raise RuntimeError("not yet")
            handled.set()

        with store_with(database_url, NEVER) as store:
            consumer = Consumer(
                store,
                "order",
                "parker",
                handlers={"Placed": handle},
                polling_interval_ms=AN_HOUR_MS,
                on_failure=FailurePolicy.park(attempts=1),
            )
            thread = threading.Thread(target=consumer.run)
            thread.start()
            listening(store)
            writer.write_message("order-1", "Placed")
            next(store.follow_category("order:parked"))
            writer.admin.retry_parked("order", "parker", 1)

            assert handled.wait(LONG)
            consumer.stop()
            thread.join(LONG)


class TestFenced:
    @pytest.mark.parametrize("fence", ["open", "seek", "remove"])
    def test_a_session_that_waits_learns_it(
        self, database_url: str, writer: Store, fence: str
    ) -> None:
        with store_with(database_url, NEVER) as store, ThreadPoolExecutor(1) as thread:
            listening(store)
            session = store.queue("orders").create_consumer("waiting")
            polling = thread.submit(session.poll, AN_HOUR)
            wait_until_asleep(store, of_stream("queue-orders"))
            if fence == "open":
                writer.queue("orders").create_consumer("waiting")
            elif fence == "seek":
                writer.admin.seek_session("orders", "waiting", 0)
            else:
                writer.admin.remove_session("orders", "waiting")

            with pytest.raises(SessionFenced):
                polling.result(LONG)


def wait_until_asleep(store: Store, name: str) -> None:
    """Return when somebody waits for this name: what comes from now on wakes it."""
    while not any(name in one.wanted for one in wake_ups_of(store).waiters._all):
        pause()


class TestIdle:
    def test_waiters_ask_nothing_while_nothing_happens(self, database_url: str) -> None:
        asked: list[str] = []

        class Count(Interceptor):
            @contextmanager
            def around(self, call: Call) -> Iterator[None]:
                asked.append(call.name)
                yield

        with store_with(database_url, Pace(look=0.2, patience=60), [Count()]) as store:
            waiters = [running(kind, store) for kind in KINDS.values()]
            for one in waiters:
                one.__enter__()
            listening(store)
            before, after = -1, 0
            for _ in range(10):  # until all sleep, and the server has nothing of its own to commit
                before = len(asked)
                looks(store, 5)
                after = len(asked)
                if after == before:
                    break
            for one in waiters:
                one.__exit__(None, None, None)

        assert after == before

    def test_a_dispatcher_without_wake_ups_polls(self, database_url: str) -> None:
        with penstock.connect(database_url, wake_up=False) as store:
            dispatcher = Dispatcher(store, polling_interval_ms=1)

            @dispatcher.handler("mail")
            def stop(message: Any) -> None:
                dispatcher.stop()

            thread = threading.Thread(target=dispatcher.run)
            thread.start()
            store.outbox.enqueue("mail")
            thread.join(LONG)

            assert not thread.is_alive()
