"""The database goes away in the middle of a step and comes back: the run goes on, nothing is lost.

The server is stopped or crashed at the points of a step, and a backend is ended in the middle of
what a task does.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import psutil
import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock
from penstock import Interceptor, RecordedMessage, Store
from penstock.database.embedded import EmbeddedServer, start
from penstock.database.interceptor import Call
from penstock.errors import DatabaseUnreachable
from penstock.pipeline import Pipeline, Timing
from penstock.spark.connections import connect, find_database
from tests.pipeline.steps.running import Harness, numbered, renumbered
from tests.servers import FAST
from tests.spark.faults.waiting import STAGINGS, end_blocked, held, wait_until_blocked
from tests.spark.faults.wires import Wire

AT_ONCE = Timing(retry_delay=0.0)

#: what a step asks of the database, in this order; `unstage` comes after the commit
OPERATIONS = ("open_processor", "write_snapshot", "commit_step", "unstage")
AT = [f"{when} {name}" for name in OPERATIONS for when in ("before", "after")]


class StopsServer(Interceptor):
    """Stops a server before or after an operation of a processor, once."""

    def __init__(self, processor: str, point: str, stop: Callable[[], None]) -> None:
        self._processor = processor
        self._point = point
        self._stop: Callable[[], None] | None = stop

    @contextmanager
    def around(self, call: Call) -> Iterator[None]:
        self._reach("before", call)
        yield
        self._reach("after", call)

    def _reach(self, when: str, call: Call) -> None:
        is_own = call.facts.get("processor", self._processor) == self._processor
        if self._stop is not None and is_own and self._point == f"{when} {call.name}":
            stop, self._stop = self._stop, None
            stop()


class Machine(logging.Handler):
    """A server that can be stopped, and comes back when a run says that it waits for it."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._server: EmbeddedServer | None = None
        self.waits = 0

    def start(self) -> str:
        self._server = self._server or start(self._folder, settings=FAST)
        return self._server.url

    def stop(self) -> None:
        if self._server is not None:
            self._server.leave()
            self._server = None

    def crash(self) -> None:
        """Kill it outright, which empties its staging."""
        pid = (self._folder / "data" / "postmaster.pid").read_text().split()[0]
        psutil.Process(int(pid)).kill()
        self.stop()

    def emit(self, record: logging.LogRecord) -> None:
        self.waits += " waits " in record.getMessage()
        self.start()


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    # not pytest's own folder: a socket's path must be short
    folder = Path(tempfile.mkdtemp(prefix="penstock-"))
    machine = Machine(folder)
    penstock.install(machine.start())
    logging.getLogger("penstock.pipeline").addHandler(machine)
    yield machine
    logging.getLogger("penstock.pipeline").removeHandler(machine)
    machine.stop()
    shutil.rmtree(folder, ignore_errors=True)


def chain(name: str) -> Pipeline:
    """Return a pipeline of two streams with queues of their own."""
    pipe = Pipeline(name)
    pipe.schema(f"{name}_a")

    @pipe.stream(alts=f"{name}_a", output=f"{name}_b")
    def first(messages: DataFrame) -> DataFrame:
        return renumbered(numbered(messages), "n + 1")

    @pipe.stream(alts=f"{name}_b", output=f"{name}_c")
    def second(messages: DataFrame) -> DataFrame:
        return renumbered(numbered(messages), "n + 1")

    return pipe


@pytest.mark.parametrize(
    ("end", "point"), [*(("stop", point) for point in AT), ("crash", "before commit_step")]
)
def test_it_goes_on_where_it_was(
    machine: Machine, spark: SparkSession, end: str, point: str
) -> None:
    interceptor = StopsServer("first", point, getattr(machine, end))
    name, waited = f"{end}_{AT.index(point)}", machine.waits
    with penstock.connect(machine.start(), interceptors=[interceptor]) as store:
        harness = Harness(store, spark, timing=AT_ONCE)
        harness.write(f"{name}_a", 1, 2)

        summary = harness.run(chain(name))

        assert summary.succeeded
        assert harness.numbers(f"{name}_b") == [2, 3]
        assert harness.numbers(f"{name}_c") == [3, 4]
        assert machine.waits > waited


