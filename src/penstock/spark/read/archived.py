"""Archived messages in the columns of a frame, read from the files of the archive.

A column is taken from the file as it is. Typed fields of `data` and `metadata` are read by Arrow,
see `json_text`; a batch with a value for which Arrow and PostgreSQL may differ is sent to
PostgreSQL, which evaluates on it the expressions that it evaluates on its own rows. So a value is
the same, or the same error, wherever its message is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql
from pyspark.sql.types import DataType

from penstock.lake.archive_range import ArchiveFile
from penstock.spark.connections import Connection
from penstock.spark.read.archive_rows import archived_messages
from penstock.spark.read.binary_rows import read_columns
from penstock.spark.read.json_text import plain_values
from penstock.spark.read.plan import VALUE_ERRORS, ReadPlan, raise_wrong_value
from penstock.spark.read.splits import Split
from penstock.spark.read.typed_fields import TEXT
from penstock.spark.target import Target

#: messages that are sent to PostgreSQL at once, to be read there
SENT_ROWS = 1_000
_TYPES = {
    "id": "uuid",
    "position": "bigint",
    "global_position": "bigint",
    "data": "jsonb",
    "metadata": "jsonb",
    "time": "timestamp",
}


def read_archived(
    connect: Callable[[], Connection],
    target: Target,
    plan: ReadPlan,
    split: Split,
    location: str,
    *,
    files: Sequence[ArchiveFile] | None = None,
    known: Any = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the archived messages of a split as batches of a frame.

    `connect` returns the connection for what the server has to read; mostly it is not called.
    `files` are those of the location, if they were found before. `known` are the positions of
    messages that are left out.
    """
    columns = plan.fields.fieldNames()
    axis = "position" if target.stream else "global_position"
    wanted = list(dict.fromkeys([*columns, axis, "global_position"]))
    for found in archived_messages(target, split.after, split.until, location, wanted, files):
        batch = found
        if known is not None and len(known):
            batch = found.filter(pa.array(~np.isin(found.column(axis).to_numpy(), known)))
        if batch.num_rows:
            yield from _in_frame(connect, plan, batch)


def _in_frame(
    connect: Callable[[], Connection], plan: ReadPlan, batch: pa.RecordBatch
) -> Iterator[pa.RecordBatch]:
    built = []
    for one, arrow in zip(plan.fields.fields, plan.schema, strict=True):
        column = _column(batch.column(one.name), one.dataType, arrow.type)
        if column is None:
            yield from _read_by_the_server(connect(), plan, batch)
            return
        built.append(column)
    yield pa.RecordBatch.from_arrays(built, schema=plan.schema)


def _column(column: Any, kind: DataType, arrow: pa.DataType) -> pa.Array | None:
    if pa.types.is_string(column.type) and kind.typeName() not in TEXT:
        return plain_values(column, kind, arrow)
    return column if column.type == arrow else pc.cast(column, arrow)


def _read_by_the_server(
    connection: Connection, plan: ReadPlan, batch: pa.RecordBatch
) -> Iterator[pa.RecordBatch]:
    """Yield the messages as PostgreSQL reads them."""
    for start in range(0, batch.num_rows, SENT_ROWS):
        rows = as_rows(batch.slice(start, SENT_ROWS))
        try:
            for columns in read_columns(connection, plan.query(rows)):
                yield plan.batch(columns)
        except VALUE_ERRORS as error:
            raise_wrong_value(connection, rows, plan, error)


def as_rows(batch: pa.RecordBatch) -> sql.Composed:
    """Return `from … where …` for messages that are sent along, as a target has for its own."""
    names = batch.schema.names
    arrays = sql.SQL(", ").join(
        sql.SQL("{}::{}[]").format(_values(batch.column(name)), sql.SQL(_TYPES.get(name, "text")))
        for name in names
    )
    columns = sql.SQL(", ").join(map(sql.Identifier, names))
    return sql.SQL("from unnest({}) as m({}) where true").format(arrays, columns)


def _values(column: Any) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        column = pc.cast(column, pa.timestamp("us"))
    return list(column.to_pylist())
