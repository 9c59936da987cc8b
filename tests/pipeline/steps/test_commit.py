"""The commit of a step, without Spark: who may commit it, and what becomes visible with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, cast

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructType

from penstock import Store
from penstock.errors import InvalidErrorRow, StepSuperseded
from penstock.pipeline import Delivery, Pipeline, state
from penstock.pipeline.attempt import Step, StepContext, StepResult
from penstock.pipeline.hooks import ReadHooks
from penstock.pipeline.outputs import ErrorsQueue, StagedErrors, without_repeated_errors
from penstock.pipeline.projection import Projection
from penstock.pipeline.restart import restart
from penstock.pipeline.snapshot import Remembered, Snapshot, State, next_snapshot
from penstock.pipeline.step import begin, commit
from penstock.pipeline.tables import Upsert
from penstock.spark.connections import find_database
from penstock.spark.write.staging import Published, Staged
from tests.pipeline.steps.running import Stop, Watched, pipeline, stop
from tests.spark.faults.waiting import wait_until_blocked
from tests.spark.writing import MESSAGE, Writer

NO_SPARK = cast("SparkSession", None)  # only the function of a step needs it
NO_FRAME = cast("DataFrame", None)
SEEN = {
    "messages": "select count(*) from message_store.messages where stream_name like 'out-%'",
    "attempts": "select count(*) from message_store.messages where type like '%Attempt'",
    "tailer": "select position from penstock.tailers",
    "upserted": "select n from totals",
    "folded": "select balance from accounts",
}

NOTHING = {"messages": 0, "attempts": 0, "tailer": 0, "upserted": None, "folded": None}
ALL = {"messages": 1, "attempts": 1, "tailer": 1, "upserted": 5, "folded": 7}


class Run:
    """One run of a pipeline: it begins a step of its processor, stages, and commits."""

    def __init__(self, pipe: Pipeline, processor: str, connection: Watched) -> None:
        database, self.connection = find_database(connection.info.dsn), connection
        self.run_connection = connection.for_a_run()
        self.context = StepContext(
            pipe, pipe.processors[processor], database, self.run_connection, NO_SPARK
        )

    def open(self) -> State:
        one = self.context.processor
        return self.run_connection.run(state.open_processor("shop", one.name, one.kind))

    def place(self, **tailers: int) -> None:
        name = self.context.processor.name
        self.run_connection.run(state.place_tailers("shop", name, tailers))

    def begin(self) -> Snapshot:
        self.place(**dict.fromkeys(self.context.processor.reads, 0))
        snapshot = begin(self.context, self.open())
        assert snapshot is not None
        return snapshot

    def stage(self) -> Staged:
        return Writer(self.connection).stage(MESSAGE, ("out-1", "Made", "{}"))

    def commit(
        self, snapshot: Snapshot, *staged: Staged, cursor: int | None = None, **made: Any
    ) -> Published:
        if cursor is not None:
            made["delivery"] = Delivery("shop", snapshot)
            made["delivery"].advance(cursor)
        return commit(Step(self.context, snapshot, {}, 0.0), StepResult(list(staged), **made))


Start = Callable[..., Run]


@pytest.fixture
def start(database_url: str, store: Store) -> Iterator[Start]:
    """Start runs of a stream, or of a source, that has a message to read."""
    pipe = pipeline()
    pipe.stream(inputs="number", output="out")(copy)
    pipe.sink(inputs="out")(send)
    pipe.source(output="brought")(bring)
    store.write_message("number-1", "Numbered")
    with ExitStack() as connections:

        def start(processor: str = "copy") -> Run:
            connection = Watched.connect(database_url, autocommit=True)
            run = Run(pipe, processor, connections.enter_context(connection))
            run.open()
            return run

        yield start


def copy(number: DataFrame) -> DataFrame:
    return number


def send(out: DataFrame) -> None: ...


def bring() -> None: ...


def seen(url: str) -> dict[str, Any]:
    """Return what others see of a step: the first value of each, None if there is no table."""
    with psycopg.connect(url, autocommit=True) as connection:
        return {name: _first(connection, query) for name, query in SEEN.items()}


def _first(connection: psycopg.Connection[Any], query: str) -> Any:
    try:
        row = connection.execute(query.encode()).fetchone()
    except psycopg.errors.UndefinedTable:
        return None
    return row and row[0]


class TestWhoMayCommit:
    def test_of_two_at_once_the_second_waits_and_gives_up(
        self, start: Start, database_url: str
    ) -> None:
        first, second = start(), start()
        snapshot = first.begin()
        staged = second.stage()

        with ThreadPoolExecutor() as threads:
            with first.connection.transaction():
                first.commit(snapshot, first.stage())
                waiting = threads.submit(second.commit, snapshot, staged)
                wait_until_blocked(database_url, 1, waiting)
            with pytest.raises(StepSuperseded):
                waiting.result()

        assert seen(database_url)["messages"] == 1
        assert seen(database_url)["attempts"] == 1

    def test_what_was_committed_is_not_committed_again(
        self, start: Start, database_url: str
    ) -> None:
        first, second = start("bring"), start("bring")
        snapshot = first.begin()
        first.commit(snapshot, first.stage())

        with pytest.raises(StepSuperseded, match="not the last one"):
            second.commit(snapshot, second.stage())

        assert seen(database_url)["messages"] == 1

    def test_nobody_where_a_tailer_was_moved_meanwhile(
        self, start: Start, database_url: str
    ) -> None:
        run = start()
        snapshot = run.begin()
        run.connection.execute("update penstock.processor_progress set tailers = '{\"number\": 7}'")

        with pytest.raises(StepSuperseded, match="tailer of number is at 7, not at"):
            run.commit(snapshot, run.stage())

        assert seen(database_url)["messages"] == 0
        assert seen(database_url)["tailer"] == 7

    def test_nobody_who_began_before_a_start_from_scratch(
        self, start: Start, database_url: str
    ) -> None:
        run, other = start(), start()
        snapshot = run.begin()
        restart(other.run_connection, other.context.pipeline)

        with pytest.raises(StepSuperseded, match="started from scratch"):
            run.commit(snapshot, run.stage())

        assert seen(database_url)["messages"] == 0


class TestOneMoment:
    """Messages, Attempt, tailer and tables of a step are there together, or none of them is."""

    @staticmethod
    def commit(run: Run) -> None:
        """Commit a step that has made a message, a row to upsert and a row of a projection."""
        snapshot = run.begin()
        upsert = Upsert(
            "totals", (("name", "text"), ("n", "bigint")), ("name",), ("n",), NO_FRAME,
            pa.table({"name": ["all"], "n": [5]}),
        )  # fmt: skip
        fold = Projection(
            "copy", "here", lambda *_: None, StructType().add("balance", LongType()), "accounts",
            ReadHooks(),
        )  # fmt: skip
        rows = {"stream_name": ["number-1"], "balance": [7], "position": [0], "removed": [False]}
        run.commit(
            snapshot,
            run.stage(),
            delivery=Delivery("shop", snapshot, upserts=[upsert]),
            projection=fold,
            rows=pa.table(rows),
        )

    def test_until_it_is_committed_nothing_is_there(self, start: Start, database_url: str) -> None:
        run, found = start(), list[dict[str, Any]]()
        run.connection.before_commit = lambda: found.append(seen(database_url))

        self.commit(run)

        assert found == [NOTHING]

    def test_killed_before_the_commit_it_leaves_nothing(
        self, start: Start, database_url: str
    ) -> None:
        run = start()
        run.connection.before_commit = stop

        with pytest.raises(Stop):
            self.commit(run)

        assert seen(database_url) == NOTHING

    def test_killed_after_the_commit_it_leaves_all(self, start: Start, database_url: str) -> None:
        run = start()
        run.connection.after_commit = stop

        with pytest.raises(Stop):
            self.commit(run)

        assert seen(database_url) == ALL

    def test_the_cursor_of_a_source_moves_with_it(self, start: Start) -> None:
        run = start("bring")
        snapshot = run.begin()
        run.connection.before_commit = stop
        with pytest.raises(Stop):
            run.commit(snapshot, run.stage(), cursor=5)
        before = run.open().cursor

        run.connection.before_commit, run.connection.after_commit = None, stop
        with pytest.raises(Stop):
            run.commit(snapshot, run.stage(), cursor=5)

        assert (before, run.open().cursor) == (None, 5)


class TestWhatIsRead:
    def test_a_step_that_was_begun_is_taken_up_as_it_stands(
        self, start: Start, store: Store
    ) -> None:
        first, second = start(), start()
        begun = first.begin()
        store.write_message("number-1", "Numbered")

        again = begin(second.context, second.open())

        assert again == begun
        assert begun.ranges == {"number": (0, 1)}

    def test_it_is_written_down_before_it_is_read(self, start: Start, store: Store) -> None:
        snapshot = start().begin()

        records = store.get_stream_messages(state.backing_stream("shop", "copy"))
        assert [one.data["hash"] for one in records] == [snapshot.hash]

    def test_it_ends_before_a_message_that_is_not_committed(
        self, start: Start, store: Store
    ) -> None:
        run = start()
        with store.transaction() as late:
            late.write_message("number-2", "Numbered")
            store.write_message("number-1", "Numbered")

            snapshot = next_snapshot(
                run.run_connection, run.context.processor, run.open(), Remembered()
            )

        assert snapshot is not None
        assert snapshot.ranges == {"number": (0, 1)}

    def test_what_is_made_anew_from_scratch_is_read_once(
        self, start: Start, database_url: str
    ) -> None:
        maker, reader = start(), start("send")
        for _ in range(2):
            maker.commit(maker.begin(), maker.stage())
            made = seen(database_url)["messages"]
            restart(maker.run_connection, maker.context.pipeline)
        maker.commit(maker.begin(), maker.stage())

        snapshot = begin(reader.context, reader.open())

        assert made == 2
        assert snapshot is not None
        (count,) = reader.connection.execute(
            "select count(*) from message_store.messages"
            " where stream_name = 'out-1' and global_position > %s and global_position <= %s",
            snapshot.ranges["out"],
        ).fetchone() or (None,)
        assert count == 1


class TestTailers:
    def test_two_runs_place_them_at_once(self, start: Start, database_url: str) -> None:
        first, second = start(), start()

        with ThreadPoolExecutor() as threads:
            with first.connection.transaction():
                first.place(number=0)
                waiting = threads.submit(second.place, number=0, other=0)
                wait_until_blocked(database_url, 1, waiting)
            waiting.result()

        assert first.open().tailers == {"number": 0, "other": 0}

    def test_one_that_stands_somewhere_is_not_put_back(self, start: Start) -> None:
        slow, quick = start(), start()
        quick.commit(quick.begin())

        slow.place(number=0)

        assert slow.open().tailers == {"number": 1}


class TestErrors:
    """The errors queue gets a message once, and only messages of the step."""

    @pytest.fixture
    def errors(self, store: Store) -> ErrorsQueue:
        store.write_message("number-1", "Numbered")
        store.write_message("number-1", "Numbered")
        return ErrorsQueue("lost", "number", after=0, until=2)

    def test_a_message_that_two_tasks_complain_of_goes_there_once(
        self, start: Start, store: Store, errors: ErrorsQueue
    ) -> None:
        run = start()
        staged: list[Staged] = [
            errors.stage(run.run_connection, {1: "bad", 2: "worse"}),
            errors.stage(run.run_connection, {2: "bad again"}),
        ]

        once = without_repeated_errors(run.run_connection, staged)
        run.commit(run.begin(), *once)

        assert [one.count for one in once] == [2, 0]
        found = [(one.metadata or {})["error"] for one in store.read_category("lost")]
        assert found == ["bad", "worse"]

    @pytest.mark.parametrize("position", [3, 99, None], ids=["later", "no message", "none"])
    def test_a_message_that_the_step_does_not_read_is_refused(
        self, start: Start, errors: ErrorsQueue, position: int | None
    ) -> None:
        run = start()

        with pytest.raises(InvalidErrorRow):
            errors.stage(run.run_connection, {1: "bad", position: "worse"})

        count = run.connection.execute("select count(*) from penstock.staged").fetchone()
        assert count == (0,)

    def test_they_are_published_with_the_step(
        self, start: Start, store: Store, errors: ErrorsQueue
    ) -> None:
        run = start()
        snapshot = run.begin()
        staged: StagedErrors = errors.stage(run.run_connection, {1: "bad"})
        run.connection.before_commit = stop

        with pytest.raises(Stop):
            run.commit(snapshot, staged)

        assert list(store.read_category("lost")) == []
