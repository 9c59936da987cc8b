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

from penstock.admin.processors import RUN
from penstock.errors import PipelineRunning, RunLockLost
from penstock.pipeline import Pipeline, Runner
from penstock.pipeline.connection import ProcessorLocks
from tests.pipeline.steps.following import Follow
from tests.pipeline.steps.following import follow as follow  # a fixture
from tests.pipeline.steps.running import Harness, numbers_in
from tests.spark.faults.waiting import wait_until

HOLDER = "application_name like 'penstock run shop on %'"
STEPPING = (
    "select count(*) = %s from pg_stat_activity"
    " where datname = current_database() and application_name like 'penstock step shop%%'"
)
WAITING = "select exists (select from pg_stat_activity where pid = %s and wait_event_type = 'Lock')"
HELD = "select exists (select from pg_locks where classid = %s and granted)"
SECONDS = 120


class LogEvent(logging.Handler):
    """Notices that something is logged."""

    def __init__(self, words: str) -> None:
        super().__init__()
        self._words = words
        self.event = Event()

    def emit(self, record: logging.LogRecord) -> None:
        if self._words in record.getMessage():
            self.event.set()


@pytest.fixture
def logged() -> Iterator[LogEvent]:
    """That a run has lost its lock for good."""
    handler = LogEvent("lost its lock")
    logging.getLogger("penstock.pipeline").addHandler(handler)
    yield handler
    logging.getLogger("penstock.pipeline").removeHandler(handler)


class Sink:
    """A pipeline with one sink, which stands at a gate in its first call."""

    def __init__(self) -> None:
        self.pipe = Pipeline("shop")
        self.pipe.schema("number")
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
    harness: Harness, database_url: str, follow: Follow, logged: LogEvent
) -> None:
    sink = Sink()
    harness.write("number", 1, 2, 3, 4)
    first = follow(sink.pipe)
    assert sink.begun.wait(SECONDS)
    with ThreadPoolExecutor(1) as thread:
        thief = take_over(database_url)
        assert logged.event.wait(SECONDS)
        running = thread.submit(harness.runner(sink.pipe).run_until_idle, wait=True)
        thief.close()  # and the second run has the lock
        wait_until(database_url, STEPPING, (2,), running)
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
    harness: Harness, database_url: str, follow: Follow
) -> None:
    sink = Sink()
    harness.write("number", 1)
    first = follow(sink.pipe)
    assert sink.begun.wait(SECONDS)

    end_holder(database_url)
    wait_until(database_url, HELD, (RUN,))

    with pytest.raises(PipelineRunning):
        Runner(sink.pipe, harness.store, harness.spark).run_until_idle()
    sink.go_on.set()
    harness.write("number", 2)
    wait_until(
        database_url, "select exists (select from penstock.processor_progress where steps = 2)"
    )
    assert first.stop().succeeded
    assert sink.calls == [1, 2]


def test_who_begins_from_scratch_waits_for_the_step_of_a_run_that_lost_it(
    harness: Harness, database_url: str
) -> None:
    sink = Sink()
    sink.go_on.set()
    harness.write("number", 1)
    harness.run(sink.pipe)
    runner = Runner(sink.pipe, harness.store, harness.spark)
    with ThreadPoolExecutor(1) as thread:
        with ProcessorLocks(harness.database, "shop", lambda: False).connection("send"):
            restarting = thread.submit(runner.from_scratch)
            wait_until(database_url, STEPPING, (2,), restarting)
            before = harness.status(sink.pipe).generation
        restarting.result()

    assert (before, harness.status(sink.pipe).generation) == (0, 1)


def take_over(url: str) -> psycopg.Connection[Any]:
    """Have the lock of the run at the very moment at which its session ends."""
    thief: psycopg.Connection[Any] = psycopg.connect(url, autocommit=True, application_name="thief")
    with ThreadPoolExecutor(1) as thread:
        taken = thread.submit(
            thief.execute, "select pg_advisory_lock(%s, hashtext('shop'))", (RUN,)
        )
        wait_until(url, WAITING, (thief.info.backend_pid,), taken)
        end_holder(url)
        taken.result()
    return thief


def end_holder(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            f"select pg_terminate_backend(pid, 5000) from pg_stat_activity where {HOLDER}"
        )
