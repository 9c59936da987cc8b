"""What tests of the outbox share: time that passes on request, and a look behind the surface."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import psycopg

from penstock import ClaimedMessage, Dispatcher, Join, JoinId, OutboxMessageId, Store
from penstock.outbox import dispatcher, dispatcher_async
from penstock.outbox.dispatch_loop import DispatchLoop
from penstock.outbox.dispatch_loop_async import AsyncDispatchLoop
from penstock.outbox.in_progress import DispatchOptions
from penstock.outbox.messages import WAIT_TOPIC
from tests.both_ways import BlockingFacade, way_of

Result = TypeVar("Result")

_BLOCKED = (
    "select exists (select from pg_stat_activity"
    " where datname = current_database() and wait_event_type = 'Lock')"
)


def sql(store: Store, statement: str, *arguments: object) -> list[tuple[Any, ...]]:
    """Run a statement on the store's database, past the store."""
    with psycopg.connect(store.settings.conninfo(), autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), arguments)
        return cursor.fetchall() if cursor.description else []


def new_dispatcher(store: Any, **options: Any) -> Dispatcher:
    """Return a dispatcher of the store's form, blocking or async; both have blocking methods."""
    made: Dispatcher = way_of(store).Dispatcher(store, **options)
    return made


def unwrapped(store: Any) -> Any:
    """Return the store behind a facade, if it is one."""
    return store._wrapped if isinstance(store, BlockingFacade) else store


def new_dispatch_loop(store: Any, options: DispatchOptions) -> DispatchLoop:
    """Return the loop of a dispatcher that has no handlers, in the store's form."""
    if isinstance(store, BlockingFacade):
        waiting = {WAIT_TOPIC: dispatcher_async.WAITING}
        loop: Any = AsyncDispatchLoop(unwrapped(store), waiting, options)
        return BlockingFacade(store._thread, loop)  # type: ignore[return-value]
    return DispatchLoop(store, {WAIT_TOPIC: dispatcher.WAITING}, options)


def end_leases(store: Store) -> None:
    """Let an hour pass for all leases."""
    sql(
        store,
        "update penstock.outbox set lease_until = lease_until - interval '1 hour'"
        " where state = 'in_progress'",
    )


def become_due(store: Store) -> None:
    """Let the time come for all messages that have one."""
    sql(
        store,
        "update penstock.outbox set due = clock_timestamp()"
        " where state = 'ready' and due is not null",
    )


def time_out_joins(store: Store) -> None:
    """Let the time run out for all joins, and wake their waits as it would."""
    sql(
        store,
        "update penstock.joins set times_out_at = times_out_at - interval '1 day'"
        " where times_out_at is not null",
    )
    become_due(store)


def claim_one(store: Store, owner: str = "me") -> ClaimedMessage:
    """Claim exactly one message."""
    [message] = store.outbox.claim(owner)
    return message


def counters(store: Store, join_id: JoinId) -> tuple[int, int]:
    """How many steps of a join are completed and failed."""
    join = store.joins.get(join_id)
    return join.completed_steps, join.failed_steps


def steps(store: Store, join_id: JoinId, count: int) -> list[OutboxMessageId]:
    """Enqueue messages that are steps of a join."""
    return [store.outbox.enqueue("step", n, joins=[join_id]) for n in range(count)]


def finish(store: Store, *, failing: Iterable[OutboxMessageId] = ()) -> None:
    """Claim everything that is due; fail some of it, and acknowledge the rest."""
    failing = set(failing)
    claimed = store.outbox.claim("finisher", 1000)
    bad = [one for one in claimed if one.id in failing]
    store.outbox.fail(bad, "it broke")
    store.outbox.ack([one for one in claimed if one.id not in failing])


def resolved(store: Store, join_id: JoinId) -> Join:
    """Let a dispatcher look, and return the join."""
    new_dispatcher(store, concurrency=2).run_until_idle()
    return store.joins.get(join_id)


def begin(store: Store, call: Callable[[], Result]) -> Callable[[], Result]:
    """Begin a call on a thread, and go on when it has ended or waits for a lock.

    What is returned waits for the result.
    """
    threads = ThreadPoolExecutor(1)
    future = threads.submit(call)
    threads.shutdown(wait=False)
    with psycopg.connect(store.settings.conninfo(), autocommit=True) as connection:
        while not future.done():
            if connection.execute(_BLOCKED).fetchone() == (True,):
                break
    return lambda: future.result(timeout=30)
