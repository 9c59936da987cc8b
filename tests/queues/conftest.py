"""Every test of queues runs with blocking classes, then with async ones, on a queue of its own."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from penstock import CommitMode
from tests.both_ways import (
    any_store,
    event_loop_thread,
    shared_store,
    shared_stores,
    shared_url,
    store,
    way,
)

__all__ = [
    "any_store",
    "event_loop_thread",
    "shared_store",
    "shared_stores",
    "shared_url",
    "store",
    "way",
]


@pytest.fixture
def queue(shared_store: Any) -> Any:
    """An empty queue."""
    return shared_store.queue(f"orders-{uuid4()}")


@pytest.fixture(params=CommitMode)
def mode(request: pytest.FixtureRequest) -> CommitMode:
    mode: CommitMode = request.param
    return mode
