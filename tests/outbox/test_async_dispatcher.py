"""Async dispatchers: they share the loop of the application, and can be cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress

import pytest

import penstock
from penstock import (
    AsyncDispatcher,
    AsyncStore,
    Call,
    ClaimedMessage,
    FailurePolicy,
    Interceptor,
    MappedStores,
    NewMessage,
)

TIMEOUT = 30


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[AsyncStore]:
    async with await penstock.connect_async(database_url) as store:
        yield store


async def states(store: AsyncStore) -> list[str]:
    return [one.state for one in await store.outbox.list()]


async def cancelled(task: asyncio.Task[None]) -> bool:
    """Cancel a task, wait until it has ended, and return whether it says that it was cancelled."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await asyncio.wait_for(task, TIMEOUT)
    return task.cancelled()


class TestLoop:
    async def test_handlers_run_on_the_loop_of_the_application_and_use_its_store(
        self, store: AsyncStore
    ) -> None:
        dispatcher, loops = AsyncDispatcher(store), list[asyncio.AbstractEventLoop]()

        @dispatcher.handler("order")
        async def handle(message: ClaimedMessage) -> None:
            loops.append(asyncio.get_running_loop())
            async with store.transaction() as transaction:
                await transaction.write_message("order-1", "Placed")
                await transaction.outbox.enqueue("mail")

        @dispatcher.handler("mail")
        def plain(message: ClaimedMessage) -> None:
            loops.append(asyncio.get_running_loop())

        await store.outbox.enqueue("order")
        await dispatcher.run_until_idle()

        assert loops == [asyncio.get_running_loop()] * 2
        assert await store.stream_version("order-1") == 0
        assert await states(store) == ["done", "done"]

    async def test_it_runs_beside_other_tasks_until_it_is_stopped(self, store: AsyncStore) -> None:
        dispatcher, handled = AsyncDispatcher(store, polling_interval_ms=10_000), asyncio.Event()

        @dispatcher.handler("mail")
        async def handle(message: ClaimedMessage) -> None:
            handled.set()

        await store.outbox.enqueue("mail")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(dispatcher.run())
            await asyncio.wait_for(handled.wait(), TIMEOUT)
            dispatcher.stop()

        assert await states(store) == ["done"]

    async def test_another_thread_may_stop_it(self, store: AsyncStore) -> None:
        dispatcher, handled = AsyncDispatcher(store, polling_interval_ms=60_000), asyncio.Event()

        @dispatcher.handler("mail")
        async def handle(message: ClaimedMessage) -> None:
            handled.set()

        await store.outbox.enqueue("mail")
        running = asyncio.create_task(dispatcher.run())
        await asyncio.wait_for(handled.wait(), TIMEOUT)
        threading.Thread(target=dispatcher.stop).start()

        await asyncio.wait_for(running, TIMEOUT)

    async def test_it_may_run_on_one_loop_after_another(self, database_url: str) -> None:
        def run_on_a_loop_of_its_own(number: int) -> int:
            return asyncio.run(self._handle_one(database_url, number))

        handled = [await asyncio.to_thread(run_on_a_loop_of_its_own, n) for n in range(2)]

        assert handled == [1, 1]

    async def _handle_one(self, url: str, number: int) -> int:
        async with await penstock.connect_async(url) as store:
            dispatcher = AsyncDispatcher(store)
            dispatcher.handler("mail")(lambda message: None)
            await store.outbox.enqueue("mail", number)
            return await dispatcher.run_until_idle()


