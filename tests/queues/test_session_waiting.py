"""Polls that wait for a record, and concurrent use of a session."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

import penstock
from penstock import Call, CommitMode, ConsumerSession, Interceptor, Store
from penstock.errors import SessionClosed, SessionInUse
from penstock.queues.session_state import LONGEST_PAUSE, SHORTEST_PAUSE, pauses
from tests.both_ways import Way


class AfterEachLook(Interceptor):
    """Calls a function each time a session has looked for a record."""

    def __init__(self, act: Callable[[], None]) -> None:
        self.act = act

    @contextmanager
    def around(self, call: Call) -> Iterator[None]:
        yield
        if call.name == "poll":
            self.act()


class TestWaiting:
    def test_returns_none_when_time_is_up(self, queue: Any, mode: CommitMode) -> None:
        session = queue.create_consumer("worker", mode)

        assert session.poll(0) is None
        assert session.poll(0.005) is None
        assert session.poll(timedelta(milliseconds=5)) is None

    def test_returns_at_once_what_is_there(self, queue: Any) -> None:
        queue.offer("a")

        assert queue.create_consumer("worker").poll(3600).value == "a"

    def test_returns_a_record_that_comes_meanwhile(
        self, way: Way, shared_url: str, shared_stores: dict[bool, Store]
    ) -> None:
        name = f"orders-{uuid4()}"
        looks: list[int] = []

        def offer_after_the_third() -> None:
            looks.append(len(looks))
            if len(looks) == 3:
                shared_stores[False].queue(name).offer("a")

        with way.connect(shared_url, interceptors=[AfterEachLook(offer_after_the_third)]) as store:
            record = store.queue(name).create_consumer("worker").poll(3600)

        assert record is not None
        assert (record.value, len(looks)) == ("a", 4)

    def test_pauses_grow_to_a_limit_and_end_with_the_time(self) -> None:
        waits = pauses(time.monotonic() + 3600)

        first = [next(waits) for _ in range(10)]

        assert first[0] == SHORTEST_PAUSE
        assert first == sorted(first)
        assert first[-1] == LONGEST_PAUSE
        assert list(pauses(time.monotonic())) == []


class TestClosing:
    def test_ends_a_wait_in_another_thread_or_task(self, way: Way, shared_url: str) -> None:
        looked = threading.Event()
        with way.connect(shared_url, interceptors=[AfterEachLook(looked.set)]) as store:
            session = store.queue(f"orders-{uuid4()}").create_consumer("worker")
            with ThreadPoolExecutor(1) as threads:
                waiting = threads.submit(session.poll, 3600)
                looked.wait()

                session.close()

                assert isinstance(waiting.exception(), SessionClosed)


class TestOneAtATime:
    @pytest.mark.parametrize(
        "call",
        [
            lambda session: session.poll(),
            lambda session: session.commit(),
            lambda session: session.seek(0),
            lambda session: session.skip(),
            lambda session: session.committed_offset(),
        ],
        ids=["poll", "commit", "seek", "skip", "committed_offset"],
    )
    def test_a_second_thread_is_refused(
        self, shared_url: str, call: Callable[[ConsumerSession], Any]
    ) -> None:
        inside, go_on = threading.Event(), threading.Event()

        def hold() -> None:
            inside.set()
            go_on.wait()

        with penstock.connect(shared_url, interceptors=[AfterEachLook(hold)]) as store:
            session = store.queue(f"orders-{uuid4()}").create_consumer("worker")
            with ThreadPoolExecutor(1) as threads:
                first = threads.submit(session.poll)
                inside.wait()

                with pytest.raises(SessionInUse) as error:
                    call(session)

                go_on.set()
                assert first.result() is None
        assert error.value.consumer_id == "worker"

    async def test_a_second_task_is_refused(self, shared_url: str) -> None:
        async with await penstock.connect_async(shared_url) as store:
            session = await store.queue(f"orders-{uuid4()}").create_consumer("worker")

            outcomes = await asyncio.gather(session.poll(), session.poll(), return_exceptions=True)

            assert outcomes[0] is None
            assert isinstance(outcomes[1], SessionInUse)

    def test_one_after_the_other_may_use_it(self, queue: Any) -> None:
        queue.offer_many(["a", "b"])
        session = queue.create_consumer("worker")

        session.poll()

        assert session.poll().value == "b"


class TestCancelling:
    @pytest.mark.parametrize("mode", CommitMode)
    async def test_a_cancelled_poll_loses_nothing(self, shared_url: str, mode: CommitMode) -> None:
        async with await penstock.connect_async(shared_url) as store:
            queue = store.queue(f"orders-{uuid4()}")
            session = await queue.create_consumer("worker", mode)
            polling = asyncio.create_task(session.poll(3600))
            await asyncio.sleep(0)
            polling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await polling
            await queue.offer("a")

            record = await session.poll()

            assert record is not None
            assert record.value == "a"
