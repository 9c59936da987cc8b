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
_BEGIN_STAGING = "insert into penstock.stagings (token) values (%s) returning token"
_PUBLISH_DELIVERY = "select * from penstock.publish_delivery(%s, %s, %s, %s, %s, %s, %s)"
_PUBLISH_SLICE = (
    "select published, first_position, last_position, false, remaining"
    " from penstock.publish_slice(%s, %s)"
)
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


def stage(
    connection: Connection, rows: RowsToStage, batches: Iterable[pa.RecordBatch], where: str
) -> Staged:
    """Stage batches under a fresh token, in a transaction, and return what is staged."""
    token, count = uuid4(), 0
    columns = sql.SQL(", ").join(sql.Identifier(name) for name in rows.columns)
    copy = sql.SQL("copy penstock.staged (token, {}) from stdin (format csv)").format(columns)
    with typed_errors(where), connection.transaction(), connection.cursor() as cursor:
        try:
            run(connection, call("begin_staging", _BEGIN_STAGING, (token,), lambda rows: None))
        except (IncompatibleVersion, psycopg.errors.InvalidSchemaName):  # the table is not there
            raise not_installed(where) from None
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
        whole = (source, batch, *tokens_and_counts(staged), beside, rows_per_transaction, own_ids)
        first_slice = call("publish_delivery", _PUBLISH_DELIVERY, whole, _progress)
        next_slice = call("publish_slice", _PUBLISH_SLICE, (source, beside), _progress)
        published, remaining = run(connection, first_slice)
        repeated = published.repeated
        while remaining:
            published, remaining = run(connection, next_slice)
    clean_up(connection, staged)
    return replace(published, repeated=repeated)


def _progress(rows: list[Row]) -> tuple[Published, int]:
    """Return what is published of a delivery, and how many rows are left."""
    [(*published, remaining)] = rows
    return Published(*published), remaining


def clean_up(connection: Connection, staged: Sequence[Staged]) -> None:
    """Try to remove what these attempts staged. A later sweep removes what is left behind."""
    with suppress(psycopg.Error, PenstockError):
        run(connection, unstage(staged))


def unstage(staged: Sequence[Staged]) -> Operation[None]:
    """Remove what these attempts staged, and what others left behind long ago."""
    tokens, _ = tokens_and_counts(staged)
    query = "select penstock.unstage(%s), penstock.sweep_staging()"
    return call("unstage", query, (tokens,), lambda rows: None)


def tokens_and_counts(staged: Sequence[Staged]) -> tuple[list[UUID], list[int]]:
    """Return both as arrays, which the database's functions take."""
    return [one.token for one in staged], [one.count for one in staged]


def is_beside(connection: Connection) -> bool:
    """Whether this is a genuine Message DB, whose readers rely on its lock of a category."""
    return run(connection, editions.find()).edition is Edition.ON_MESSAGE_DB


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
        context = (error.diag.context or "").splitlines()
        message = str(error.diag.message_primary)
        refused = WrongValue("a row", context[0] if context else None, message, None)
        raise find_malformed(rows) or refused from None
