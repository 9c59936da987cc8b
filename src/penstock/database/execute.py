"""Run an operation on a connection: one round trip, typed errors.

These two functions are the only place where an operation meets psycopg. Transactions belong to
whoever owns the connection. Only where nobody has one open, an operation of several statements has
one of its own, since its statements belong together; they are sent in one go.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from penstock.database.operation import Operation
from penstock.errors import translate

Result = TypeVar("Result")


def execute(
    connection: psycopg.Connection[Any],
    operation: Operation[Result],
    *,
    prepare: bool = True,
    where: str | None = None,
) -> Result:
    """Run the operation and return its result. `where` names the database in errors."""
    *before, last = operation.statements
    cursor = psycopg.Cursor(connection, row_factory=tuple_row)
    with typed_errors(where or place_of(connection)):
        if before:
            whole = nullcontext() if in_transaction(connection) else connection.transaction()
            with whole, connection.pipeline():
                for one in before:
                    connection.execute(one.sql, one.arguments, prepare=prepare)
                cursor.execute(last.sql, last.arguments, prepare=prepare, binary=True)
        else:
            cursor.execute(last.sql, last.arguments, prepare=prepare, binary=True)
        return operation.decode(cursor.fetchall())


async def execute_async(
    connection: psycopg.AsyncConnection[Any],
    operation: Operation[Result],
    *,
    prepare: bool = True,
    where: str | None = None,
) -> Result:
    """Run the operation and return its result. `where` names the database in errors."""
    *before, last = operation.statements
    cursor = psycopg.AsyncCursor(connection, row_factory=tuple_row)
    with typed_errors(where or place_of(connection)):
        if before:
            whole = nullcontext() if in_transaction(connection) else connection.transaction()
            async with whole, connection.pipeline():
                for one in before:
                    await connection.execute(one.sql, one.arguments, prepare=prepare)
                await cursor.execute(last.sql, last.arguments, prepare=prepare, binary=True)
        else:
            await cursor.execute(last.sql, last.arguments, prepare=prepare, binary=True)
        return operation.decode(await cursor.fetchall())


class typed_errors:  # noqa: N801, as other context managers are named
    """Turn the server's errors into Penstock's."""

    __slots__ = ("_where",)

    def __init__(self, where: str) -> None:
        self._where = where

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, psycopg.Error):
            translated = translate(error, self._where)
            if translated is not error:
                raise translated from error


def in_transaction(connection: psycopg.BaseConnection[Any]) -> bool:
    """Whether a statement sent now is part of a transaction that the connection's owner ends."""
    idle = connection.info.transaction_status is TransactionStatus.IDLE
    return not (idle and connection.autocommit)


def place_of(connection: psycopg.BaseConnection[Any]) -> str:
    """Return host, port and database of a connection, for an error message."""
    try:
        info = connection.info
        return f"{info.host or 'localhost'}:{info.port}/{info.dbname}"
    except psycopg.Error:
        return "the server"
