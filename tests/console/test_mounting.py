"""The console in other applications: FastAPI, Starlette, and any ASGI application."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from penstock import AsyncStore, console
from penstock.errors import ValidationError
from tests.console.conftest import ADDRESS


def _fastapi(mounted: Any) -> Any:
    application = FastAPI()
    application.mount("/ops/console", mounted)
    return application


def _starlette(mounted: Any) -> Any:
    home = Route("/", lambda request: PlainTextResponse("home"))
    return Starlette(routes=[home, Mount("/ops/console", mounted)])


def _plain_asgi(mounted: Any) -> Any:
    """Dispatch by path, as an `asgi.py` of Django does."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        assert scope["path"].startswith("/ops/console")
        await mounted({**scope, "root_path": "/ops/console"}, receive, send)

    return application


@pytest.mark.parametrize("mount", [_fastapi, _starlette, _plain_asgi])
async def test_a_mounted_console_keeps_to_its_path(filled_store: AsyncStore, mount: Any) -> None:
    mounted = console.app(filled_store, actions=True, user=lambda request: request.headers["x-me"])
    transport = httpx2.ASGITransport(app=mount(mounted))
    async with httpx2.AsyncClient(
        transport=transport, base_url=f"{ADDRESS}/ops/console", headers={"x-me": "grace"}
    ) as client:
        page = await client.get("/log")
        script = await client.get("/static/console.js")
        facts = await client.get("/api/overview")
        missing = await client.get("/nowhere")
        shown = await client.get("/actions/stop-group", params={"group_id": "seats"})

    assert page.status_code == script.status_code == facts.status_code == 200
    assert missing.status_code == 404
    links = [one.split('"')[0] for one in page.text.split('href="')[1:]]
    assert all(one.startswith(("/ops/console", "#")) for one in links)
    assert 'src="/ops/console/static/console.js' in page.text
    assert 'sse-connect="/ops/console/live?' in page.text
    assert "Path=/ops/console" in page.headers["set-cookie"]
    assert "Recorded as done by grace" in shown.text


async def test_the_store_can_be_opened_by_the_first_request(filled_store: AsyncStore) -> None:
    opened = []

    async def open_store() -> AsyncStore:
        opened.append(1)
        return filled_store

    transport = httpx2.ASGITransport(app=console.app(open_store))
    async with httpx2.AsyncClient(transport=transport, base_url=ADDRESS) as client:
        assert opened == []
        assert (await client.get("/log")).status_code == 200
        assert (await client.get("/groups")).status_code == 200

    assert opened == [1]


def test_what_is_no_list_of_host_names_is_refused(filled_store: AsyncStore) -> None:
    with pytest.raises(ValidationError, match="hosts"):
        console.app(filled_store, hosts="localhost")
