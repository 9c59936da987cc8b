"""The server ends the session that holds a run's lock: there is still one run at a time."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Lock
from typing import Any

import psycopg
import pytest
from pyspark.sql import DataFrame

from penstock.errors import PipelineRunning, RunLockLost
from penstock.pipeline import Pipeline, Runner
from penstock.pipeline.run_lock import _RUN, ProcessorLocks, RunLock
from tests.pipeline.steps.following import Follow
from tests.pipeline.steps.following import follow as follow  # a fixture
from tests.pipeline.steps.running import Workshop, numbers_in
from tests.spark.faults.waiting import wait_until

HOLDER = "application_name like 'penstock run shop on %'"
STEPPING = (
    "select count(*) = %s from pg_stat_activity"
    " where datname = current_database() and application_name like 'penstock step shop%%'"
)
WAITING = "select exists (select from pg_stat_activity where pid = %s and wait_event_type = 'Lock')"
HELD = "select exists (select from pg_locks where classid = %s and granted)"
SECONDS = 120


class Told(logging.Handler):
    """Notices that something is logged."""

    def __init__(self, words: str) -> None:
        super().__init__()
        self._words = words
        self.event = Event()

    def emit(self, record: logging.LogRecord) -> None:
        if self._words in record.getMessage():
            self.event.set()


@pytest.fixture
def told() -> Iterator[Told]:
    """That a run has lost its lock for good."""
    handler = Told("lost its lock")
    logging.getLogger("penstock.pipeline.runner").addHandler(handler)
    yield handler
    logging.getLogger("penstock.pipeline.runner").removeHandler(handler)


class Sink:
    """A pipeline with one sink, which stands at a gate in its first call."""

    def __init__(self) -> None:
        self.pipe = Pipeline("shop")
        self.pipe.queue("number")
        self.begun, self.go_on = Event(), Event()
        self.calls: list[int] = []
        lock = Lock()

        @self.pipe.sink(inputs="number", limit=1)
        def send(number: DataFrame) -> None:
            with lock:
                self.calls.extend(numbers_in(number))
            self.begun.set()
            assert self.go_on.wait(SECONDS)


def test_who_loses_it_to_another_run_stops_and_no_function_is_called_twice(
    workshop: Workshop, database_url: str, follow: Follow, told: Told
) -> None:
    sink = Sink()
    workshop.write("number", 1, 2, 3, 4)
    first = follow(sink.pipe)
    assert sink.begun.wait(SECONDS)
    with ThreadPoolExecutor(1) as thread:
        second = Runner(sink.pipe, workshop.store, workshop.spark)
        lock = take_over(workshop, database_url)
        second._lock = lambda *, wait: lock  # type: ignore[method-assign]
        running = thread.submit(second.once)
        wait_until(database_url, STEPPING, (2,), running)
        assert told.event.wait(SECONDS)
        before = list(sink.calls)
        sink.go_on.set()
        summary = running.result()
    first.join()

    assert before == [1]
    assert sorted(sink.calls) == [1, 2, 3, 4]
    assert isinstance(first.error, RunLockLost)
    assert first.error.holder.startswith("thief")
    assert [one.messages_in for one in first.reports] == [1]
    assert summary.progress["send"].messages_in == 3


def test_one_that_nobody_else_has_taken_is_taken_again(
    workshop: Workshop, database_url: str, follow: Follow
) -> None:
    sink = Sink()
    workshop.write("number", 1)
    first = follow(sink.pipe)
    assert sink.begun.wait(SECONDS)

    end_holder(database_url)
    wait_until(database_url, HELD, (_RUN,))

    with pytest.raises(PipelineRunning):
        Runner(sink.pipe, workshop.store, workshop.spark).once()
    sink.go_on.set()
    workshop.write("number", 2)
    wait_until(
        database_url, "select exists (select from penstock.processor_progress where steps = 2)"
    )
    assert first.stop().succeeded
    assert sink.calls == [1, 2]


def test_who_begins_from_scratch_waits_for_the_step_of_a_run_that_lost_it(
    workshop: Workshop, database_url: str
) -> None:
    sink = Sink()
    sink.go_on.set()
    workshop.write("number", 1)
    workshop.run(sink.pipe)
    runner = Runner(sink.pipe, workshop.store, workshop.spark)
    with ThreadPoolExecutor(1) as thread:
        with ProcessorLocks(workshop.place, "shop", lambda: False).connection("send"):
            restarting = thread.submit(runner.from_scratch)
            wait_until(database_url, STEPPING, (2,), restarting)
            before = workshop.status(sink.pipe).generation
        restarting.result()

    assert (before, workshop.status(sink.pipe).generation) == (0, 1)


def take_over(workshop: Workshop, url: str) -> RunLock:
    """Have the lock of the run at the very moment at which its session ends."""
    thief: psycopg.Connection[Any] = psycopg.connect(url, autocommit=True, application_name="thief")
    with ThreadPoolExecutor(1) as thread:
        taken = thread.submit(
            thief.execute, "select pg_advisory_lock(%s, hashtext('shop'))", (_RUN,)
        )
        wait_until(url, WAITING, (thief.info.backend_pid,), taken)
        end_holder(url)
        taken.result()
    return RunLock(workshop.place, "shop", thief)


def end_holder(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            f"select pg_terminate_backend(pid, 5000) from pg_stat_activity where {HOLDER}"
        )
