"""What tests of wake-ups share: stores that look seldom, and waiters of every kind in threads."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

import penstock
from penstock import Consumer, Dispatcher, Interceptor, Store, TypedMessage, Worker
from penstock.database.pool import Pool
from penstock.database.waiters import Registration
from penstock.database.wake_ups import Pace, WakeUps
from tests.racing import wait_until

#: so long that a test which waits for it fails
AN_HOUR = 3600.0
AN_HOUR_MS = 3_600_000
#: no safety looks: what nobody notifies of is not found
NEVER = Pace(look=AN_HOUR, patience=AN_HOUR)
#: how long a test waits for what has to happen, in seconds
LONG = 60.0


class Numbered(TypedMessage, type="Numbered"):
    """What workers wait for."""

    number: str


@contextmanager
def store_with(
    url: str, pace: Pace, interceptors: Sequence[Interceptor] = (), **options: Any
) -> Iterator[Store]:
    """Connect a store whose waiters are looked for at this pace."""
    with penstock.connect(url, interceptors=interceptors, **options) as first:
        settings, context = first.settings, first.context
    pool = Pool(settings, context.edition, interceptors)
    pool.wake_ups = WakeUps(settings, context.edition, pace)
    with Store(pool, context, lambda: None) as store:
        yield store


def wake_ups_of(store: Store) -> WakeUps:
    assert store.context.wake_ups is not None
    return store.context.wake_ups


class Sleeper:
    """A waiter for some names, which records how it was woken."""

    def __init__(self, store: Store, *wanted: str) -> None:
        self._woken = threading.Event()
        self.one = Registration(wanted, self._woken.set)
        wake_ups_of(store).waiters.add(self.one)

    @property
    def is_notified(self) -> bool:
        return self.one.is_notified

    def reset(self) -> None:
        self.one.is_notified = self.one.is_woken = False
        self._woken.clear()

    def wait(self) -> bool:
        """Wait until it is woken."""
        return self._woken.wait(LONG)


def listening(store: Store) -> Store:
    """Return the store when notifications arrive there, and its waiters were woken for that."""
    sleeper = Sleeper(store, "nothing")
    wake_ups_of(store).listen()
    assert wake_ups_of(store).is_listening or sleeper.wait()
    assert wake_ups_of(store).is_listening
    return store


def looks(store: Store, count: int) -> None:
    """Return after so many more safety looks."""
    for _ in range(count):
        before = wake_ups_of(store)._looked_at
        while wake_ups_of(store)._looked_at == before:
            threading.Event().wait(0.01)


def listener_pid(url: str) -> int:
    """Return the server process of the connection that listens."""
    sql = (
        "select pid from pg_stat_activity where datname = current_database()"
        " and application_name like '%%wake-ups' and query like '%%'"
    )
    wait_until(url, f"select exists ({sql})", ())
    with psycopg.connect(url) as connection:
        [(pid,)] = connection.execute(sql).fetchall()
    return int(pid)


class Kind:
    """A kind of waiter: how to run one that hands over what it gets, and how to write for it."""

    def __init__(
        self,
        name: str,
        run: Callable[[Store, Callable[[Any], None], int], Any],
        write: Callable[[Store, int], object],
    ) -> None:
        self.name = name
        self.run = run
        self.write = write


def _consumer(store: Store, got: Callable[[Any], None], pause_ms: int) -> Any:
    consumer = Consumer(
        store,
        "order",
        "waiting",
        handlers={"Placed": lambda message: got(message.data["number"])},
        polling_interval_ms=pause_ms,
        idle_save_delay=AN_HOUR,
    )
    return consumer.run, consumer.stop


def _worker(store: Store, got: Callable[[Any], None], pause_ms: int) -> Any:
    def handle(claim: Any) -> None:
        for message in claim.messages:
            got(int(message.data["number"]))

    worker = Worker(
        store,
        "waiting",
        handle,
        partition_by="number",
        handled_types=[Numbered],
        polling_interval_ms=pause_ms,
    )
    return worker.run, worker.stop


def _dispatcher(store: Store, got: Callable[[Any], None], pause_ms: int) -> Any:
    dispatcher = Dispatcher(store, polling_interval_ms=pause_ms, lease=AN_HOUR)
    dispatcher.handler("mail")(lambda message: got(message.payload["number"]))
    return dispatcher.run, dispatcher.stop


def _follower(store: Store, got: Callable[[Any], None], pause_ms: int) -> Any:
    stopped = threading.Event()

    def run() -> None:
        for message in store.follow_category("order", polling_interval_ms=pause_ms):
            if stopped.is_set():
                return
            got(message.data["number"])

    def stop() -> None:
        stopped.set()
        _write(store, -1)

    return run, stop


def _session(store: Store, got: Callable[[Any], None], pause_ms: int) -> Any:
    session = store.queue("orders").create_consumer("waiting")

    def run() -> None:
        while (record := session.poll(AN_HOUR)) is not None and record.value >= 0:
            got(record.value)

    return run, lambda: _offer(store, -1)


def _write(store: Store, number: int) -> object:
    return store.write_message("order-1", "Placed", {"number": number})


def _append(store: Store, number: int) -> object:
    return store.append(Numbered(number=str(number)))


def _enqueue(store: Store, number: int) -> object:
    return store.outbox.enqueue("mail", {"number": number})


def _offer(store: Store, number: int) -> object:
    return store.queue("orders").offer(number)


KINDS = {
    one.name: one
    for one in (
        Kind("consumer", _consumer, _write),
        Kind("session", _session, _offer),
        Kind("worker", _worker, _append),
        Kind("dispatcher", _dispatcher, _enqueue),
        Kind("follower", _follower, _write),
    )
}


class Running:
    """A waiter that runs in a thread, and what it got."""

    def __init__(self, kind: Kind, store: Store, pause_ms: int) -> None:
        self._got: queue.SimpleQueue[Any] = queue.SimpleQueue()
        run, self._stop = kind.run(store, self._got.put, pause_ms)
        self._thread = threading.Thread(target=run, name=kind.name, daemon=True)
        self._thread.start()

    def next(self) -> Any:
        """Return what it gets next."""
        return self._got.get(timeout=LONG)

    @property
    def is_empty(self) -> bool:
        return self._got.empty()

    def stop(self) -> None:
        self._stop()
        self._thread.join(LONG)
        assert not self._thread.is_alive()


@contextmanager
def running(kind: Kind, store: Store, pause_ms: int = AN_HOUR_MS) -> Iterator[Running]:
    """Run a waiter of this kind beside the block."""
    waiter = Running(kind, store, pause_ms)
    try:
        yield waiter
    finally:
        waiter.stop()
