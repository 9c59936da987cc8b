"""Writing frames to the log: each task stages under a token of its own, the driver publishes.

Spark may retry a task, run it twice at once, or let it continue after it was given up. Every
attempt stages under another token, and only the tokens that Spark passes to `commit` count. A
streaming query names its delivery by its id and its batch, so a batch that runs again is not
published again. A batch job is named by option `delivery`; without it, a second run writes a second
time. A large delivery is published in several transactions, so that readers of the log do not wait
for all of it. A write without a name is published in one, since a second run could not find out
what is published already.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from penstock.errors import UnavailableError
from penstock.spark.connections import DatabaseRef, connect, notify_all
from penstock.spark.options import WriteOptions
from penstock.spark.write.rows import RowsToStage
from penstock.spark.write.staging import Staged, clean_up, publish, stage

Messages = list[WriterCommitMessage | None]


@dataclass
class StagedPart(WriterCommitMessage):
    """What one task has staged, and for which streaming query."""

    staged: Staged
    partition: int
    query: str | None


class _Writer:
    def __init__(self, database: DatabaseRef, rows: RowsToStage, options: WriteOptions) -> None:
        self.database = database
        self.rows = rows
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedPart:
        """Stage the rows of one task."""
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty("sql.streaming.queryId")
        # wait for the first batch, which may take long to compute, before connecting
        batches = chain(list(islice(iterator, 1)), iterator)
        with connect(self.database) as connection:
            staged = stage(connection, self.rows, batches, self.database.where)
        return StagedPart(staged, context.partitionId(), query)

    def abort(self, messages: Messages, batchId: int = 0) -> None:  # noqa: N803
        """Remove what these tasks staged. A later sweep removes what others still stage.

        If the database is away, the sweep removes all of it: an error here would replace the one
        that ended the write.
        """
        if parts := _parts(messages):
            with suppress(UnavailableError), connect(self.database) as connection:
                clean_up(connection, [one.staged for one in parts])

    def _publish(self, messages: Messages, source: str | None, batch: int) -> None:
        parts = sorted(_parts(messages), key=lambda one: one.partition)
        with connect(self.database) as connection:
            publish(
                connection,
                source,
                batch,
                [one.staged for one in parts],
                self.database.where,
                rows_per_transaction=self.options.rows_per_transaction,
                own_ids="id" in self.rows.names,
            )
            notify_all(connection, self.database)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Writes a frame in one transaction; a large delivery in several."""

    def commit(self, messages: Messages) -> None:
        """Publish what the tasks staged."""
        delivery = self.options.delivery
        source = None if delivery is None else f"batch:{delivery}"
        self._publish(messages, source, 0)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writes each micro-batch of a query once."""

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        """Publish what the tasks of a micro-batch staged, unless that was done before."""
        query = next((one.query for one in _parts(messages)), None)
        if query is not None:
            self._publish(messages, f"query:{query}", batchId)


def _parts(messages: Messages) -> list[StagedPart]:
    return [one for one in messages if isinstance(one, StagedPart)]


def freeze_loaded_modules() -> None:
    """Exempt all loaded modules from garbage collection, in a worker that Spark reuses.

    Spark collects garbage after each task. With pyarrow, pandas and psycopg loaded, that takes
    longer than many tasks, and would free nothing.
    """
    if os.environ.get("SPARK_REUSE_WORKER"):  # not set in the user's own process
        gc.freeze()


freeze_loaded_modules()  # tasks load no more than this
