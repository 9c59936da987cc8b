"""Projections: a table with the current state of each stream of a category.

A step folds the new events of each stream into its row. The rows are written in the transaction
that moves the tailer, so each event counts exactly once. While a projection is rebuilt, a second
table grows beside the live one; the step that catches up replaces the live table by it.

The same fold runs on the driver for a small step, and in tasks for a large one, where each task has
all events of its streams, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from operator import itemgetter
from typing import Any
from uuid import UUID

import psycopg
import pyarrow as pa
from psycopg import sql
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from penstock.database.operation import Operation, Row, call
from penstock.errors import StepFailed, WrongColumns, first_line
from penstock.message import RecordedMessage
from penstock.pipeline.connection import RunConnection, bare_connection
from penstock.pipeline.graph import Processor
from penstock.pipeline.hooks import ReadHooks
from penstock.pipeline.tables import (
    columns_of,
    copy_csv,
    create_table,
    identifiers,
    next_table,
    parse_schema,
    table_exists,
    table_identifier,
)
from penstock.spark.connections import DatabaseRef

Fold = Callable[[dict[str, Any] | None, RecordedMessage], dict[str, Any] | None]
CHUNK = 2_000  # streams whose rows are read in one statement


@dataclass(frozen=True)
class Projection:
    """How events become rows of a table."""

    processor: str
    location: str
    fold: Fold
    columns: StructType
    #: the table to read and write: the live one, or the one that is being rebuilt
    table: str
    hooks: ReadHooks

    @property
    def schema(self) -> StructType:
        """The rows that a fold returns: the stream, its columns, and whether it is removed."""
        return StructType(
            [
                StructField("stream_name", StringType()),
                *self.columns.fields,
                StructField("position", LongType()),
                StructField("removed", BooleanType()),
            ]
        )

    def fold_frame(self, database: DatabaseRef, frame: DataFrame) -> pa.Table:
        """Fold a frame of events in tasks, each stream in one of them and in order."""

        def fold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with bare_connection(database) as connection:
                rows = self._rows(self._folded(connection, batches))
            yield from rows.to_batches()

        together = frame.repartition("stream_name")
        ordered = together.sortWithinPartitions("stream_name", "global_position")
        return ordered.mapInArrow(fold, self.schema).toArrow()

    def fold_table(self, connection: RunConnection, events: pa.Table) -> pa.Table:
        """Fold events that the driver has read."""
        ordered = events.sort_by([("stream_name", "ascending"), ("global_position", "ascending")])
        return self._rows(self._folded(connection, ordered.to_batches()))

    def apply(self, connection: psycopg.Connection[Any], rows: pa.Table) -> None:
        """Write the folded rows."""
        self.create(connection)
        kept = rows.filter(pa.compute.invert(rows.column("removed")))
        gone = rows.filter(rows.column("removed")).column("stream_name").to_pylist()
        target = table_identifier(self.table)
        connection.execute(
            sql.SQL("delete from {} where stream_name = any (%s)").format(target),
            ([*gone, *kept.column("stream_name").to_pylist()],),
        )
        names = ["stream_name", *self.columns.fieldNames(), "position"]
        copy_csv(connection, target, names, kept)

    def create(self, connection: psycopg.Connection[Any]) -> None:
        """Create the table if there is none."""
        without_flag = StructType(self.schema.fields[:-1])
        create_table(connection, self.table, columns_of(without_flag), ["stream_name"])

    def _folded(
        self, connection: RunConnection, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[dict[str, Any]]:
        """Fold events that are sorted by stream and position; yield a row for each stream."""
        events = (event for batch in batches for event in batch.to_pylist(maps_as_pydicts="strict"))
        by_stream = groupby(events, itemgetter("stream_name"))
        streams = ((name, list(group)) for name, group in by_stream)
        while chunk := list(islice(streams, CHUNK)):
            states: Mapping[str, dict[str, Any]] = {}
            if connection.run(table_exists(self.table)):
                names, columns = [name for name, _ in chunk], self.columns.fieldNames()
                states = connection.run(projected_rows(self.table, columns, names))
            for name, group in chunk:
                yield self._fold_stream(name, states.get(name), group)

    def _fold_stream(
        self, name: str, state: dict[str, Any] | None, events: list[dict[str, Any]]
    ) -> dict[str, Any]:
        for event in events:
            try:
                state = self.fold(state, self._message(event))
            except Exception as error:
                where = f"event {event['global_position']} of {name}"
                reason = f"{type(error).__name__}: {first_line(error)} (at {where})"
                raise StepFailed(self.processor, reason, self.location) from error
            self._check(state)
        row = dict.fromkeys(self.columns.fieldNames()) | (state or {})
        own = {"stream_name": name, "position": events[-1]["position"], "removed": state is None}
        return row | own

    def _check(self, state: object) -> None:
        known = set(self.columns.fieldNames())
        if state is not None and (not isinstance(state, dict) or not set(state) <= known):
            expected = f"it has to return a dictionary of {', '.join(sorted(known))}, or None"
            raise WrongColumns(f"{self.processor} returned {state!r}", expected)

    def _message(self, event: dict[str, Any]) -> RecordedMessage:
        """Return an event as a consumer of this store gets it."""
        decoded = {
            name: self.hooks.decode(event["type"], event[name]) for name in ("data", "metadata")
        }
        return self.hooks.on_read(RecordedMessage(**event | decoded | {"id": UUID(event["id"])}))

    def _rows(self, rows: Iterable[dict[str, Any]]) -> pa.Table:
        schema = to_arrow_schema(self.schema, timezone="UTC")
        return pa.Table.from_pylist(list(rows), schema=schema)


def projection_of(one: Processor, hooks: ReadHooks, *, rebuilding: bool) -> Projection:
    """Return the projection of a processor, on the live table or on the one being rebuilt."""
    assert one.keeps is not None
    table = next_table(one.keeps.table) if rebuilding else one.keeps.table
    columns = parse_schema(one.keeps.columns)
    return Projection(one.name, one.location, one.function, columns, table, hooks)


def projected_rows(
    table: str, columns: Sequence[str], names: Sequence[str]
) -> Operation[dict[str, dict[str, Any]]]:
    """Return the rows of some streams, by stream."""

    def decode(rows: list[Row]) -> dict[str, dict[str, Any]]:
        return {row[0]: dict(zip(columns, row[1:], strict=True)) for row in rows}

    query = sql.SQL("select {} from {} where stream_name = any ({})").format(
        identifiers(["stream_name", *columns]), table_identifier(table), list(names)
    )
    return call("projected_rows", query, None, decode)


def switch(connection: psycopg.Connection[Any], table: str) -> None:
    """Replace the live table by the rebuilt one."""
    live, rebuilt = table_identifier(table), table_identifier(next_table(table))
    name = sql.Identifier(table.split(".")[-1])
    connection.execute(
        sql.SQL("drop table if exists {}; alter table {} rename to {}").format(live, rebuilt, name)
    )
