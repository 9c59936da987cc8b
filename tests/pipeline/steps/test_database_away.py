"""The database goes away in the middle of a step and comes back: the run goes on, nothing is lost.

The server is stopped or crashed at the points of a step, and a backend is ended in the middle of
what a task does.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock
from penstock import RecordedMessage, Settings, Store
from penstock.database import pool
from penstock.database.embedded import EmbeddedServer, start
from penstock.errors import DatabaseUnreachable
from penstock.pipeline import Pipeline, Runner
from penstock.spark.connections import DatabaseRef, connect
from tests.conftest import FAST
from tests.pipeline.steps.points import CALLED, points_are_noticed, walking
from tests.pipeline.steps.running import Workshop, numbered, renumbered
from tests.spark.faults.waiting import STAGINGS, end_blocked, held, wait_until_blocked

AT = [f"{when} {name}" for _, name in CALLED for when in ("before", "after")]


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
    logging.getLogger("penstock.pipeline.runner").addHandler(machine)
    yield machine
    logging.getLogger("penstock.pipeline.runner").removeHandler(machine)
    machine.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def own_store(machine: Machine) -> Iterator[Store]:
    with penstock.connect(machine.start()) as store:
        yield store


def chain(name: str) -> Pipeline:
    """Return a pipeline of two streams with queues of their own."""
    pipe = Pipeline(name)
    pipe.queue(f"{name}_a")

    @pipe.stream(alts=f"{name}_a", output=f"{name}_b")
    def first(messages: DataFrame) -> DataFrame:
        return renumbered(numbered(messages), "n + 1")

    @pipe.stream(alts=f"{name}_b", output=f"{name}_c")
    def second(messages: DataFrame) -> DataFrame:
        return renumbered(numbered(messages), "n + 1")

    return pipe


@pytest.mark.parametrize(
    ("end", "point"), [*(("stop", point) for point in AT), ("crash", "before commit")]
)
def test_it_goes_on_where_it_was(
    machine: Machine,
    own_store: Store,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    end: str,
    point: str,
) -> None:
    monkeypatch.setattr("penstock.pipeline.runner.TRY_AGAIN", 0.0)
    name, waited = f"{end}_{AT.index(point)}", machine.waits
    workshop = Workshop(own_store, spark)
    workshop.write(f"{name}_a", 1, 2)
    runner = Runner(chain(name), own_store, spark)
    work = runner._work

    def work_and_lose_the_server(one: Any) -> None:
        def is_there(passed: list[str]) -> bool:
            return (
                one.processor.name == "first" and passed[-1] == point and passed.count(point) == 1
            )

        with walking(is_there, getattr(machine, end)):
            work(one)

    monkeypatch.setattr(runner, "_work", work_and_lose_the_server)
    with points_are_noticed():
        summary = runner.once()

    assert summary.succeeded
    assert workshop.numbers(f"{name}_b") == [2, 3]
    assert workshop.numbers(f"{name}_c") == [3, 4]
    assert machine.waits > waited


def test_patience_ends(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.pipeline.runner.TRY_AGAIN", 0.0)
    monkeypatch.setattr("penstock.pipeline.runner.PATIENCE", 0.0)
    pipe = Pipeline("shop")
    pipe.queue("a")

    @pipe.sink(inputs="a")
    def lose(a: DataFrame) -> None:
        raise DatabaseUnreachable("there", "it is gone")

    workshop.write("a", 1)
    summary = workshop.run(pipe)

    assert isinstance(summary.progress["lose"].error, DatabaseUnreachable)


class TestTask:
    """A task on an executor loses its connection: the step is tried again."""

    @pytest.fixture(autouse=True)
    def _on_executors(self, workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
        workshop.driver_rows = 0
        monkeypatch.setattr("penstock.pipeline.runner.TRY_AGAIN", 0.0)

    def test_while_it_stages(self, workshop: Workshop) -> None:
        workshop.write("shop_a", 1, 2)
        url = workshop.store.settings.conninfo()
        run = Thread(target=workshop.run, args=(chain("shop"),))
        with held(url, STAGINGS):
            run.start()
            wait_until_blocked(url, 1)
            end_blocked(url)
        run.join()

        assert workshop.numbers("shop_c") == [3, 4]

    def test_while_it_plans_what_to_read(self, workshop: Workshop) -> None:
        pipe, calls = Pipeline("shop"), []
        pipe.queue("a")
        url = workshop.store.settings.conninfo()
        other = psycopg.connect(url)

        @pipe.stream(inputs="a", output="b")
        def copy(a: DataFrame) -> DataFrame:
            calls.append(1)
            if len(calls) == 1:
                other.execute("lock table message_store.messages in access exclusive mode")
            return renumbered(numbered(a))

        workshop.write("a", 1, 2)
        run = Thread(target=workshop.run, args=(pipe,))
        run.start()
        wait_until_blocked(url, 1)
        end_blocked(url)
        other.close()
        run.join()

        assert workshop.numbers("b") == [1, 2]
        assert len(calls) == 2

    def test_while_it_folds(self, workshop: Workshop) -> None:
        pipe = Pipeline("shop")
        pipe.queue("account")

        @pipe.project("account", into="counts", columns="count int", limit=1)
        def count(state: dict[str, int] | None, message: RecordedMessage) -> dict[str, int]:
            return {"count": (state["count"] if state else 0) + 1}

        workshop.write("account-1", 1)
        workshop.run(pipe)
        workshop.write("account-1", 2)
        url = workshop.store.settings.conninfo()
        run = Thread(target=workshop.run, args=(pipe,))
        with psycopg.connect(url) as connection:
            connection.execute("lock table counts in access exclusive mode")
            run.start()
            wait_until_blocked(url, 1)
            end_blocked(url)
        run.join()

        assert workshop.rows("select count from counts") == [(2,)]


def test_a_server_that_stops_just_after_it_let_one_in_is_away(
    store: Store, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_in = pool.connect

    def let_in_and_stop(settings: Settings) -> psycopg.Connection[Any]:
        connection = let_in(settings)
        with psycopg.connect(database_url) as other:
            pid = connection.info.backend_pid
            other.execute("select pg_terminate_backend(%s, 5000)", (pid,))
        return connection

    monkeypatch.setattr(pool, "connect", let_in_and_stop)
    with pytest.raises(DatabaseUnreachable):
        connect(DatabaseRef(store.settings))
