"""Reading messages in a task: COPY in binary, decoded in C to Arrow, a few megabytes at a time.

The driver is used by its lower interface: the other one brings pandas along, which takes a worker
half a second to load.

Not for the user's own process: where the server goes away between two statements, this driver
aborts the process it is in (arrow-adbc #3878). Spark starts another worker; see `driver_read`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import lru_cache

import psycopg
import pyarrow as pa

from penstock.database.server_errors import typed_errors
from penstock.extras import from_extra
from penstock.spark.connections import PATIENCE, Place, connected, conninfo
from penstock.spark.read.read_plan import Plan
from penstock.spark.read.splits import Piece
from penstock.spark.read.target import Target
from penstock.spark.read.wrong_values import UNFIT, find_wrong

with from_extra("spark"):
    import adbc_driver_postgresql
    from adbc_driver_manager import (
        AdbcConnection,
        AdbcDatabase,
        AdbcStatement,
        Error,
        OperationalError,
    )
    from adbc_driver_manager._reader import AdbcRecordBatchReader

#: what one batch may weigh, so that a task's memory does not grow with its part of the log
BATCH_BYTES = 2 * 1024 * 1024


def read_batches(
    place: Place, target: Target, plan: Plan, piece: Piece
) -> Iterator[pa.RecordBatch]:
    """Read a piece of a target, batch by batch."""
    rows = target.rows(piece.after, piece.until)
    query = plan.query(rows).as_string()
    try:
        with typed_errors(place.where), _psycopg_errors(), _reader(place, query) as reader:
            for batch in reader:
                if batch.num_rows:
                    yield plan.batch(batch.columns)
    except (*UNFIT, OSError) as error:  # Arrow reports some as OSError
        with connected(place) as connection:
            wrong = find_wrong(connection, rows, plan, error)
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


@contextmanager
def _psycopg_errors() -> Iterator[None]:
    """Raise what psycopg would: this driver tells the end of a connection in several ways."""
    try:
        yield
    except Error as error:
        if error.sqlstate:
            raise _error_class(error.sqlstate)(str(error)) from error
        if isinstance(error, OperationalError):
            raise psycopg.OperationalError(str(error)) from error
        raise


def _error_class(code: str) -> type[psycopg.Error]:
    try:
        return psycopg.errors.lookup(code)
    except KeyError:
        return psycopg.DatabaseError
