"""Reading messages in a task: binary COPY, decoded to Arrow in C, a few megabytes at a time.

This uses the low-level interface of the ADBC driver: the DBAPI one loads pandas, which takes half a
second in each worker.

Both places of the log are read as of one snapshot: a transaction finds the archive's location and
reads the rows of the table, and then the archived messages are read from the files. Each message is
in one of the two, however much is archived meanwhile.

On a standby, that snapshot must be newer than the replay to the point at which it is read. So the
task waits for the replay before it begins the transaction, on the same connection, and calls
`penstock.read_at` once more in it: that checks the snapshot which is then read. See
`sql/penstock/09_replicas.sql`.

Use this in Spark's workers only. If the server goes away between two statements, the ADBC driver
aborts its process (arrow-adbc #3878). Spark replaces a worker; the driver uses `driver_read`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, lru_cache

import psycopg
import pyarrow as pa
from psycopg import sql
from pyspark import TaskContext

from penstock.database.replica import ReadPoint, Wait, replica_errors
from penstock.database.server_errors import typed_errors
from penstock.errors import ReplicaUnavailable, WrongReplica, first_line
from penstock.extras import from_extra
from penstock.lake.archive_range import ArchiveFile
from penstock.spark.connections import CONNECT_TIMEOUT, DatabaseRef, connected
from penstock.spark.read.archive_rows import archive_location, archived_matches, moved_since
from penstock.spark.read.archived import read_archived
from penstock.spark.read.plan import VALUE_ERRORS, ReadPlan, raise_wrong_value
from penstock.spark.read.splits import Split
from penstock.spark.target import Target

with from_extra("spark"):
    import adbc_driver_manager as adbc
    import adbc_driver_postgresql
    from adbc_driver_manager._reader import AdbcRecordBatchReader

log = logging.getLogger(__name__)
#: the size of a batch, so that a task's memory does not grow with its split
BATCH_BYTES = 2 * 1024 * 1024


@dataclass(frozen=True)
class PlannedFiles:
    """The files of the archive for a split, found by the driver, while the archive is as it was."""

    location: str | None
    files: tuple[ArchiveFile, ...]
    #: what the archive had at this earlier location is left out; then `files` are not used
    without: str | None = None


def read_batches(
    database: DatabaseRef,
    target: Target,
    plan: ReadPlan,
    split: Split,
    planned: PlannedFiles | None = None,
    point: ReadPoint | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read a split of a target, batch by batch: what is in the database, then what is archived.

    With a point, the database is the replica, if there is one. A replica that cannot be read is
    left for the primary, unless it has returned a batch already: then Spark starts the task again,
    and the next attempt reads the primary.
    """
    replica, may_fall_back = database.replica, database.settings.replica_fallback
    if point is None or replica is None or (may_fall_back and _is_repeated()):
        yield from _read(database, target, plan, split, planned)
        return
    begun = False
    try:
        with replica_errors(replica.where):
            for batch in _read(replica, target, plan, split, planned, point):
                begun = True
                yield batch
        return
    except ReplicaUnavailable as error:
        if begun or not may_fall_back:
            raise
        log.warning("reading the primary: %s", error)
    yield from _read(database, target, plan, split, planned)


def _is_repeated() -> bool:
    """Whether this is not the first attempt of a task."""
    task = TaskContext.get()
    return task is not None and task.attemptNumber() > 0


def _read(
    database: DatabaseRef,
    target: Target,
    plan: ReadPlan,
    split: Split,
    planned: PlannedFiles | None,
    point: ReadPoint | None = None,
) -> Iterator[pa.RecordBatch]:
    rows = target.rows(split.after, split.until)
    location = None
    try:
        with (
            typed_errors(database.where),
            _psycopg_errors(),
            snapshot(database, point) as statement,
        ):
            location = find_location(statement, target, split)
            if location is not None and target.attributes:
                target = with_archived(statement, target, split)
            with read_query(statement, plan.query(rows).as_string()) as reader:
                for batch in reader:
                    if batch.num_rows:
                        yield plan.batch(batch.columns)
    except (*VALUE_ERRORS, OSError) as error:  # Arrow reports some as OSError
        with connected(database) as connection:
            raise_wrong_value(connection, rows, plan, error)
    if location is not None:
        yield from _archived_batches(database, target, plan, split, location, planned)


