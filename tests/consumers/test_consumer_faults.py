"""Consumers killed at random, crashed at the worst moment, asked to end, without a database."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from threading import Event, Thread
from typing import Any

import pytest

from penstock import RecordedMessage, Store
from penstock.loops.concurrency import Handlers
from penstock.loops.signals import StopEvent, stopping_loop_on_signals, stopping_on_signals
from tests.both_ways import Way
from tests.consumers.consuming import fill, new_category, new_consumer
from tests.log_output import logged
from tests.servers import OwnServer, own_server

SCRIPT = "tests.consumers.consumer_process"
KILLS = 9  # for each of six kinds of consumers
MESSAGES = 120
both_ways = pytest.mark.parametrize("is_async", [False, True], ids=["blocking", "async"])
every_kind = pytest.mark.parametrize("positions", ["stream", "table", "hybrid"])
both_patterns = pytest.mark.parametrize("transactional", [False, True])


class Processes:
    """Consumers in processes of their own, one after the other."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._orders, self._said = process.stdin, process.stdout

    def start(self, category: str, **options: Any) -> int:
        """Start a consumer and return its process id."""
        self._orders.write(json.dumps({"category": category, **options}) + "\n")
        self._orders.flush()
        return int(self.next())

    def next(self) -> str:
        """Return the next line of output."""
        return self._said.readline().strip()

    def wait_for(self, line: str) -> None:
        """Return once this line was printed."""
        while (said := self.next()) != line:
            assert said, "the process has gone"

    def end(self) -> int:
        """Return the status of the consumer once it has ended."""
        while not (said := self.next()).startswith("ended"):
            assert said, "the process has gone"
        return int(said.split()[1])


