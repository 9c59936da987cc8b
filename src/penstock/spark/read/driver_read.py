"""Reading a few messages in the user's own process: through psycopg, which survives its server.

The driver that tasks read with is quicker, and aborts its process where the server goes away at the
wrong moment: see `arrow`. A worker is replaced; the user's application is not.

Values come in PostgreSQL's binary form, and columns are made of them as that driver makes them, so
that one plan serves both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
from psycopg.rows import tuple_row
from psycopg.types.string import ByteaBinaryLoader

from penstock.spark.read.read_plan import Plan
from penstock.spark.read.splits import Piece
from penstock.spark.read.target import Target
from penstock.spark.read.wrong_values import UNFIT, find_wrong

#: messages to a batch: their values are Python's for a moment
BATCH = 2_000

Values = Sequence[bytes | None]

#: how numbers lie on the wire, what they are in Arrow, and which number PostgreSQL's zero is there
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


def read_table(
    connection: psycopg.Connection[Any], target: Target, plan: Plan, piece: Piece
) -> pa.Table:
    """Return a piece of a target."""
    rows = target.rows(piece.after, piece.until)
    try:
        with connection.cursor(row_factory=tuple_row) as cursor:
            for kind in (*_NUMBERS, *_BYTES):
                cursor.adapters.register_loader(kind, ByteaBinaryLoader)  # as it comes
            cursor.execute(plan.query(rows), binary=True, prepare=False)
            return pa.Table.from_batches(_batches(cursor, plan), plan.schema)
    except UNFIT as error:
        wrong = find_wrong(connection, rows, plan, error)
        if wrong is None:
            raise
        raise wrong from None


def _batches(cursor: psycopg.Cursor[tuple[bytes | None, ...]], plan: Plan) -> Iterator[Any]:
    types = cursor.adapters.types
    kinds = [types[column.type_code].name for column in cursor.description or ()]
    while rows := cursor.fetchmany(BATCH):
        yield plan.batch(
            [_column(*one) for one in zip(kinds, zip(*rows, strict=True), strict=True)]
        )


def _column(kind: str, values: Values) -> pa.Array:
    """Return values of a type of PostgreSQL's as a column."""
    if kind in _NUMBERS:
        return _numbers(values, *_NUMBERS[kind])
    if kind == "jsonb":  # its text comes after a byte with the number of that form
        values = [None if one is None else one[1:] for one in values]
    return pa.array(values, _BYTES[kind])


def _numbers(values: Values, wire: str, arrow: pa.DataType, zero: int) -> pa.Array:
    absent = [one is None for one in values]
    nothing = bytes(np.dtype(wire).itemsize)
    raw = np.frombuffer(b"".join([nothing if one is None else one for one in values]), wire)
    numbers = raw.astype(raw.dtype.newbyteorder("="))
    column = pa.array(numbers + zero if zero else numbers, mask=np.array(absent))
    return column if column.type == arrow else column.view(arrow)
