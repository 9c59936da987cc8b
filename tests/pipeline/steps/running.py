"""Runs steps of processors, one at a time, and reads what they have published."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import psycopg
from pyspark.sql import DataFrame, SparkSession

from penstock import Interceptor, Message, RecordedMessage, Store
from penstock.database.interceptor import Call
from penstock.database.server_errors import typed_errors
from penstock.pipeline import Pipeline, Runner, StepReport, Summary, Timing
from penstock.pipeline.attempt import StepContext
from penstock.pipeline.connection import RunConnection
from penstock.pipeline.frames import DRIVER_ROWS
from penstock.pipeline.state import backing_stream
from penstock.pipeline.status import ProcessorStatus, processors
from penstock.pipeline.step import run_step
from penstock.spark.connections import DatabaseRef, connect


class Watched(psycopg.Connection[Any]):
    """A connection that can be stopped just before and just after a step is committed."""

    before_commit: Callable[[], None] | None = None  # all of it is written by then
    after_commit: Callable[[], None] | None = None
    _commits_step = False

    def for_a_run(self, interceptors: Sequence[Interceptor] = ()) -> RunConnection:
        """Return it as a run uses it."""
        return RunConnection(self, "here", (*interceptors, _NoticesCommits(self)))

    @contextmanager
    def transaction(
        self, savepoint_name: str | None = None, force_rollback: bool = False
    ) -> Iterator[psycopg.Transaction]:
        self._commits_step = False
        with super().transaction(savepoint_name, force_rollback) as transaction:
            yield transaction
            if self._commits_step and self.before_commit is not None:
                self.before_commit()
        if self._commits_step and self.after_commit is not None:
            self.after_commit()


class _NoticesCommits(Interceptor):
    """Notices that the transaction of a connection commits a step."""

    def __init__(self, connection: Watched) -> None:
        self._connection = connection

    def around(self, call: Call) -> AbstractContextManager[None]:
        self._connection._commits_step |= call.name == "commit_step"
        return nullcontext()


class Harness:
    """Runs processors on one database and one Spark."""

    def __init__(
        self,
        store: Store,
        spark: SparkSession,
        *,
        driver_rows: int = DRIVER_ROWS,
        timing: Timing | None = None,
    ) -> None:
        self.store = store
        self.spark = spark
        self.database = DatabaseRef(store.settings)
        #: up to here a step is the driver's, beyond it the executors'
        self.driver_rows = driver_rows
        self.timing = timing
        self._open = ExitStack()

    def close(self) -> None:
        """Close all connections."""
        self._open.close()

    def context(
        self,
        pipe: Pipeline,
        processor: str | None = None,
        *,
        before_commit: Callable[[], None] | None = None,
        after_commit: Callable[[], None] | None = None,
    ) -> StepContext:
        """Return a context for a processor, as a run that has just begun has one."""
        name = processor or next(iter(pipe.processors))
        connection = Watched.connect(self.database.settings.conninfo(), autocommit=True)
        connection.before_commit, connection.after_commit = before_commit, after_commit
        self._open.callback(connection.close)
        connection.execute("set timezone = 'UTC'; set enable_sort = off")
        return StepContext(
            pipe, pipe.processors[name], self.database,
            connection.for_a_run(self.store.context.interceptors), self.spark,
            driver_rows=self.driver_rows,
        )  # fmt: skip

    def step(self, pipe: Pipeline, processor: str | None = None) -> StepReport | None:
        """Run one step, as a run that has just begun."""
        with typed_errors(self.database.where):
            return run_step(self.context(pipe, processor))

    def steps(self, pipe: Pipeline, processor: str | None = None) -> list[StepReport]:
        """Run steps until there is nothing to do, as one run."""
        context = self.context(pipe, processor)
        with typed_errors(self.database.where):
            return list(iter(lambda: run_step(context), None))

    def run(self, pipe: Pipeline) -> Summary:
        """Run the whole pipeline until it is idle."""
        return self.runner(pipe).run_until_idle(check=False)

    def runner(self, pipe: Pipeline, **options: Any) -> Runner:
        """Return a runner of the pipeline."""
        options = {"driver_rows": self.driver_rows, "timing": self.timing, **options}
        return Runner(pipe, self.store, self.spark, **options)

    def write(self, queue: str, *numbers: int, type: str = "Numbered", **facts: Any) -> None:
        """Write numbers, each to a stream of its own, or all to one if the queue is a stream."""
        for number in numbers:
            stream = queue if "-" in queue else f"{queue}-{number}"
            self.store.write_messages(stream, [Message(type, {"n": number, **facts})])

    def messages(self, queue: str) -> list[RecordedMessage]:
        """Return what is in a queue, in the order of the log."""
        if "-" in queue:
            return self.store.get_stream_messages(queue)
        return list(self.store.read_category(queue))

    def numbers(self, queue: str) -> list[int]:
        """Return the numbers in a queue, in the order of the log."""
        return [one.data["n"] for one in self.messages(queue)]

    def records(self, pipe: Pipeline, processor: str | None = None) -> list[RecordedMessage]:
        """Return the backing stream of a processor."""
        name = processor or next(iter(pipe.processors))
        return self.store.get_stream_messages(backing_stream(pipe.name, name))

    def status(self, pipe: Pipeline, processor: str | None = None) -> ProcessorStatus:
        """Return how a processor stands."""
        name = processor or next(iter(pipe.processors))
        found = {(one.pipeline, one.processor): one for one in processors(self.store)}
        return found[pipe.name, name]

    def execute(self, statement: str) -> None:
        """Do something to the database."""
        with connect(self.database) as connection:
            connection.execute(statement.encode())

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return what a query finds."""
        with connect(self.database) as connection:
            return connection.execute(query.encode()).fetchall()


def renumbered(frame: DataFrame, change: str = "n", type: str = "Renumbered") -> DataFrame:
    """Return the messages with other numbers, each following from its own."""
    return frame.selectExpr(
        "id", "global_position", "metadata", f"'{type}' as type",
        f"to_json(named_struct('n', {change})) as data",
    )  # fmt: skip


def numbered(frame: DataFrame) -> DataFrame:
    """Return the messages with their number in a column."""
    return frame.selectExpr("*", "cast(get_json_object(data, '$.n') as bigint) as n")


def numbers_in(frame: DataFrame) -> list[int]:
    """Return the numbers in a frame of messages, in the order of the log."""
    return [row.n for row in numbered(frame).orderBy("global_position").collect()]


def pipeline(schema: str | None = None) -> Pipeline:
    """Return a pipeline that knows the queue `number`, and does nothing yet."""
    pipe = Pipeline("shop")
    pipe.schema("number", schema)
    return pipe


class Stop(BaseException):
    """The process ends here."""


def stop() -> None:
    """End the process here."""
    raise Stop