@pytest.fixture(scope="module")
def processes(shared_url: str) -> Iterator[Processes]:
    with subprocess.Popen(
        [sys.executable, "-m", SCRIPT, shared_url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Processes(process)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=60)


@pytest.fixture
def shared_store(shared_stores: dict[bool, Store]) -> Store:
    """A blocking store on the shared database: the consumers are in other processes."""
    return shared_stores[False]


@pytest.fixture
def done() -> str:
    """The category that consumers copy messages to."""
    return new_category("done")


def copied(store: Store, done: str) -> list[int]:
    return [message.data["number"] for message in store.read_category(done)]


@every_kind
@both_patterns
def test_killed_at_random_it_loses_nothing(
    shared_store: Store, processes: Processes, done: str, positions: str, transactional: bool
) -> None:
    category, chance = new_category(), random.Random()
    fill(shared_store, category, MESSAGES)
    options: dict[str, Any] = {
        "done": done,
        "positions": positions,
        "transactional": transactional,
        "batch_size": 20,
        "position_update_interval": 5,
    }

    for _ in range(KILLS):
        process = processes.start(category, **options)
        for _ in range(chance.randrange(1, 20)):
            processes.next()
        os.kill(process, signal.SIGKILL)
        assert processes.end() == signal.SIGKILL
    processes.start(category, run="run_until_idle", **options)
    assert processes.end() == 0

    numbers = copied(shared_store, done)
    if transactional:
        assert numbers == list(range(MESSAGES))
    else:
        assert list(dict.fromkeys(numbers)) == list(range(MESSAGES))


@every_kind
@both_patterns
@both_ways
def test_crashed_between_handling_and_storing(
    shared_store: Store,
    processes: Processes,
    done: str,
    positions: str,
    transactional: bool,
    is_async: bool,
) -> None:
    category = new_category()
    fill(shared_store, category, 6)
    options: dict[str, Any] = {
        "done": done,
        "positions": positions,
        "transactional": transactional,
        "position_update_interval": 1,
        "is_async": is_async,
    }

    processes.start(category, crash_at=3, **options)
    assert processes.end() == signal.SIGKILL
    processes.start(category, run="run_until_idle", **options)
    assert processes.end() == 0

    again = [] if transactional else [3]  # handled, and the position was not saved
    assert copied(shared_store, done) == [0, 1, 2, 3, *again, 4, 5]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("run", ["run", "run_until_idle"])
def test_asked_to_end_it_finishes_the_message_in_hand(
    shared_store: Store, processes: Processes, done: str, number: signal.Signals, run: str
) -> None:
    category = new_category()
    places = fill(shared_store, category, 6)
    process = processes.start(category, done=done, hang_at=3, run=run)
    processes.wait_for("before 3")

    os.kill(process, number)

    assert processes.end() == 0
    assert copied(shared_store, done) == [0, 1, 2, 3]
    (status,) = [one for one in shared_store.admin.consumers() if one.category == category]
    assert status.position == places[3]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("run", ["run", "run_until_idle"])
def test_asked_to_end_all_consumers_of_an_event_loop_do(
    shared_store: Store, processes: Processes, number: signal.Signals, run: str
) -> None:
    category = new_category()
    places = fill(shared_store, category, 4)
    process = processes.start(category, consumers=2, hang_at=2, run=run)
    assert {processes.next(), processes.next()} == {"hangs 0", "hangs 1"}

    os.kill(process, number)

    assert processes.end() == 0
    found = [one.position for one in shared_store.admin.consumers() if one.category == category]
    assert found == [places[2]] * 2


@pytest.fixture
def own_database_server() -> Iterator[OwnServer]:
    with own_server() as server:
        yield server


@both_patterns
def test_a_database_that_goes_away_is_waited_for(
    way: Way, own_database_server: OwnServer, transactional: bool
) -> None:
    server = own_database_server
    handled = [Event(), Event()]
    with way.connect(server.url) as store, logged("waits for the database") as waits:
        consumer = new_consumer(
            store, "order", "mailer", transactional=transactional, longest_polling_interval_ms=100
        )

        @consumer.handler("Placed")
        def copy(message: RecordedMessage, writer: Any = store) -> None:
            writer.write_message("done-1", "Done", message.data)
            handled[message.data["number"]].set()

        store.write_message("order-1", "Placed", {"number": 0})
        running = Thread(target=consumer.run)
        running.start()
        try:
            assert handled[0].wait(60)
            server.stop()
            assert waits.wait(60)
            server.start()
            store.write_message("order-1", "Placed", {"number": 1})
            assert handled[1].wait(60)
        finally:
            consumer.stop()
            running.join(60)
        numbers = copied(store, "done")
        (status,) = store.admin.consumers()

    assert not running.is_alive()
    assert status.behind == 0
    assert numbers == [0, 1] or (not transactional and numbers == [0, 0, 1])


@both_patterns
def test_a_pool_that_is_used_up_is_waited_for(
    way: Way, database_url: str, transactional: bool
) -> None:
    handled = Event()
    with (
        way.connect(database_url, pool_max_size=1, pool_timeout_ms=300) as store,
        logged("all 1 connections stayed in use") as waits,
    ):
        consumer = new_consumer(
            store, "order", "mailer", transactional=transactional, longest_polling_interval_ms=100
        )
        consumer.handler("Placed")(lambda *_: handled.set())
        store.write_message("order-1", "Placed")
        running = Thread(target=consumer.run)
        try:
            with store.transaction():
                running.start()
                assert waits.wait(60)
            assert handled.wait(60)
        finally:
            consumer.stop()
            running.join(60)


class TestSignals:
    @pytest.fixture
    def before(self) -> Iterator[list[int]]:
        """The signals that the previous handler got."""
        came: list[int] = []
        was = signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
        yield came
        signal.signal(signal.SIGTERM, was)

    def test_a_second_one_acts_as_it_did_before(self, before: list[int]) -> None:
        stopped: list[str] = []

        with stopping_on_signals(lambda: stopped.append("stop")):
            signal.raise_signal(signal.SIGTERM)
            first = (list(stopped), list(before))
            signal.raise_signal(signal.SIGTERM)

        assert first == (["stop"], [])
        assert (stopped, before) == (["stop"], [signal.SIGTERM])

    def test_after_the_block_it_does_too(self, before: list[int]) -> None:
        with stopping_on_signals(lambda: pytest.fail("stopped")):
            pass

        signal.raise_signal(signal.SIGTERM)

        assert before == [signal.SIGTERM]

    @pytest.mark.usefixtures("before")
    def test_one_wakes_who_waits(self) -> None:
        stop = StopEvent()
        waiter = threading.main_thread().ident
        assert waiter is not None

        with stopping_on_signals(stop.set):
            Thread(target=signal.pthread_kill, args=(waiter, signal.SIGTERM)).start()

            assert stop.wait_for(3600)

    @pytest.mark.parametrize(
        "wait", [StopEvent().wait_for, Handlers[int](1, print).wait], ids=["event", "handlers"]
    )
    def test_a_wait_ends_though_a_handler_ran_past_its_timeout(
        self, wait: Callable[[float], object]
    ) -> None:
        """`SimpleQueue.get` then waits for ever; the test would not end."""
        before = signal.signal(signal.SIGALRM, lambda *_: time.sleep(0.05))
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        try:
            wait(0.02)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def test_in_an_event_loop_the_application_s_own_handler_is_called_as_well(
        self, before: list[int]
    ) -> None:
        stopped: list[str] = []

        async def run() -> None:
            with stopping_loop_on_signals(lambda: stopped.append("stop")):
                signal.raise_signal(signal.SIGTERM)
                await asyncio.sleep(0.01)
                assert (stopped, before) == (["stop"], [signal.SIGTERM])
                signal.raise_signal(signal.SIGTERM)

        asyncio.run(run())

        assert (stopped, before) == (["stop"], [signal.SIGTERM] * 2)

    def test_after_an_event_loop_s_block_it_does_too(self, before: list[int]) -> None:
        async def run() -> None:
            was = signal.getsignal(signal.SIGINT)  # asyncio's own
            with stopping_loop_on_signals(lambda: None), stopping_loop_on_signals(lambda: None):
                pass
            assert signal.getsignal(signal.SIGINT) is was

        asyncio.run(run())
        signal.raise_signal(signal.SIGTERM)

        assert before == [signal.SIGTERM]

    def test_what_an_event_loop_handled_is_not_ignored_afterwards(self) -> None:
        async def run() -> None:
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGTERM, lambda: None)
            with stopping_loop_on_signals(lambda: None):
                pass

        asyncio.run(run())

        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL

    def test_another_thread_leaves_them_alone(self) -> None:
        before, inside = signal.getsignal(signal.SIGTERM), []

        def look() -> None:
            with stopping_on_signals(lambda: None):
                inside.append(signal.getsignal(signal.SIGTERM))

        thread = Thread(target=look)
        thread.start()
        thread.join()

        assert inside == [before]
