"""Writing frames to the log: each task stages under a token of its own, the driver publishes.

A task may be tried again, run twice at once, or go on after it was given up: each time it stages
under another token, and only the tokens that Spark hands to `commit` count. A streaming query names
its delivery by its id and its batch, so that a batch that is run again is not published again; a
batch job says what its delivery is called, or accepts that a re-run repeats it. A large delivery is
published in several transactions, so that readers of the log do not wait for all of it; one without
a name is not, since a re-run could not tell what is published already.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from penstock.spark.connections import Place, connect
from penstock.spark.options import WriteOptions
from penstock.spark.worker import settle
from penstock.spark.write.outgoing import Outgoing
from penstock.spark.write.staging import Staged, clean_up, publish, stage


@dataclass
class StagedPart(WriterCommitMessage):
    """What one task has staged, and for which delivery of a streaming query."""

    staged: Staged
    partition: int
    query: str | None


class _Writer:
    def __init__(self, place: Place, outgoing: Outgoing, options: WriteOptions) -> None:
        self.place = place
        self.outgoing = outgoing
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedPart:
        """Stage the rows of one task."""
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty("sql.streaming.queryId")
        batches = _begun(iterator)
        with connect(self.place) as connection:
            staged = stage(connection, self.outgoing, batches, self.place.where)
        return StagedPart(staged, context.partitionId(), query)

    def _publish(
        self, messages: Sequence[WriterCommitMessage | None], source: str | None, batch: int
    ) -> None:
        parts = sorted(_parts(messages), key=lambda one: one.partition)
        with connect(self.place) as connection:
            publish(
                connection,
                source,
                batch,
                [one.staged for one in parts],
                self.place.where,
                rows_per_transaction=self.options.rows_per_transaction,
                own_ids="id" in self.outgoing.names,
            )

    def _give_up(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Forget what these tasks staged. What others stage later is swept some day."""
        if parts := _parts(messages):
            with connect(self.place) as connection:
                clean_up(connection, [one.staged for one in parts])


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Writes a frame, all of it or nothing; if it is a delivery, a large one in several steps."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what the tasks staged."""
        delivery = self.options.delivery
        source = None if delivery is None else f"batch:{delivery}"
        self._publish(messages, source, 0)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish nothing."""
        self._give_up(messages)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writes each micro-batch of a query once."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Publish what the tasks of a micro-batch staged, unless that was done before."""
        query = next((one.query for one in _parts(messages)), None)
        if query is not None:
            self._publish(messages, f"query:{query}", batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Publish nothing."""
        self._give_up(messages)


def _begun(iterator: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Wait for the first batch, which may take long to compute, before there is a connection."""
    return chain(list(islice(iterator, 1)), iterator)


def _parts(messages: Sequence[WriterCommitMessage | None]) -> list[StagedPart]:
    return [one for one in messages if isinstance(one, StagedPart)]


settle()  # tasks load no more than this
