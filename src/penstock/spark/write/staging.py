"""Stage rows under a token, and publish exactly what certain tokens hold.

The rules are in `50_staging.sql` and `51_deliveries.sql`. Rows travel as CSV, which Arrow writes
and COPY reads, both in C; PostgreSQL parses JSON and ids while they are staged, in parallel, so
that the transaction that publishes has little left to do.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pyarrow as pa
import pyarrow.csv
from psycopg import sql

from penstock.database import edition as editions
from penstock.database.edition import Edition
from penstock.database.execute import execute, typed_errors
from penstock.errors import WrongValue
from penstock.spark.connections import not_installed
from penstock.spark.write.outgoing import Outgoing, find_malformed

CHUNK = 20_000  # rows in one go
_AS_CSV = pa.csv.WriteOptions(include_header=False, quoting_style="all_valid")

Connection = psycopg.Connection[Any]


@dataclass(frozen=True)
class Staged:
    """What one attempt has staged."""

    token: UUID
    count: int


@dataclass(frozen=True)
class Published:
    """What a delivery made of it."""

    count: int
    first_position: int | None
    last_position: int | None
    #: an earlier call had published it already, or had begun to
    repeated: bool = False


def stage(
    connection: Connection, outgoing: Outgoing, batches: Iterable[pa.RecordBatch], where: str
) -> Staged:
    """Stage batches under a fresh token, in a transaction, and return what is there."""
    token, count = uuid4(), 0
    copy = _copy(outgoing)
    with typed_errors(where), connection.transaction(), connection.cursor() as cursor:
        _begin(cursor, token, where)
        for batch in batches:
            for start in range(0, batch.num_rows, CHUNK):
                rows = outgoing.rows(batch.slice(start, CHUNK), count)
                _copy_rows(cursor, copy, token, rows)
                count += rows.num_rows
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
    """Publish what is staged, once for a source and batch, and forget the staging.

    In one transaction; or in several, if there is a source and more than `rows_per_transaction`. If
    it fails in between, the next call for that source and batch goes on with the rows of this one.
    `own_ids`: whether the ids are the writer's, so that some may exist already.
    """
    with typed_errors(where):
        beside = is_beside(connection)
        count, first, last, repeated, remaining = _row(
            connection.execute(
                "select * from penstock.publish_delivery(%s, %s, %s, %s, %s, %s, %s)",
                (
                    *(source, batch, *tokens_and_counts(staged)),
                    *(beside, rows_per_transaction, own_ids),
                ),
            )
        )
        while remaining:
            count, first, last, remaining = _row(
                connection.execute("select * from penstock.publish_slice(%s, %s)", (source, beside))
            )
    with suppress(psycopg.Error):  # it is published: what is left behind is swept some day
        clean_up(connection, staged)
    return Published(count, first, last, repeated)


def clean_up(connection: Connection, staged: Sequence[Staged]) -> None:
    """Forget what these attempts staged, and what others left behind long ago."""
    tokens, _ = tokens_and_counts(staged)
    connection.execute("select penstock.unstage(%s), penstock.sweep_staging()", (tokens,))


def tokens_and_counts(staged: Sequence[Staged]) -> tuple[list[UUID], list[int]]:
    """Return both, as the database's functions take them."""
    return [one.token for one in staged], [one.count for one in staged]


def is_beside(connection: Connection) -> bool:
    """Whether a genuine Message DB is here, whose readers rely on its lock of a category."""
    return execute(connection, editions.find()).edition is Edition.ON_MESSAGE_DB


def _row(cursor: psycopg.Cursor[Any]) -> tuple[Any, ...]:
    row: tuple[Any, ...] | None = cursor.fetchone()
    assert row is not None
    return row


def _begin(cursor: psycopg.Cursor[Any], token: UUID, where: str) -> None:
    try:
        cursor.execute("insert into penstock.stagings (token) values (%s)", (token,))
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        raise not_installed(where) from None


def _copy(outgoing: Outgoing) -> sql.Composed:
    return sql.SQL("copy penstock.staged (token, {}) from stdin (format csv)").format(
        sql.SQL(", ").join(sql.Identifier(name) for name in outgoing.staged)
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
    place = (error.diag.context or "").splitlines()
    return WrongValue("a row", place[0] if place else None, str(error.diag.message_primary), None)
