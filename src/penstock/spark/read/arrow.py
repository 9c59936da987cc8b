"""Reading messages in a task: binary COPY, decoded to Arrow in C, a few megabytes at a time.

This uses the low-level interface of the ADBC driver: the DBAPI one loads pandas, which takes half a
second in each worker.

Use this in Spark's workers only. If the server goes away between two statements, the ADBC driver
aborts its process (arrow-adbc #3878). Spark replaces a worker; the driver uses `driver_read`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import lru_cache

import psycopg
import pyarrow as pa

from penstock.database.server_errors import typed_errors
from penstock.extras import from_extra
from penstock.spark.connections import CONNECT_TIMEOUT, DatabaseRef, connected
from penstock.spark.read.plan import VALUE_ERRORS, ReadPlan, raise_wrong_value
from penstock.spark.read.splits import Split
from penstock.spark.target import Target

with from_extra("spark"):
    import adbc_driver_manager as adbc
    import adbc_driver_postgresql
    from adbc_driver_manager._reader import AdbcRecordBatchReader

#: the size of a batch, so that a task's memory does not grow with its split
BATCH_BYTES = 2 * 1024 * 1024


def read_batches(
    database: DatabaseRef, target: Target, plan: ReadPlan, split: Split
) -> Iterator[pa.RecordBatch]:
    """Read a split of a target, batch by batch."""
    rows = target.rows(split.after, split.until)
    query = plan.query(rows).as_string()
    try:
        with typed_errors(database.where), _psycopg_errors(), _reader(database, query) as reader:
            for batch in reader:
                if batch.num_rows:
                    yield plan.batch(batch.columns)
    except (*VALUE_ERRORS, OSError) as error:  # Arrow reports some as OSError
        with connected(database) as connection:
            raise_wrong_value(connection, rows, plan, error)


@contextmanager
def _reader(database: DatabaseRef, query: str) -> Iterator[AdbcRecordBatchReader]:
    with (
        closing(_connect(database)) as connection,
        closing(adbc.AdbcStatement(connection)) as statement,
    ):
        statement.set_sql_query("set timezone = 'UTC'")
        statement.execute_update()
        statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(BATCH_BYTES)})
        statement.set_sql_query(query)
        stream, _ = statement.execute_query()
        with closing(AdbcRecordBatchReader._import_from_c(stream.address)) as reader:
            yield reader


def _connect(database: DatabaseRef) -> adbc.AdbcConnection:
    """Return a connection. If that fails, psycopg waits for a free one, or says what is wrong."""
    deadline = time.monotonic() + CONNECT_TIMEOUT
    while True:
        try:
            return adbc.AdbcConnection(_adbc_database(database.settings.conninfo()))
        except adbc.OperationalError:
            with connected(database):
                pass
            if time.monotonic() > deadline:
                raise


@lru_cache(maxsize=4)
def _adbc_database(conninfo: str) -> adbc.AdbcDatabase:
    """Return the ADBC driver's database object, which takes longer to create than a connection."""
    return adbc_driver_postgresql.connect(conninfo)  # type: ignore[no-any-return]


@contextmanager
def _psycopg_errors() -> Iterator[None]:
    """Raise what psycopg would: the ADBC driver reports a lost connection in several ways."""
    try:
        yield
    except adbc.Error as error:
        if error.sqlstate:
            error_class: type[psycopg.Error] = psycopg.DatabaseError
            with suppress(KeyError):
                error_class = psycopg.errors.lookup(error.sqlstate)
            raise error_class(str(error)) from error
        if isinstance(error, adbc.OperationalError):
            raise psycopg.OperationalError(str(error)) from error
        raise
