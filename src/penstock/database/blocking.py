"""Connections for blocking code: a pool, and a transaction on one of its connections.

A connection that turns out to be dead is replaced and the operation is sent once more: that is
safe, since every operation may be repeated (a message's id is drawn before it is sent). While the
server is away, waiting for the pool is interrupted to look whether the server answers at all, so
that the caller learns which it is: no server, or no free connection. Asking the pool anew also
makes it try again, where a server that was full or starting up had made it give up.

`awaiting.py` is the same for async code; a test keeps the two alike.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, LiteralString, Self, TypeVar

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from penstock.database import session
from penstock.database.edition import Edition
from penstock.database.execute import execute, typed_errors
from penstock.database.operation import Operation
from penstock.database.transaction import Terms, watermark_before
from penstock.errors import (
    DatabaseUnreachable,
    StoreClosed,
    TransactionAborted,
    TransactionClosed,
    TransactionTimeout,
    ValidationError,
)
from penstock.message import check_text
from penstock.settings import Settings

Result = TypeVar("Result")
Connection = psycopg.Connection[Any]


def connect(settings: Settings) -> Connection:
    """Return one connection of its own, or say clearly why there is none."""
    try:
        return psycopg.connect(settings.conninfo(), **session.connection_options(settings))
    except psycopg.Error as error:
        raise session.connection_failed(error, settings.where()) from None


class Pool:
    """A pool of connections that are set up as the settings say."""

    def __init__(self, settings: Settings, edition: Edition) -> None:
        self.settings = settings
        self.edition = edition
        self.where = settings.where()
        self._looking = threading.Lock()
        self._process = os.getpid()
        self._lent: set[int] = set()  # not the connections: one that is forgotten must close
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            settings.conninfo(),
            configure=self._configure,
            open=False,
            **session.pool_options(settings),
        )

    def open(self) -> None:
        """Start to make connections."""
        self._pool.open()

    def close(self) -> None:
        """Close all connections; in a forked child none, since they are its parent's."""
        if os.getpid() == self._process:
            self._pool.close()

    def run(self, operation: Operation[Result]) -> Result:
        """Run one operation on some connection."""
        connection = self.take()
        try:
            return self.execute(connection, operation)
        except DatabaseUnreachable:
            pass  # the connection was dead
        finally:
            self.give_back(connection)
        self.look_over()
        connection = self.take()
        try:
            return self.execute(connection, operation)
        finally:
            self.give_back(connection)

    def execute(self, connection: Connection, operation: Operation[Result]) -> Result:
        """Run one operation on this connection."""
        return execute(connection, operation, where=self.where)

    def take(self) -> Connection:
        """Take a connection out of the pool. Give it back with `give_back`."""
        if os.getpid() != self._process:  # two processes would read each other's answers
            raise StoreClosed(self.where)
        deadline = time.monotonic() + self.settings.pool_timeout_ms / 1000
        patience = 1.0
        try:
            while (left := deadline - time.monotonic()) > 0:
                try:
                    connection = self._pool.getconn(timeout=min(patience, left))
                except PoolTimeout:
                    self._look()
                    patience *= 2
                else:
                    self._lent.add(id(connection))
                    return connection
        except PoolClosed:
            raise StoreClosed(self.where) from None
        raise session.none_came(self.settings, len(self._lent))

    def give_back(self, connection: Connection) -> None:
        """Return a connection to the pool, which drops it if it is broken."""
        self._lent.discard(id(connection))
        self._pool.putconn(connection)

    def look_over(self) -> None:
        """Drop the connections that are dead."""
        self._pool.check()

    def _look(self) -> None:
        """Raise if the server does not answer. One thread looks while the others wait for it."""
        with self._looking:
            connect(self.settings).close()

    def _configure(self, connection: Connection) -> None:
        connection.execute(session.CONFIGURE, session.session_settings(self.settings))
        if session.needs_search_path(self.edition):
            connection.execute(session.PREPEND_SEARCH_PATH)


