"""An outage of the database is one line in the log when it begins, and one when it is over."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import penstock
from penstock import (
    AsyncConsumer,
    Call,
    Consumer,
    Dispatcher,
    Interceptor,
    RecordedMessage,
    Store,
    TypedMessage,
    Worker,
)
from penstock.errors import DatabaseUnreachable
from tests.servers import OwnServer, own_server

pytestmark = pytest.mark.timeout(120)


class Lines(logging.Handler):
    """What was logged, and an event for the end of the outage."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.over = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        if "resumes" in record.getMessage():
            self.over.set()


class Attempts(Interceptor):
    """Notices when operations have failed several times."""

    def __init__(self) -> None:
        self._failed = 0
        self.several = threading.Event()

    @contextmanager
    def around(self, call: Call) -> Iterator[None]:
        try:
            yield
        except DatabaseUnreachable:
            self._failed += 1
            if self._failed == 3:
                self.several.set()
            raise


@pytest.fixture(scope="module")
def server() -> Iterator[OwnServer]:
    with own_server() as server:
        yield server


@pytest.fixture
def lines() -> Iterator[Lines]:
    lines = Lines()
    logging.getLogger().addHandler(lines)
    yield lines
    logging.getLogger().removeHandler(lines)


def consumer(store: Store) -> Consumer:
    consumer = Consumer(store, "order", "mailer", longest_polling_interval_ms=10)
    consumer.handler("Placed")(print)
    return consumer


class Placed(TypedMessage, type="Placed"):
    order: str


def worker(store: Store) -> Worker:
    store.declare(Placed)
    return Worker(
        store, "packers", lambda claim: None, partition_by="order", handled_types=[Placed],
        polling_interval_ms=10,
    )  # fmt: skip


def dispatcher(store: Store) -> Dispatcher:
    dispatcher = Dispatcher(store, polling_interval_ms=10)
    dispatcher.handler("mail")(print)
    return dispatcher


def check(lines: list[str]) -> None:
    assert len(lines) == 2, lines
    assert "waits for the database: PostgreSQL at" in lines[0]
    assert re.search(r"resumes: the database was unavailable for \d+\.\d s$", lines[1])


@pytest.mark.parametrize("make", [consumer, worker, dispatcher])
def test_it_is_logged_once_and_then_how_long_it_lasted(
    make: Callable[[Store], Any], server: OwnServer, lines: Lines
) -> None:
    attempts = Attempts()
    with penstock.connect(server.start(), interceptors=[attempts]) as store:
        running = make(store)
        thread = threading.Thread(target=running.run)
        lines.lines.clear()
        thread.start()
        try:
            server.stop()
            assert attempts.several.wait(60)
            server.start()
            assert lines.over.wait(60)
        finally:
            running.stop()
            thread.join()

    check(lines.lines)


async def test_it_is_in_async_code(server: OwnServer, lines: Lines) -> None:
    attempts = Attempts()
    async with await penstock.connect_async(server.start(), interceptors=[attempts]) as store:
        consumer = AsyncConsumer(store, "order", "sender", longest_polling_interval_ms=10)

        @consumer.handler("Placed")
        async def handle(message: RecordedMessage) -> None: ...

        running = asyncio.create_task(consumer.run())
        await asyncio.to_thread(server.stop)
        assert await asyncio.to_thread(attempts.several.wait, 60)
        await asyncio.to_thread(server.start)
        assert await asyncio.to_thread(lines.over.wait, 60)
        consumer.stop()
        await running

    check(lines.lines)
