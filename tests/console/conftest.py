"""The console's application, asked without a browser."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from html import unescape
from typing import Any

import httpx2
import pytest

import penstock
from penstock import AsyncStore, console
from tests.conftest import Server
from tests.console.filled import Filled, fill

ADDRESS = "http://localhost:8765"


@asynccontextmanager
async def asking(store: AsyncStore, **options: Any) -> AsyncIterator[httpx2.AsyncClient]:
    """Ask a console of the store, as a browser would."""
    transport = httpx2.ASGITransport(app=console.app(store, **options))
    async with httpx2.AsyncClient(transport=transport, base_url=ADDRESS) as client:
        yield client


async def act(client: httpx2.AsyncClient, action: str, **fields: Any) -> httpx2.Response:
    """Confirm an action on its page, and return the page that the browser ends at."""
    shown = await client.get(f"/actions/{action}", params=fields)
    assert shown.status_code == 200, shown.text
    return await confirm(client, shown)


async def confirm(client: httpx2.AsyncClient, shown: httpx2.Response) -> httpx2.Response:
    """Send the form of a page that asks for confirmation."""
    action = re.search(r'method="post" action="([^"]+)"', shown.text)
    assert action, shown.text
    found = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', shown.text)
    sent = {name: [unescape(v) for n, v in found if n == name] for name, _ in found}
    return await client.post(action[1], data=sent, follow_redirects=True)


async def csrf(client: httpx2.AsyncClient) -> str:
    """Return the secret that the forms of this browser have."""
    page = await client.get("/dead-letters")
    found = re.search(r'name="csrf" value="([^"]+)"', page.text)
    assert found
    return found[1]


@pytest.fixture(scope="package")
def filled_database(server: Server) -> Iterator[tuple[str, Filled]]:
    """A database with something of everything, for tests that change nothing."""
    name = server.create_database(server.template("penstock"))
    with penstock.connect(server.url(name)) as store:
        filled = fill(store)
    yield server.url(name), filled
    server.drop_database(name)


@pytest.fixture
def filled(filled_database: tuple[str, Filled]) -> Filled:
    return filled_database[1]


@pytest.fixture
async def filled_store(filled_database: tuple[str, Filled]) -> AsyncIterator[AsyncStore]:
    async with await penstock.connect_async(filled_database[0]) as store:
        yield store


@pytest.fixture
async def client(filled_store: AsyncStore) -> AsyncIterator[httpx2.AsyncClient]:
    """A browser at a console that allows actions."""
    async with asking(filled_store, actions=True, user=lambda request: "ada") as client:
        yield client
