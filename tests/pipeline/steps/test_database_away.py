"""The database goes away in the middle of a step and comes back: the run goes on, and loses nothing.

The server is stopped and started at each point of a step, and a backend is ended in the middle of
what a task does.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock
from penstock import RecordedMessage, Store
from penstock.database.embedded import EmbeddedServer, start
from penstock.errors import DatabaseUnreachable
from penstock.pipeline import Pipeline, Runner
from tests.conftest import FAST
from tests.pipeline.faults.waiting import STAGINGS, end_blocked, held, wait_until_blocked
from tests.pipeline.steps.points import CALLED, points_are_noticed, walking
from tests.pipeline.steps.workshop import Workshop, numbered, renumbered

#: the points that a step of one input passes, and clean_up, where the commit is behind it
AT = [f"{when} {name}" for _, name in CALLED[:5] + CALLED[6:7] for when in ("before", "after")]


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

    def emit(self, record: logging.LogRecord) -> None:
        self.waits += " waits: " in record.getMessage()
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


@pytest.mark.parametrize("point", AT)
def test_it_goes_on_where_it_was(
    machine: Machine,
    own_store: Store,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
) -> None:
    monkeypatch.setattr("penstock.pipeline.runner.TRY_AGAIN", 0.0)
    name, waited = f"at_{AT.index(point)}", machine.waits
    workshop = Workshop(own_store, spark)
    workshop.write(f"{name}_a", 1, 2)
    runner = Runner(chain(name), own_store, spark)
    work = runner._work

    def work_and_stop_the_server(*arguments: object) -> None:
        if arguments[0] is not runner.pipeline.processors["first"]:
            work(*arguments)  # type: ignore[arg-type]
            return
        with walking(lambda passed: passed[-1] == point and passed.count(point) == 1, machine.stop):
            work(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(runner, "_work", work_and_stop_the_server)
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
    def _on_executors(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("penstock.pipeline.frames.SMALL", 0)
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

    def test_while_it_reads(self, workshop: Workshop) -> None:
        pipe = chain("shop")
        workshop.write("shop_a", 1, 2)
        url = workshop.store.settings.conninfo()
        run = Thread(target=workshop.run, args=(pipe,))
        ended = lose_its_connection(url, "copy (select%", run.start)
        run.join()

        assert ended
        assert workshop.numbers("shop_c") == [3, 4]

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