class OpenTransaction:
    """A transaction on a connection of its own, which goes back to the pool when it ends."""

    def __init__(self, pool: Pool, terms: Terms) -> None:
        self._pool = pool
        self._terms = terms
        self._connection: Connection | None = None
        self._deadline = 0.0
        self.watermark: int | None = None

    def begin(self) -> Self:
        """Begin the transaction, on a connection that is alive."""
        if self._connection is not None:
            raise ValidationError("transaction", self, "ended before it is begun again")
        connection = self._pool.take()
        try:
            self._begin(connection)
        except DatabaseUnreachable:
            self._pool.look_over()
            self._begin(self._pool.take())
        return self

    @property
    def connection(self) -> Connection:
        """The psycopg connection, for SQL of your own inside this transaction."""
        if self._connection is None:
            raise TransactionClosed
        return self._connection

    @property
    def is_active(self) -> bool:
        """Whether the transaction can still be used: not ended, not lost, not out of time."""
        return (
            self._connection is not None
            and not self._connection.closed
            and self._connection.info.transaction_status is not TransactionStatus.IDLE
            and time.monotonic() < self._deadline
        )

    def run(self, operation: Operation[Result]) -> Result:
        """Run one operation in this transaction."""
        self._check_usable()
        try:
            return self._pool.execute(self.connection, operation)
        except DatabaseUnreachable:
            self._check_usable()  # the server may have ended it because its time was up
            raise

    def commit(self) -> None:
        """Make all that was written visible, or raise: then nothing was written.

        Only a connection lost at this very moment leaves it open; then a retry with the same
        message ids finds out.
        """
        self._check_usable()
        if self._end("commit") != "COMMIT":
            raise TransactionAborted

    def rollback(self) -> None:
        """Undo all that was written. Does nothing if the transaction has ended already."""
        if self._connection is not None:
            # the server rolls back what it lost, and what it ended itself
            with suppress(DatabaseUnreachable, TransactionTimeout):
                self._end("rollback")

    def savepoint(self, name: str) -> None:
        """Mark a point that `rollback_to_savepoint` can go back to."""
        self._control(sql.SQL("savepoint {}"), name)

    def rollback_to_savepoint(self, name: str) -> None:
        """Undo what was written since the savepoint, and go on from there."""
        self._control(sql.SQL("rollback to savepoint {}"), name)

    def release_savepoint(self, name: str) -> None:
        """Forget a savepoint and keep what was written since."""
        self._control(sql.SQL("release savepoint {}"), name)

    @contextmanager
    def nested(self) -> Iterator[Self]:
        """Undo only the block, and not the transaction, if the block raises."""
        self._check_usable()
        with typed_errors(self._pool.where), self.connection.transaction():
            yield self

    def __enter__(self) -> Self:
        return self.begin()

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        if error_type is not None:
            self.rollback()
        elif self._connection is not None:
            self.commit()

    def _begin(self, connection: Connection) -> None:
        try:
            if self._terms.isolation.keeps_its_snapshot and self._pool.edition.has_watermark:
                self.watermark = self._pool.execute(connection, watermark_before())
            # never after the server's own: so who comes too late always learns why
            self._deadline = self._terms.deadline()
            with typed_errors(self._pool.where):
                connection.execute(self._terms.begin(connection.info.server_version))
        except BaseException:
            self._pool.give_back(connection)
            raise
        self._connection = connection

    def _control(self, statement: sql.SQL, name: str) -> None:
        check_text("savepoint", name)
        self._check_usable()
        with typed_errors(self._pool.where):
            self.connection.execute(statement.format(sql.Identifier(name)))

    def _end(self, how: LiteralString) -> str | None:
        connection, self._connection = self.connection, None
        try:
            with typed_errors(self._pool.where):
                cursor = connection.execute(how)
                return cursor.statusmessage
        finally:
            self._pool.give_back(connection)

    def _check_usable(self) -> None:
        if self._connection is None:
            raise TransactionClosed
        if time.monotonic() >= self._deadline:
            self.rollback()
            raise TransactionTimeout(self._pool.where, self._terms.expired())
        if self._connection.pgconn.transaction_status == TransactionStatus.IDLE:
            self.rollback()  # it was ended past us, with SQL of the caller's own
            raise TransactionClosed