class TestCancel:
    async def test_running_handlers_are_cancelled_and_all_messages_go_back(
        self, store: AsyncStore
    ) -> None:
        dispatcher, begun = AsyncDispatcher(store, concurrency=2), asyncio.Semaphore(0)
        ended: list[object] = []

        @dispatcher.handler("mail")
        async def handle(message: ClaimedMessage) -> None:
            if message.payload == "quick":
                return
            begun.release()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(message.payload)

        await store.outbox.enqueue_many([NewMessage("mail", "quick")] * 100)
        await dispatcher.run_until_idle()  # it learns that its handlers are quick
        await store.outbox.clean_up(0)
        await store.outbox.enqueue_many([NewMessage("mail", n) for n in range(5)])
        running = asyncio.create_task(dispatcher.run())
        for _ in range(2):
            await asyncio.wait_for(begun.acquire(), TIMEOUT)

        assert await cancelled(running)
        assert len(ended) == 2
        found = await store.outbox.list()
        assert {(one.state, one.attempts) for one in found} == {("ready", 0)}

    async def test_a_handler_that_returns_all_the_same_has_handled_its_message(
        self, store: AsyncStore
    ) -> None:
        dispatcher, begun = AsyncDispatcher(store), asyncio.Event()

        @dispatcher.handler("mail")
        async def handle(message: ClaimedMessage) -> None:
            begun.set()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

        await store.outbox.enqueue("mail")
        running = asyncio.create_task(dispatcher.run())
        await asyncio.wait_for(begun.wait(), TIMEOUT)

        assert await cancelled(running)
        assert await states(store) == ["done"]

    async def test_an_error_of_a_cancelled_handler_uses_up_no_attempt(
        self, store: AsyncStore
    ) -> None:
        once = FailurePolicy.retry(attempts=1)
        dispatcher, begun = AsyncDispatcher(store, on_failure=once), asyncio.Event()

        @dispatcher.handler("mail")
        async def handle(message: ClaimedMessage) -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise RuntimeError("the line was cut") from None

        await store.outbox.enqueue("mail")
        running = asyncio.create_task(dispatcher.run())
        await asyncio.wait_for(begun.wait(), TIMEOUT)

        assert await cancelled(running)
        [message] = await store.outbox.list()
        assert (message.state, message.attempts, message.last_error) == ("ready", 0, None)

    async def test_what_is_claimed_at_this_moment_goes_back(self, database_url: str) -> None:
        cancelling = Cancelling()
        async with await penstock.connect_async(database_url, interceptors=[cancelling]) as store:
            dispatcher, handled = AsyncDispatcher(store), list[object]()
            dispatcher.handler("mail")(lambda message: handled.append(message.payload))
            await store.outbox.enqueue_many([NewMessage("mail", n) for n in range(3)])
            running = cancelling.task = asyncio.create_task(dispatcher.run())

            await asyncio.wait([running], timeout=TIMEOUT)

            found = await store.outbox.list()
        assert running.cancelled()
        assert handled == []
        assert {(one.state, one.attempts) for one in found} == {("ready", 0)}

    async def test_a_cancelled_dispatcher_can_run_again(self, store: AsyncStore) -> None:
        dispatcher, begun = AsyncDispatcher(store), asyncio.Event()

        @dispatcher.handler("mail")
        async def handle(message: ClaimedMessage) -> None:
            if not begun.is_set():
                begun.set()
                await asyncio.Event().wait()

        await store.outbox.enqueue("mail")
        running = asyncio.create_task(dispatcher.run())
        await asyncio.wait_for(begun.wait(), TIMEOUT)
        await cancelled(running)

        handled = await asyncio.wait_for(dispatcher.run_until_idle(), TIMEOUT)

        assert handled == 1
        assert await states(store) == ["done"]

    async def test_a_timeout_cancels_the_loops_of_all_stores(
        self, store: AsyncStore, database_url: str
    ) -> None:
        async with await penstock.connect_async(database_url) as other:
            provider = MappedStores({"one": store, "two": other}, lambda key: key)
            dispatcher, begun = AsyncDispatcher(provider, concurrency=1), asyncio.Semaphore(0)

            @dispatcher.handler("mail")
            async def handle(message: ClaimedMessage) -> None:
                begun.release()
                await asyncio.Event().wait()

            await store.outbox.enqueue_many([NewMessage("mail")] * 2)

            async def run_until_both_have_begun() -> None:
                async with asyncio.timeout(None) as limit:
                    asyncio.get_running_loop().create_task(self._expire(limit, begun))
                    await dispatcher.run()

            with pytest.raises(TimeoutError):
                await asyncio.wait_for(run_until_both_have_begun(), TIMEOUT)

        assert await states(store) == ["ready", "ready"]

    async def _expire(self, limit: asyncio.Timeout, begun: asyncio.Semaphore) -> None:
        for _ in range(2):
            await begun.acquire()
        limit.reschedule(asyncio.get_running_loop().time())

    async def test_a_second_cancellation_cancels_the_handlers_again(
        self, store: AsyncStore
    ) -> None:
        dispatcher, begun = AsyncDispatcher(store), asyncio.Event()
        refused = asyncio.Semaphore(0)

        @dispatcher.handler("mail")
        async def handle(message: ClaimedMessage) -> None:
            begun.set()
            for _ in range(2):
                with suppress(asyncio.CancelledError):
                    await asyncio.Event().wait()
                refused.release()

        await store.outbox.enqueue("mail")
        running = asyncio.create_task(dispatcher.run())
        await asyncio.wait_for(begun.wait(), TIMEOUT)
        running.cancel()
        await asyncio.wait_for(refused.acquire(), TIMEOUT)

        assert await cancelled(running)


class Cancelling(Interceptor):
    """Cancels a task while it claims messages."""

    task: asyncio.Task[None] | None = None

    @contextmanager
    def around(self, call: Call) -> Iterator[None]:
        if call.name == "claim" and self.task is not None:
            self.task.cancel()
            self.task = None
        yield
