"""Two connections to a fresh log: a writer in an open transaction, and somebody else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import psycopg
import pytest

from tests.both_ways import event_loop_thread, way
from tests.log.client import Client

__all__ = ["event_loop_thread", "way"]


@pytest.fixture
def connect(database_url: str) -> Iterator[Callable[[], Client]]:
    """Open connections to the test's database."""
    with ExitStack() as stack:
        yield lambda: Client(
            stack.enter_context(psycopg.connect(database_url, autocommit=True)),
        )


@pytest.fixture
def writer(connect: Callable[[], Client]) -> Client:
    """A client in an open transaction."""
    client = connect()
    client.execute("begin")
    return client


@pytest.fixture
def other(connect: Callable[[], Client]) -> Client:
    """Somebody else, who writes and reads meanwhile."""
    return connect()