def _archived_batches(
    database: DatabaseRef,
    target: Target,
    plan: ReadPlan,
    split: Split,
    location: str,
    planned: PlannedFiles | None,
) -> Iterator[pa.RecordBatch]:
    files = planned.files if planned is not None and planned.location == location else None
    known = None
    if planned is not None and planned.without is not None:
        files, known = moved_since(target, split.after, split.until, location, planned.without)
    with ExitStack() as opened:
        connect = cache(lambda: opened.enter_context(connected(database)))
        yield from read_archived(connect, target, plan, split, location, files=files, known=known)


@contextmanager
def snapshot(database: DatabaseRef, point: ReadPoint | None = None) -> Iterator[adbc.AdbcStatement]:
    """Begin a transaction whose statements all read the same snapshot.

    With a point, the database is a standby, and the snapshot is newer than its replay to there.
    """
    with (
        closing(_connect(database)) as connection,
        closing(adbc.AdbcStatement(connection)) as statement,
    ):
        _run(statement, "set timezone = 'UTC'")
        if point is not None:
            _wait_for(point, statement, database)
        _run(statement, "begin isolation level repeatable read read only")
        if point is not None:
            _read_at(point, statement, database)
        yield statement


def find_location(statement: adbc.AdbcStatement, target: Target, split: Split) -> str | None:
    """Return where the archive is if the split reaches into it."""
    query = sql.SQL("select {}").format(archive_location(target, split.after, split.until))
    with read_query(statement, query.as_string()) as reader:
        [location] = reader.read_all().column(0).to_pylist()
    return None if location is None else str(location)


def with_archived(statement: adbc.AdbcStatement, target: Target, split: Split) -> Target:
    """Return a target of attributes that knows which of its messages are archived."""
    query = archived_matches(target, split.after, split.until)
    with read_query(statement, query.as_string()) as reader:
        [positions] = reader.read_all().column(0).to_pylist()
    return replace(target, archived=tuple(positions))


@contextmanager
def read_query(statement: adbc.AdbcStatement, query: str) -> Iterator[AdbcRecordBatchReader]:
    """Read the rows of a query, batch by batch."""
    statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(BATCH_BYTES)})
    statement.set_sql_query(query)
    stream, _ = statement.execute_query()
    with closing(AdbcRecordBatchReader._import_from_c(stream.address)) as reader:
        yield reader


def _wait_for(point: ReadPoint, statement: adbc.AdbcStatement, database: DatabaseRef) -> None:
    """Return once the standby has replayed to the point, which the session notes then."""
    _run(statement, "set default_transaction_isolation = 'read committed'")
    wait = Wait(database.settings.max_replica_lag)
    while True:
        try:
            _read_at(point, statement, database)
            return
        except ReplicaUnavailable as error:
            pause = wait.pause_after(error)
        time.sleep(pause)


def _read_at(point: ReadPoint, statement: adbc.AdbcStatement, database: DatabaseRef) -> None:
    """Let a standby be read at a point in the transaction that is open, or raise."""
    arguments = sql.SQL(", ").join(sql.Literal(one) for one in point)
    try:
        _run(statement, sql.SQL("select penstock.read_at({})").format(arguments).as_string())
    except adbc.Error as error:
        reason = first_line(error)
        if error.sqlstate in WrongReplica.sqlstates:
            raise WrongReplica(reason, database.where) from None
        if error.sqlstate in ReplicaUnavailable.sqlstates:
            raise ReplicaUnavailable(database.where, reason, is_waiting=True) from None
        raise


def _run(statement: adbc.AdbcStatement, command: str) -> None:
    statement.set_sql_query(command)
    statement.execute_update()


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
