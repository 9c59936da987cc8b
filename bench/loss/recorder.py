"""eventsourcing's PostgreSQL application recorder: `insert_events` and `select_notifications`.

As it comes, an insert locks the whole table, so that notification ids are committed in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

from bench.loss.race import PAGE, Write

FUNCTIONS = "no"


@contextmanager
def writer(url: str, functions: str = FUNCTIONS) -> Iterator[Write]:
    """Connect, to write."""
    from eventsourcing.persistence import StoredEvent

    recorder = _recorder(url, functions)

    def write(category: str, count: int) -> None:
        stream = uuid4()
        recorder.insert_events(
            [StoredEvent(stream, number, category, b"{}") for number in range(count)]
        )

    yield write


def tail(url: str, functions: str = FUNCTIONS) -> Iterator[list[int]]:
    """Yield the positions that are new since the last look, for ever."""
    recorder = _recorder(url, functions)
    last = 0
    while True:
        page = recorder.select_notifications(last, PAGE, inclusive_of_start=False)
        yield [notification.id for notification in page]
        last = page[-1].id if page else last


def everything(url: str) -> set[int]:
    """Return all positions that hold a message."""
    import psycopg

    with psycopg.connect(url) as connection:
        rows = connection.execute("select notification_id from stored_events")
        return {position for (position,) in rows}


def _recorder(url: str, functions: str) -> Any:
    from eventsourcing.postgres import PostgresFactory
    from eventsourcing.utils import Environment

    parts = urlsplit(url)
    asked = parse_qs(parts.query)
    environment = {
        "POSTGRES_DBNAME": parts.path.strip("/"),
        "POSTGRES_HOST": asked["host"][0],
        "POSTGRES_PORT": asked["port"][0],
        "POSTGRES_USER": parts.username or "postgres",
        "POSTGRES_PASSWORD": "none",
        "POSTGRES_POOL_SIZE": "1",
        "POSTGRES_MAX_OVERFLOW": "0",
        "POSTGRES_ENABLE_DB_FUNCTIONS": functions,
    }
    return PostgresFactory(Environment(env=environment)).application_recorder()
