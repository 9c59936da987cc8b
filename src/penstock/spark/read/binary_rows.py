"""The rows of a query, read through psycopg as Arrow columns.

Values arrive in PostgreSQL's binary form and become the same Arrow columns as with ADBC, so one
plan serves both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
from psycopg import sql
from psycopg.rows import tuple_row
from psycopg.types.string import ByteaBinaryLoader

from penstock.spark.connections import Connection

#: rows in a batch; each value is a Python object while its batch is converted
BATCH_ROWS = 2_000

#: the binary format of each type, its Arrow type, and what PostgreSQL's zero is in Arrow
_NUMBERS: dict[str, tuple[str, pa.DataType, int]] = {
    "bool": ("?", pa.bool_(), 0),
    "int2": (">i2", pa.int16(), 0),
    "int4": (">i4", pa.int32(), 0),
    "int8": (">i8", pa.int64(), 0),
    "float4": (">f4", pa.float32(), 0),
    "float8": (">f8", pa.float64(), 0),
    "date": (">i4", pa.date32(), 10_957),  # days from 1970 to 2000
    "timestamp": (">i8", pa.timestamp("us"), 946_684_800_000_000),
}
_BYTES: dict[str, pa.DataType] = {
    "text": pa.string(),
    "varchar": pa.string(),
    "jsonb": pa.string(),
    "bytea": pa.binary(),
    "uuid": pa.binary(16),
}


def read_columns(
    connection: Connection, query: sql.Composed, *, batch_rows: int = BATCH_ROWS
) -> Iterator[list[pa.Array]]:
    """Yield the columns of a query, batch by batch."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        for kind in (*_NUMBERS, *_BYTES):
            cursor.adapters.register_loader(kind, ByteaBinaryLoader)  # unconverted
        cursor.execute(query, binary=True, prepare=False)
        yield from _batches(cursor, batch_rows)


def _batches(
    cursor: psycopg.Cursor[tuple[bytes | None, ...]], batch_rows: int
) -> Iterator[list[Any]]:
    types = cursor.adapters.types
    kinds = [types[column.type_code].name for column in cursor.description or ()]
    while rows := cursor.fetchmany(batch_rows):
        yield list(map(_column, kinds, zip(*rows, strict=True)))


def _column(kind: str, values: Sequence[bytes | None]) -> pa.Array:
    if kind in _NUMBERS:
        return _numbers(values, *_NUMBERS[kind])
    if kind == "jsonb":  # the text follows a byte with the version of the format
        values = [None if one is None else one[1:] for one in values]
    return pa.array(values, _BYTES[kind])


def _numbers(values: Sequence[bytes | None], wire: str, arrow: pa.DataType, zero: int) -> pa.Array:
    absent = [one is None for one in values]
    nothing = bytes(np.dtype(wire).itemsize)
    raw = np.frombuffer(b"".join([nothing if one is None else one for one in values]), wire)
    numbers = raw.astype(raw.dtype.newbyteorder("="))
    column = pa.array(numbers + zero if zero else numbers, mask=np.array(absent))
    return column if column.type == arrow else column.view(arrow)
