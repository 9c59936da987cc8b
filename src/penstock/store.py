"""A store for blocking code: everything Penstock does with one database. `async_store` is its twin.

A `Store` runs each operation on some connection of its pool. A `Transaction` has the same
operations and runs them on one connection, to be committed together. `store.using(connection)` has
them too, on a psycopg connection that you own, inside whatever transaction you have open there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Self, TypeVar

import psycopg

from penstock.admin.admin import OperatorCalls
from penstock.database import pool
from penstock.database.edition import Edition
from penstock.database.execute import execute, in_transaction
from penstock.database.intercepted import intercepted
from penstock.database.operation import Operation
from penstock.database.transaction import IsolationLevel, Terms, terms
from penstock.errors import ValidationError
from penstock.groups.calls import GroupCalls
from penstock.log import boundary, declaring, write
from penstock.log.calls import LogOperations
from penstock.log.context import LogContext, check_position
from penstock.log.guard import Guard
from penstock.message.conditions import QueryCondition
from penstock.message.typed import TypedMessage
from penstock.outbox.outbox import Joins, Outbox
from penstock.queues.queue import Queue
from penstock.settings import Settings

Result = TypeVar("Result")
Connection = psycopg.Connection[Any]


class Operations(LogOperations, GroupCalls):
    """All that can be done in one database: on a store, in a transaction, on your connection."""

    def queue(self, name: str) -> Queue:
        """Return the queue of this name: the stream `queue-{name}`, read through sessions."""
        return Queue(self, name)

    @property
    def outbox(self) -> Outbox:
        """Messages to be handled later, surely."""
        return Outbox(self)

    @property
    def joins(self) -> Joins:
        """Know when a set of outbox messages is all done."""
        return Joins(self)


class Transaction(pool.OpenTransaction, Operations):
    """Operations that are committed together, or not at all. Made by `store.transaction()`."""

    def __init__(self, pool: pool.Pool, terms: Terms, context: LogContext) -> None:
        super().__init__(pool, terms)
        self.context = context

    def begin(self) -> Self:
        """Begin the transaction. `store.begin_transaction()` and `with` do it for you."""
        super().begin()
        self.context = replace(self.context, watermark=self.watermark)
        return self

    def run(self, operation: Operation[Result]) -> Result:
        """Run an operation in this transaction and return its result."""
        return intercepted(self.context.interceptors, operation, super().run)

    def lock_categories(self, *categories: str) -> None:
        """Keep other writers out of these categories until the transaction ends.

        Call it first in a transaction that writes to hundreds of streams one by one.
        """
        self.run(write.lock_categories(self.context, *categories))

    def lock(self, guard: Guard | Iterable[QueryCondition]) -> None:
        """Keep others from deciding on the same boundary until the transaction ends.

        Call it first in a transaction that appends under a guard after other writes.
        """
        self.declare_missing(declaring.watched_classes(guard))
        self.run(boundary.lock_guard(self.context, guard))

    def _run_apart(self, operation: Operation[Result]) -> Result:
        return self._pool.run(operation)


class BorrowedConnection(Operations):
    """The store's operations on a psycopg connection of your own, in your transaction."""

    def __init__(self, connection: Connection, context: LogContext) -> None:
        self.connection = connection
        self.context = context

    def _remember(self, one: type[TypedMessage], *, indexed: bool) -> None:
        if not in_transaction(self.connection):  # else it may be undone
            super()._remember(one, indexed=indexed)

    def run(self, operation: Operation[Result]) -> Result:
        """Run an operation on the connection and return its result. Commits nothing."""
        return intercepted(
            self.context.interceptors, operation, lambda one: execute(self.connection, one)
        )


class Store(Operations, OperatorCalls):
    """A message store, for blocking code. Made by `penstock.connect()`; threads may share it."""

    def __init__(self, pool: pool.Pool, context: LogContext, on_close: Callable[[], None]) -> None:
        self._pool = pool
        self.context = context
        self._on_close = on_close

    @property
    def settings(self) -> Settings:
        """The settings that the store was connected with."""
        return self._pool.settings

    @property
    def edition(self) -> Edition:
        """Whose functions the database has."""
        return self.context.edition

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._pool.where} ({self.edition.value})>"

    def run(self, operation: Operation[Result]) -> Result:
        """Run an operation in a transaction of its own and return its result."""
        return intercepted(self.context.interceptors, operation, self._pool.run)

    def transaction(
        self,
        isolation: IsolationLevel | str | None = None,
        *,
        read_only: bool = False,
        timeout: float | None = None,
    ) -> Transaction:
        """Return a transaction for a `with` block: committed at its end, unless it raises.

        `timeout`, in seconds, is for the whole transaction; 30 unless the settings say otherwise.
        Above READ COMMITTED the reads of many streams are bounded by a watermark taken beforehand.
        """
        default_ms = self.settings.transaction_timeout_ms
        return Transaction(
            self._pool, terms(isolation, read_only, timeout, default_ms), self.context
        )

    def begin_transaction(
        self,
        isolation: IsolationLevel | str | None = None,
        *,
        read_only: bool = False,
        timeout: float | None = None,
    ) -> Transaction:
        """Begin a transaction that you end yourself, with `commit()` or `rollback()`."""
        return self.transaction(isolation, read_only=read_only, timeout=timeout).begin()

    def with_transaction(
        self,
        work: Callable[[Transaction], Result],
        isolation: IsolationLevel | str | None = None,
        *,
        read_only: bool = False,
        timeout: float | None = None,
    ) -> Result:
        """Call `work` with a transaction, commit it, and return what `work` returned."""
        with self.transaction(isolation, read_only=read_only, timeout=timeout) as transaction:
            return work(transaction)

    def using(self, connection: Connection, *, watermark: int | None = None) -> BorrowedConnection:
        """Return the operations on a psycopg connection of your own, in your transaction.

        To read many streams above READ COMMITTED, pass as `watermark` what `category_head("$all")`
        returned before your transaction began.
        """
        if not isinstance(connection, psycopg.Connection):
            raise ValidationError("connection", connection, "a psycopg.Connection")
        if watermark is not None:
            check_position("watermark", watermark)
        return BorrowedConnection(connection, self.context.until(watermark))

    def close(self) -> None:
        """Close all connections; leave the embedded server, which stops if nobody else uses it."""
        self._pool.close()
        self._on_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
