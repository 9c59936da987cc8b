"""Connections for blocking code: a pool, and a transaction on one of its connections.

A connection that turns out to be dead is replaced and the operation is sent once more: that is
safe, since every operation may be repeated (a message's id is drawn before it is sent). A caller
that finds no idle connection opens one itself, or waits for one if the pool is full: `slots.py`.

`awaiting.py` is the same for async code; a test keeps the two alike.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, LiteralString, Self, TypeVar

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus

from penstock.database import connection_setup
from penstock.database.edition import Edition
from penstock.database.execute import execute, typed_errors
from penstock.database.operation import Operation
from penstock.database.slots import Slots
from penstock.database.transaction import Terms, watermark_before
from penstock.errors import (
    DatabaseUnreachable,
    TransactionAborted,
    TransactionClosed,
    TransactionTimeout,
    UnavailableError,
    ValidationError,
)
from penstock.message import check_text
from penstock.settings import Settings

Result = TypeVar("Result")
Connection = psycopg.Connection[Any]


def connect(settings: Settings, *, pooled: bool = False) -> Connection:
    """Return a connection, of its own or for a pool, or say clearly why there is none."""
    kind = PooledConnection if pooled else psycopg.Connection
    try:
        return kind.connect(settings.conninfo(), **connection_setup.connection_options(settings))
    except psycopg.Error as error:
        raise connection_setup.connection_failed(error, settings.where()) from None


class PooledConnection(psycopg.Connection[Any]):
    """A connection of a pool: to end with the program, without `close`, is normal."""

    def __del__(self, *_: object) -> None:
        """Give no warning, as psycopg does for other connections."""


class Pool:
    """A pool of connections that are set up as the settings say."""

    def __init__(self, settings: Settings, edition: Edition) -> None:
        self.settings = settings
        self.edition = edition
        self.where = settings.where()
        self._slots: Slots[Connection] = Slots(
            settings.pool_min_size, settings.pool_max_size, self.where
        )

    def close(self) -> None:
        """Close all connections; in a forked child none, since they are its parent's."""
        self._slots.close()

    def run(self, operation: Operation[Result]) -> Result:
        """Run one operation on some connection."""
        connection = self.take()
        try:
            return self.execute(connection, operation)
        except DatabaseUnreachable:
            pass  # the connection was dead
        finally:
            self.give_back(connection)
        self.drop_idle()
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
        attempts = connection_setup.Attempts(self.settings)
        while True:
            connection = self._wait_for_slot(attempts)
            if connection is not None:
                return connection
            try:
                return self._open()
            except UnavailableError as error:
                pause = attempts.pause_after(error)
            time.sleep(pause)

    def give_back(self, connection: Connection) -> None:
        """Return a connection to the pool, which closes it if the next caller cannot use it."""
        self._slots.put(connection)

    def drop_idle(self) -> None:
        """Close the connections that nobody uses: another one was found dead."""
        self._slots.drop_idle()

    def _wait_for_slot(self, attempts: connection_setup.Attempts) -> Connection | None:
        slot = self._slots.take()
        try:
            return slot.result(attempts.left())
        except TimeoutError:
            self._slots.stop_waiting(slot)
            raise connection_setup.none_came(self.settings, self._slots.lent) from None
        except BaseException:  # the caller was interrupted
            self._slots.stop_waiting(slot)
            raise

    def _open(self) -> Connection:
        """Open a connection in an empty slot, which is given back if that fails."""
        try:
            connection = connect(self.settings, pooled=True)
            self._configure(connection)
        except BaseException:
            self._slots.put(None)
            raise
        self._slots.opened(connection)
        return connection

    def _configure(self, connection: Connection) -> None:
        with typed_errors(self.where):
            connection.execute(
                connection_setup.CONFIGURE, connection_setup.session_settings(self.settings)
            )
            if connection_setup.needs_search_path(self.edition):
                connection.execute(connection_setup.PREPEND_SEARCH_PATH)


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
            self._pool.drop_idle()
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