def test_it_goes_on_where_its_function_was(machine: Machine, spark: SparkSession) -> None:
    pipe, calls = Pipeline("function"), []
    pipe.schema("function_a")

    @pipe.stream(inputs="function_a", output="function_b")
    def copy(function_a: DataFrame) -> DataFrame:
        calls.append(1)
        if len(calls) == 1:
            machine.stop()  # before anything is staged
        return renumbered(numbered(function_a))

    with penstock.connect(machine.start()) as store:
        harness = Harness(store, spark, timing=AT_ONCE)
        harness.write("function_a", 1, 2)

        summary = harness.run(pipe)

        assert summary.succeeded
        assert harness.numbers("function_b") == [1, 2]
        assert len(calls) == 2


def test_it_does_not_wait_for_ever(harness: Harness) -> None:
    harness.timing = Timing(retry_delay=0.0, outage_timeout=0.0)
    pipe = Pipeline("shop")
    pipe.schema("a")

    @pipe.sink(inputs="a")
    def lose(a: DataFrame) -> None:
        raise DatabaseUnreachable("there", "it is gone")

    harness.write("a", 1)
    summary = harness.run(pipe)

    assert isinstance(summary.progress["lose"].error, DatabaseUnreachable)


class TestTask:
    """A task on an executor loses its connection: the step is tried again."""

    @pytest.fixture(autouse=True)
    def _on_executors(self, harness: Harness) -> None:
        harness.driver_rows, harness.timing = 0, AT_ONCE

    def test_while_it_stages(self, harness: Harness) -> None:
        harness.write("shop_a", 1, 2)
        url = harness.store.settings.conninfo()
        run = Thread(target=harness.run, args=(chain("shop"),))
        with held(url, STAGINGS):
            run.start()
            wait_until_blocked(url, 1)
            end_blocked(url)
        run.join()

        assert harness.numbers("shop_c") == [3, 4]

    def test_while_it_plans_what_to_read(self, harness: Harness) -> None:
        pipe, calls = Pipeline("shop"), []
        pipe.schema("a")
        url = harness.store.settings.conninfo()
        other = psycopg.connect(url)

        @pipe.stream(inputs="a", output="b")
        def copy(a: DataFrame) -> DataFrame:
            calls.append(1)
            if len(calls) == 1:
                other.execute("lock table message_store.messages in access exclusive mode")
            return renumbered(numbered(a))

        harness.write("a", 1, 2)
        run = Thread(target=harness.run, args=(pipe,))
        run.start()
        wait_until_blocked(url, 1)
        end_blocked(url)
        other.close()
        run.join()

        assert harness.numbers("b") == [1, 2]
        assert len(calls) == 2

    def test_while_it_folds(self, harness: Harness) -> None:
        pipe = Pipeline("shop")
        pipe.schema("account")

        @pipe.project("account", into="counts", columns="count int", limit=1)
        def count(state: dict[str, int] | None, message: RecordedMessage) -> dict[str, int]:
            return {"count": (state["count"] if state else 0) + 1}

        harness.write("account-1", 1)
        harness.run(pipe)
        harness.write("account-1", 2)
        url = harness.store.settings.conninfo()
        run = Thread(target=harness.run, args=(pipe,))
        with psycopg.connect(url) as connection:
            connection.execute("lock table counts in access exclusive mode")
            run.start()
            wait_until_blocked(url, 1)
            end_blocked(url)
        run.join()

        assert harness.rows("select count from counts") == [(2,)]


def test_a_server_that_stops_just_after_it_let_one_in_is_away(
    store: Store, database_url: str
) -> None:
    with Wire(database_url, "set timezone") as wire, pytest.raises(DatabaseUnreachable):
        connect(find_database(wire.url))

    assert wire.was_said
