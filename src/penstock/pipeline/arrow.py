"""Reading messages as Arrow batches: COPY in binary, decoded in C, a few megabytes at a time.

The driver is used by its lower interface: the other one brings pandas along, which takes a worker
half a second to load.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import lru_cache

import adbc_driver_postgresql
import pyarrow as pa
from adbc_driver_manager import (
    AdbcConnection,
    AdbcDatabase,
    AdbcStatement,
    Error,
    OperationalError,
)
from adbc_driver_manager._reader import AdbcRecordBatchReader
from psycopg import sql

from penstock.errors import WrongValue
from penstock.pipeline.connections import PATIENCE, Place, connected, conninfo
from penstock.pipeline.cutting import Piece
from penstock.pipeline.read_plan import Plan, Typed
from penstock.pipeline.target import Target

#: what one batch may weigh, so that a task's memory does not grow with its part of the log
BATCH_BYTES = 2 * 1024 * 1024


def read_batches(
    place: Place, target: Target, plan: Plan, piece: Piece
) -> Iterator[pa.RecordBatch]:
    """Read a piece of a target, batch by batch."""
    rows = target.rows(piece.after, piece.until)
    query = (sql.SQL("select {} ").format(plan.select()) + rows).as_string()
    try:
        with _reader(place, query) as reader:
            for batch in reader:
                if batch.num_rows:
                    yield plan.batch(batch)
    # Arrow reports some as OSError
    except (Error, OSError, pa.ArrowException, WrongValue) as error:
        wrong = None if plan.null_if_wrong else _find_wrong(place, rows, plan, error)
        if wrong is None:
            raise
        raise wrong from None


@contextmanager
def _reader(place: Place, query: str) -> Iterator[AdbcRecordBatchReader]:
    with closing(_connect(place)) as connection, closing(AdbcStatement(connection)) as statement:
        statement.set_sql_query("set timezone = 'UTC'")
        statement.execute_update()
        statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(BATCH_BYTES)})
        statement.set_sql_query(query)
        stream, _ = statement.execute_query()
        with closing(AdbcRecordBatchReader._import_from_c(stream.address)) as reader:
            yield reader


def _connect(place: Place) -> AdbcConnection:
    """Return a connection. If there is none, psycopg finds out why: it waits and tells better."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return AdbcConnection(_database(conninfo(place)))
        except OperationalError:
            with connected(place):
                pass
            if time.monotonic() > deadline:
                raise


@lru_cache(maxsize=4)
def _database(address: str) -> AdbcDatabase:
    """Return the driver's idea of a database, which takes it longer to make than a connection."""
    return adbc_driver_postgresql.connect(address)  # type: ignore[no-any-return]


def _find_wrong(
    place: Place, rows: sql.Composed, plan: Plan, error: Exception
) -> WrongValue | None:
    """Return which value does not read as its type, if that is what went wrong."""
    with connected(place) as connection:
        for one in plan.typed:
            query = sql.SQL("select m.global_position, {} {} and {} limit 1").format(
                one.text, rows, _wrong(one, error)
            )
            if found := connection.execute(query).fetchone():
                return WrongValue(one.name, found[1], one.expected, found[0])
    return None


def _wrong(one: Typed, error: Exception) -> sql.Composable:
    """Return the condition for the message that has the wrong value."""
    if one.wrong is not None:
        return one.wrong
    if isinstance(error, WrongValue) and error.field == one.name:
        return sql.SQL("{} = {}").format(one.text, error.value)
    return sql.SQL("false")
