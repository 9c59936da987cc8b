"""Queues to test with, for blocking and async code: each test has a queue of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

import penstock
from penstock import CommitMode, Store
from tests.conftest import Server
from tests.queues.driving import Driven


@pytest.fixture(scope="package")
def shared_url(server: Server) -> Iterator[str]:
    """A database that all tests of queues share."""
    name = server.create_database(server.template("penstock"))
    yield server.url(name)
    server.drop_database(name)


@pytest.fixture(scope="package")
def shared_store(shared_url: str) -> Iterator[Store]:
    with penstock.connect(shared_url) as store:
        yield store


@pytest.fixture(scope="package")
def driven_store(shared_url: str) -> Iterator[Driven]:
    """An async store, driven from plain tests."""
    with asyncio.Runner() as loop:
        store = loop.run(penstock.connect_async(shared_url))
        yield Driven(store, loop)
        loop.run(store.close())


@pytest.fixture(params=["blocking", "async"])
def queue(request: pytest.FixtureRequest, shared_store: Store, driven_store: Driven) -> Any:
    """An empty queue."""
    name = f"orders-{uuid4()}"
    if request.param == "blocking":
        return shared_store.queue(name)
    return Driven(driven_store.queue(name), driven_store._loop)


@pytest.fixture(params=CommitMode)
def mode(request: pytest.FixtureRequest) -> CommitMode:
    mode: CommitMode = request.param
    return mode
