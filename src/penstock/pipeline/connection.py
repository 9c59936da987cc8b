"""The connections of a run: one that holds its lock, and one for the steps of each processor.

Everything that a run asks of the database is an operation, run here: inside the store's
interceptors (`around`) and with typed errors. Two things are sent past it on the same connection,
since they have no rows to answer with: rows that are copied, and the tables of upserts and
projections that are created.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import psycopg

from penstock.database.execute import execute
from penstock.database.interceptor import Interceptor, intercepted
from penstock.database.operation import Operation, call, only_value
from penstock.database.server_errors import typed_errors
from penstock.loops.signals import this_process
from penstock.spark.connections import DatabaseRef, connect

Result = TypeVar("Result")
LONGEST_NAME = 63  # bytes of an application_name that PostgreSQL keeps


@dataclass(frozen=True)
class RunConnection:
    """A psycopg connection on which a run executes operations."""

    raw: psycopg.Connection[Any]
    #: host, port and database, for an error message
    where: str
    interceptors: Sequence[Interceptor] = ()

    @property
    def pid(self) -> int:
        """The server process of this connection."""
        return self.raw.info.backend_pid

    def run(self, operation: Operation[Result]) -> Result:
        """Run an operation and return its result."""
        with intercepted(self.interceptors, operation.name, operation.facts) as call:
            # not prepared: many statements contain literals, and no two of them are alike
            call.result = execute(self.raw, operation, prepare=False, where=self.where)
        return cast(Result, call.result)

    @contextmanager
    def transaction(self, *, roll_back: bool = False) -> Iterator[None]:
        """Commit the block at its end, unless it raises; or roll it back in any case."""
        with typed_errors(self.where), self.raw.transaction(force_rollback=roll_back):
            yield

    def close(self) -> None:
        """Close the connection."""
        self.raw.close()


def open_connection(
    database: DatabaseRef, label: str, interceptors: Sequence[Interceptor] = ()
) -> RunConnection:
    """Return a connection whose name in `pg_stat_activity` says what it is for."""
    connection = RunConnection(connect(database), database.where, interceptors)
    name = f"penstock {label} on {this_process()}"
    sql = "select set_config('application_name', %s, false)"
    connection.run(call("set_application_name", sql, (name[:LONGEST_NAME],), only_value))
    return connection
