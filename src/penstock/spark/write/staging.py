"""Stage rows under a token, and publish exactly what certain tokens hold.

The rules are in `50_staging.sql` and `51_deliveries.sql`. Rows are sent as CSV, which Arrow writes
and COPY reads, both in C. PostgreSQL parses JSON and ids while rows are staged, in parallel, so
the publishing transaction is short.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pyarrow as pa
import pyarrow.csv
from psycopg import sql

from penstock.database import edition as editions
from penstock.database.edition import Edition
from penstock.database.operation import Operation, Row, call
from penstock.database.server_errors import typed_errors
from penstock.errors import IncompatibleVersion, PenstockError, WrongValue
from penstock.spark.connections import Connection, not_installed, run
from penstock.spark.write.rows import RowsToStage, find_malformed

CHUNK_ROWS = 20_000  # converted and sent at a time
_AS_CSV = pa.csv.WriteOptions(include_header=False, quoting_style="all_valid")


@dataclass(frozen=True)
class Staged:
    """What one attempt has staged."""

    token: UUID
    count: int


@dataclass(frozen=True)
class Published:
    """The messages that a delivery has published."""

    count: int
    first_position: int | None
    last_position: int | None
    #: an earlier call published the delivery, or began to
    repeated: bool = False


@dataclass(frozen=True)
class Progress:
    """How much of a delivery is published."""

    published: Published
    #: the rows that are left
    remaining: int


def stage(
    connection: Connection, rows: RowsToStage, batches: Iterable[pa.RecordBatch], where: str
) -> Staged:
    """Stage batches under a fresh token, in a transaction, and return what is staged."""
    token, count = uuid4(), 0
    copy = _copy(rows)
    with typed_errors(where), connection.transaction(), connection.cursor() as cursor:
        _begin(connection, token, where)
        for batch in batches:
            for start in range(0, batch.num_rows, CHUNK_ROWS):
                chunk = rows.of(batch.slice(start, CHUNK_ROWS), count)
                _copy_rows(cursor, copy, token, chunk)
                count += chunk.num_rows
    return Staged(token, count)


def publish(
    connection: Connection,
    source: str | None,
    batch: int,
    staged: Sequence[Staged],
    where: str,
    *,
    rows_per_transaction: int | None = None,
    own_ids: bool = False,
) -> Published:
    """Publish what is staged, once for a source and batch, and remove the staged rows.

    In one transaction; or in several, if there is a source and more than `rows_per_transaction`. If
    it fails in between, the next call for that source and batch continues with these rows.
    `own_ids`: whether the ids are the writer's, so that some may exist already.
    """
    with typed_errors(where):
        beside = is_beside(connection)
        progress = run(
            connection,
            publish_delivery(source, batch, staged, beside, rows_per_transaction, own_ids),
        )
        repeated = progress.published.repeated
        while progress.remaining:
            progress = run(connection, publish_slice(source, beside))
    clean_up(connection, staged)
    return replace(progress.published, repeated=repeated)


def publish_delivery(
    source: str | None,
    batch: int,
    staged: Sequence[Staged],
    beside: bool,
    rows_per_transaction: int | None,
    own_ids: bool,
) -> Operation[Progress]:
    """Publish a delivery, or its first slice."""

    def decode(rows: list[Row]) -> Progress:
        [(count, first, last, repeated, remaining)] = rows
        return Progress(Published(count, first, last, repeated), remaining)

    return call(
        "publish_delivery",
        "select * from penstock.publish_delivery(%s, %s, %s, %s, %s, %s, %s)",
        (source, batch, *tokens_and_counts(staged), beside, rows_per_transaction, own_ids),
        decode,
    )


def publish_slice(source: str | None, beside: bool) -> Operation[Progress]:
    """Publish the next slice of a delivery."""

    def decode(rows: list[Row]) -> Progress:
        [(count, first, last, remaining)] = rows
        return Progress(Published(count, first, last), remaining)

    return call(
        "publish_slice", "select * from penstock.publish_slice(%s, %s)", (source, beside), decode
    )


def clean_up(connection: Connection, staged: Sequence[Staged]) -> None:
    """Try to remove what these attempts staged. A later sweep removes what is left behind."""
    with suppress(psycopg.Error, PenstockError):
        run(connection, unstage(staged))


def unstage(staged: Sequence[Staged]) -> Operation[None]:
    """Remove what these attempts staged, and what others left behind long ago."""
    tokens, _ = tokens_and_counts(staged)
    return call(
        "unstage",
        "select penstock.unstage(%s), penstock.sweep_staging()",
        (tokens,),
        lambda rows: None,
    )


def tokens_and_counts(staged: Sequence[Staged]) -> tuple[list[UUID], list[int]]:
    """Return both as arrays, which the database's functions take."""
    return [one.token for one in staged], [one.count for one in staged]


def is_beside(connection: Connection) -> bool:
    """Whether this is a genuine Message DB, whose readers rely on its lock of a category."""
    return run(connection, editions.find()).edition is Edition.ON_MESSAGE_DB


def begin_staging(token: UUID) -> Operation[None]:
    """Record a token, before its rows are staged."""
    return call(
        "begin_staging",
        "insert into penstock.stagings (token) values (%s) returning token",
        (token,),
        lambda rows: None,
    )


def _begin(connection: Connection, token: UUID, where: str) -> None:
    try:
        run(connection, begin_staging(token))
    except (IncompatibleVersion, psycopg.errors.InvalidSchemaName):  # the table is not there
        raise not_installed(where) from None


def _copy(rows: RowsToStage) -> sql.Composed:
    return sql.SQL("copy penstock.staged (token, {}) from stdin (format csv)").format(
        sql.SQL(", ").join(sql.Identifier(name) for name in rows.columns)
    )


def _copy_rows(
    cursor: psycopg.Cursor[Any], copy: sql.Composed, token: UUID, rows: pa.Table
) -> None:
    tokens = pa.array([str(token)] * rows.num_rows, pa.string())
    text = io.BytesIO()
    pa.csv.write_csv(rows.add_column(0, "token", tokens), text, _AS_CSV)
    try:
        with cursor.copy(copy) as stream:
            stream.write(text.getbuffer())
    except psycopg.DataError as error:
        raise find_malformed(rows) or _refused(error) from None


def _refused(error: psycopg.DataError) -> WrongValue:
    context = (error.diag.context or "").splitlines()
    return WrongValue(
        "a row", context[0] if context else None, str(error.diag.message_primary), None
    )
