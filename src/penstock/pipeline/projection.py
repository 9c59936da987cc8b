"""Projections: a table with the current state of each stream of a category.

A step folds the new events of each stream into its row. The rows are read before and written in the
transaction that moves the tailer, so each event counts exactly once. While a projection is rebuilt,
a second table grows beside the live one; the step that catches up puts it in the live one's place.

One fold serves both shapes of a step: on the driver, and in tasks that have a stream's events
together and in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any
from uuid import UUID

import msgspec
import psycopg
import pyarrow as pa
from psycopg import sql
from psycopg.rows import dict_row
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from penstock.errors import StepFailed, WrongColumns, first_line
from penstock.message import RecordedMessage
from penstock.pipeline.graph import Processor
from penstock.pipeline.upsert import (
    columns_of,
    copy_csv,
    create_table,
    table_exists,
    table_identifier,
)
from penstock.spark.connections import DatabaseRef, connected

Fold = Callable[[dict[str, Any] | None, RecordedMessage], dict[str, Any] | None]
Connection = psycopg.Connection[Any]
CHUNK = 2_000  # streams whose rows are read in one go


@dataclass(frozen=True)
class Projection:
    """How events become rows of a table."""

    processor: str
    location: str
    fold: Fold
    columns: StructType
    #: the table to read and write: the live one, or the one that is being rebuilt
    table: str

    @property
    def schema(self) -> StructType:
        """The rows that a fold makes: which stream, its columns, and whether it is gone."""
        return StructType(
            [
                StructField("stream_name", StringType()),
                *self.columns.fields,
                StructField("position", LongType()),
                StructField("removed", BooleanType()),
            ]
        )

    def fold_frame(self, place: DatabaseRef, frame: DataFrame) -> pa.Table:
        """Fold a frame of events in tasks, each stream in one of them and in order."""
        together = frame.repartition("stream_name").sortWithinPartitions(
            "stream_name", "global_position"
        )
        return together.mapInArrow(_Folder(place, self), self.schema).toArrow()

    def fold_table(self, connection: Connection, events: pa.Table) -> pa.Table:
        """Fold events that are here."""
        ordered = events.sort_by([("stream_name", "ascending"), ("global_position", "ascending")])
        return self._rows(list(self._folded(connection, ordered.to_batches())))

    def apply(self, connection: Connection, rows: pa.Table) -> None:
        """Write what was folded."""
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

    def create(self, connection: Connection) -> None:
        """Make the table if there is none."""
        without_flag = StructType(self.schema.fields[:-1])
        create_table(connection, self.table, columns_of(without_flag), ["stream_name"])

    def _folded(
        self, connection: Connection, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[dict[str, Any]]:
        """Fold events that come by stream and in order; yield the rows they make."""
        events = (event for batch in batches for event in batch.to_pylist(maps_as_pydicts="strict"))
        streams = ((name, list(group)) for name, group in groupby(events, _stream_name))
        while chunk := [one for _, one in zip(range(CHUNK), streams, strict=False)]:
            states = self._states(connection, [name for name, _ in chunk])
            for name, group in chunk:
                yield self._fold_stream(name, states.get(name), group)

    def _fold_stream(
        self, name: str, state: dict[str, Any] | None, events: list[dict[str, Any]]
    ) -> dict[str, Any]:
        for event in events:
            try:
                state = self.fold(state, _message(event))
            except Exception as error:
                where = f"event {event['global_position']} of {name}"
                reason = f"{type(error).__name__}: {first_line(error)} (at {where})"
                raise StepFailed(self.processor, reason, self.location) from error
            self._check(state)
        row = dict.fromkeys(self.columns.fieldNames()) | (state or {})
        return row | {
            "stream_name": name,
            "position": events[-1]["position"],
            "removed": state is None,
        }

    def _check(self, state: object) -> None:
        known = set(self.columns.fieldNames())
        if state is not None and (not isinstance(state, dict) or not set(state) <= known):
            raise WrongColumns(
                f"{self.processor} returned {state!r}",
                f"it has to return a dictionary of {', '.join(sorted(known))}, or None",
            )

    def _states(self, connection: Connection, names: list[str]) -> Mapping[str, dict[str, Any]]:
        if not table_exists(connection, self.table):
            return {}
        query = sql.SQL("select * from {} where stream_name = any (%s)").format(
            table_identifier(self.table)
        )
        rows = connection.cursor(row_factory=dict_row).execute(query, (names,)).fetchall()
        return {
            row["stream_name"]: {name: row[name] for name in self.columns.fieldNames()}
            for row in rows
        }

    def _rows(self, rows: list[dict[str, Any]]) -> pa.Table:
        schema = to_arrow_schema(self.schema, timezone="UTC")
        return pa.Table.from_pylist(rows, schema=schema)


def projection_of(one: Processor, columns: StructType, *, rebuilding: bool) -> Projection:
    """Return what a declared projection does, to the live table or to the one being rebuilt."""
    assert one.keeps is not None
    table = next_table(one.keeps.table) if rebuilding else one.keeps.table
    return Projection(one.name, one.location, one.function, columns, table)


def next_table(table: str) -> str:
    """Return the name of the table that takes another's place once it is rebuilt."""
    return f"{table}__next"


def switch(connection: Connection, table: str) -> None:
    """Put the rebuilt table in the live one's place."""
    live, rebuilt = table_identifier(table), table_identifier(next_table(table))
    name = sql.Identifier(table.split(".")[-1])
    connection.execute(
        sql.SQL("drop table if exists {}; alter table {} rename to {}").format(live, rebuilt, name)
    )


class _Folder:
    """Folds what one task has."""

    def __init__(self, place: DatabaseRef, projection: Projection) -> None:
        self.place = place
        self.projection = projection

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with connected(self.place) as connection:
            rows = list(self.projection._folded(connection, batches))
        yield from self.projection._rows(rows).to_batches()


def _stream_name(event: Mapping[str, Any]) -> str:
    return str(event["stream_name"])


def _message(event: Mapping[str, Any]) -> RecordedMessage:
    """Return an event as consumers know it."""
    return RecordedMessage(
        id=UUID(event["id"]),
        stream_name=event["stream_name"],
        type=event["type"],
        position=event["position"],
        global_position=event["global_position"],
        data=_decoded(event["data"]),
        metadata=_decoded(event["metadata"]),
        time=event["time"],
    )


def _decoded(value: Any) -> Any:
    return msgspec.json.decode(value) if isinstance(value, str) else value
