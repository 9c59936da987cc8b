"""Run an operation on a connection: one round trip, typed errors.

No other code passes an operation to psycopg. The owner of the connection begins and ends its
transactions. If none is open, an operation of several statements runs in one of its own. All its
statements are sent together.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, TypeVar

import psycopg
from psycopg.rows import tuple_row

from penstock.database.archive_read_async import complete
from penstock.database.operation import Operation, meets_archive
from penstock.database.server_errors import address_of, in_transaction, typed_errors

Result = TypeVar("Result")


async def execute(
    connection: psycopg.AsyncConnection[Any],
    operation: Operation[Result],
    *,
    prepare: bool = True,
    where: str | None = None,
) -> Result:
    """Run the operation and return its result. `where` names the database in errors."""
    *before, last = operation.statements
    cursor = psycopg.AsyncCursor(connection, row_factory=tuple_row)
    with typed_errors(where or address_of(connection)):
        if before:
            whole = nullcontext() if in_transaction(connection) else connection.transaction()
            async with whole, connection.pipeline():
                for one in before:
                    await connection.execute(one.sql, one.arguments, prepare=prepare)
                await cursor.execute(last.sql, last.arguments, prepare=prepare, binary=True)
        else:
            await cursor.execute(last.sql, last.arguments, prepare=prepare, binary=True)
        rows = await cursor.fetchall()
        if operation.archive is not None and meets_archive(operation.archive, rows):
            rows = await complete(connection, operation.archive, rows)
        return operation.decode(rows)
