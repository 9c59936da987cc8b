"""Calls that meet: a batch is held under way, so that the calls made meanwhile queue in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg

from penstock import Message, new_id
from penstock.database.coalescer import MOST_UNBATCHED
from penstock.store import Store
from penstock.store_async import AsyncStore
from tests.racing import pause, wait_until_blocked

AnyStore = Store | AsyncStore | Any


def coalescer_of(store: AnyStore) -> Any:
    """Return the coalescer of a store."""
    return getattr(store, "_wrapped", store)._pool._coalescer


def waiting(store: AnyStore) -> int:
    """How many calls of a store wait for the next batch."""
    return len(coalescer_of(store)._waiting)


def wait_until_waiting(store: AnyStore, count: int, *calls: Future[Any]) -> None:
    """Return once so many calls wait; fail if one of these has ended, which had to."""
    while waiting(store) < count:
        for call in calls:
            if call.done():
                raise AssertionError(f"it did not wait: {call.result()!r}")
        pause()


class Meeting:
    """Calls that are made while a batch is under way."""

    def __init__(
        self,
        store: AnyStore,
        threads: ThreadPoolExecutor,
        holder: psycopg.Connection[Any],
        held: list[Future[Any]],
    ) -> None:
        self._store = store
        self._threads = threads
        self._holder = holder
        self._held = held
        self.calls: list[Future[Any]] = []

    def call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Future[Any]:
        """Make a call that queues, after those made before."""
        before = waiting(self._store)
        made = self._threads.submit(function, *arguments, **options)
        wait_until_waiting(self._store, before + 1, made)
        self.calls.append(made)
        return made

    def end(self) -> None:
        """End the batch that is under way; the calls made so far are sent in the next one."""
        before = waiting(self._store)
        self._holder.rollback()
        for call in self._held[:-1]:
            call.exception()
        while before and waiting(self._store) == before:  # the last one may send the next batch
            pause()

    def outcomes(self) -> list[Any]:
        """What each call returned or raised, in order."""
        return [call.exception() or call.result() for call in self.calls]


@contextmanager
def meeting(store: AnyStore, url: str, *, one_at_a_time: bool = True) -> Iterator[Meeting]:
    """Hold a batch until the block ends: all calls made in it are sent in the next one.

    Unless `one_at_a_time`, a second batch is sent when enough of them wait.

    The calls that go alone wait for locks, so the next one sends a batch. That has a message whose
    id another transaction is writing, for the end of which PostgreSQL waits.
    """
    id = new_id()
    with ThreadPoolExecutor(96) as threads:
        with psycopg.connect(url) as holder:
            holder.execute(
                "select penstock.lock_stream('held-' || n) from generate_series(1, %s) n",
                (MOST_UNBATCHED,),
            )
            holder.execute(
                "insert into message_store.messages (id, stream_name, position, type)"
                " values (%s, 'holder-1', 0, 'Held')",
                (id,),
            )
            held: list[Future[Any]] = [
                threads.submit(store.write_message, f"held-{number}", "Held")
                for number in range(1, MOST_UNBATCHED + 1)
            ]
            wait_until_blocked(url, MOST_UNBATCHED)
            held.append(threads.submit(store.append, Message("Held", id=id)))
            wait_until_blocked(url, MOST_UNBATCHED + 1)
            coalescer_of(store)._one_at_a_time = 1_000 if one_at_a_time else 0
            try:
                yield Meeting(store, threads, holder, held)
            finally:
                holder.rollback()
        for call in held:
            call.exception()


def transactions(url: str, *stream_names: str) -> int:
    """How many transactions wrote the messages of these streams, or of these categories."""
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "select count(distinct xmin::text) from message_store.messages"
            " where stream_name = any (%s) or message_store.category(stream_name) = any (%s)",
            (list(stream_names), list(stream_names)),
        ).fetchone()
    assert row is not None
    return int(row[0])


def most_in_a_transaction(url: str, category: str) -> int:
    """How many messages of a category the transaction wrote that wrote most of them."""
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "select count(*) from message_store.messages where message_store.category(stream_name)"
            " = %s group by xmin::text order by 1 desc limit 1",
            (category,),
        ).fetchone()
    assert row is not None
    return int(row[0])
