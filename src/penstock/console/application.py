"""The application: every address of the console, and its answers to what goes wrong."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec
import psycopg
from starlette.applications import Starlette
from starlette.datastructures import ImmutableMultiDict, QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

import penstock
from penstock.console.actions.acting import Acting
from penstock.console.addresses import address
from penstock.console.failures import explained, heading, kind, status_of
from penstock.console.live import Live, reason
from penstock.console.pages import FOLDER, Pages
from penstock.console.plain import Plain
from penstock.console.screen import Ask, Screen
from penstock.console.screens import DOWNLOADS, INDEX, SCREENS, SECTIONS, overview
from penstock.console.screens.log import find
from penstock.console.security import Gate, Refused, base, read_form
from penstock.errors import PenstockError, ValidationError
from penstock.store_async import AsyncStore

Opening = AsyncStore | Callable[[], AsyncStore | Awaitable[AsyncStore]]


def application(store: Opening, *, token: str | None, hosts: Iterable[str], **how: Any) -> ASGIApp:
    """Return the application: see `penstock.console.app`."""
    if isinstance(hosts, str):
        raise ValidationError("hosts", hosts, "host names, such as ['localhost']")
    console = Console(store, **how)
    gate = Gate(console.routes(), hosts, token, console.refuse, console.live.close)
    console.gate = gate
    return gate


class Console:
    """One console: the store that it shows, and what its viewers may do."""

    gate: Gate

    def __init__(
        self,
        store: Opening,
        *,
        actions: bool,
        redact: Iterable[str],
        user: Callable[[Request], str] | None,
        pipelines: tuple[Any, ...],
    ) -> None:
        self._opening, self._one_opens = store, asyncio.Lock()
        self._store = store if isinstance(store, AsyncStore) else None
        self.plain = Plain(redact)
        self.pipelines = pipelines
        self.pages = Pages(
            sections=SECTIONS,
            version=penstock.__version__,
            may_act=actions,
            may_edit=actions and not self.plain.hidden,
        )
        self.live = Live(self._poll, self._state)
        self.acting = Acting(self, allowed=actions, user=user)

    def routes(self) -> Starlette:
        """Return the addresses."""
        shown = [
            route
            for screen in SCREENS
            for route in (
                Route(screen.path, partial(self.show, screen)),
                Route(screen.api, partial(self.answer, screen)),
            )
        ]
        return Starlette(
            routes=[
                Route("/live", self.stream),
                Route("/login", self.login, methods=["POST"]),
                Route("/jump", self.jump),
                Route("/actions/{action}", self.acting.confirm, methods=["GET"]),
                Route("/actions/{action}", self.acting.post, methods=["POST"]),
                *(Route(path, partial(self.download, read)) for path, read in DOWNLOADS.items()),
                *shown,
                *(Route(path, partial(self.answer, INDEX)) for path in ("/api", "/api/")),
                Mount("/static", StaticFiles(directory=FOLDER / "static")),
            ],
            exception_handlers={
                Refused: self.failed,
                HTTPException: self.failed,
                PenstockError: self.failed,
                psycopg.Error: self.failed,
                OSError: self.failed,
                Exception: self.failed,
            },
            lifespan=self._lifespan,
        )

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        self.live.keep()
        yield
        self.live.close()

    async def store(self) -> AsyncStore:
        """Return the store, which the first request that needs it opens."""
        async with self._one_opens:
            if self._store is None and not isinstance(self._opening, AsyncStore):
                opened = self._opening()
                self._store = await opened if inspect.isawaitable(opened) else opened
        assert self._store is not None
        return self._store

    async def ask(self, query: ImmutableMultiDict[str, Any]) -> Ask:
        """Return what a request asks for."""
        return Ask(await self.store(), self.live, self.plain, query, self.pipelines)

    # what is shown

    async def show(self, screen: Screen, request: Request) -> Response:
        """Answer with a page."""
        ask = await self.ask(request.query_params)
        facts = self.plain(await screen.read(ask))
        return self.page(request, screen.template, facts, screen=screen)

    async def answer(self, screen: Screen, request: Request) -> Response:
        """Answer with what the page shows, as JSON."""
        ask = await self.ask(request.query_params)
        return _json(self.plain(await screen.read(ask)))

    async def download(self, read: Callable[[Ask], Any], request: Request) -> Response:
        """Answer with a whole value as a file."""
        ask = await self.ask(request.query_params)
        name, content = await read(ask)
        # what it holds is not ours: no browser may take it for a page
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(content, media_type="application/octet-stream", headers=headers)

    async def stream(self, request: Request) -> Response:
        """Answer with the events of a page, for as long as it is open."""
        path, _, query = request.query_params.get("page", "/").partition("?")
        screen, root = _BY_PATH.get(path), base(request.scope)

        async def render() -> str:
            if screen is None or not screen.live:
                return ""
            facts = self.plain(await screen.read(await self.ask(QueryParams(query))))
            frame = {"base": root, "path": path, "query": query, "screen": screen}
            return self.pages.render_block(screen.template, "live", {**facts, **frame})

        events = self.live.watch(f"{root}{path}?{query}", root, render)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(events, media_type="text/event-stream", headers=headers)

    async def jump(self, request: Request) -> Response:
        """Redirect to what a text names: a position, an id, a stream, a category or a type."""
        to = request.query_params.get("to", "").strip()
        path, query = await find(await self.ask(request.query_params), to)
        return RedirectResponse(address(base(request.scope), path, query), status_code=303)

    async def login(self, request: Request) -> Response:
        """Admit a browser whose form has the token."""
        form = await read_form(request)
        if not self.gate.is_token(str(form.get("token", "")).strip()):
            raise Refused(401, "The token is wrong.")
        return self.gate.admit(request, f"{base(request.scope)}/")

    def page(
        self,
        request: Request,
        template: str,
        facts: Mapping[str, Any],
        *,
        screen: Screen | None = None,
        status: int = 200,
        refused: bool = False,
    ) -> Response:
        """Return a page with the navigation around it; without figures if the gate refused it."""
        frame = {
            "base": base(request.scope),
            "path": _path(request),
            "query": request.url.query,
            "screen": screen,
            "csrf": request.scope.get("state", {}).get("csrf", ""),
            "refused": refused,
            "side_state": "" if refused else self.live.state(base(request.scope)),
        }
        return HTMLResponse(self.pages.render(template, {**facts, **frame}), status)

    # the figures that every page has

    async def _poll(self) -> Any:
        return await overview.poll(await self.store(), self.live)

    def _state(self, root: str) -> str:
        values = {"base": root, "away": self.live.away, "figures": self.plain(self.live.figures)}
        return self.pages.render("state.html", values)

    # what goes wrong

    def refuse(self, request: Request, refused: Refused) -> Response:
        """Answer a request that the gate has refused."""
        if refused.status == 401 and not _wants_json(request):
            facts = {"why": refused.why if request.query_params.get("token") else ""}
            return self.page(request, "login.html", facts, status=401)
        return self._error(request, refused.status, refused.why, refused=True)

    async def failed(self, request: Request, error: Exception) -> Response:
        """Answer a request that has raised."""
        match error:
            case Refused(status=401) if not _wants_json(request):
                return self.page(request, "login.html", {"why": error.why}, status=401)
            case Refused():
                return self._error(request, error.status, error.why)
            case HTTPException():
                return self._error(request, error.status_code, explained(error, _path(request)))
        status = status_of(error)
        if status == 500:
            return self._error(
                request, status, "This is a bug in Penstock: see the log of the server."
            )
        return self._error(request, status, reason(error), error)

    def _error(
        self,
        request: Request,
        status: int,
        why: str,
        error: Exception | None = None,
        *,
        refused: bool = False,
    ) -> Response:
        name = kind(error)
        if _wants_json(request):
            return _json({"error": name, "message": why}, status)
        facts = {"status": status, "why": why, "kind": heading(name)}
        return self.page(request, "error.html", facts, status=status, refused=refused)


_BY_PATH = {screen.path: screen for screen in SCREENS}


def _path(request: Request) -> str:
    return str(request.scope["path"]).removeprefix(base(request.scope)) or "/"


def _wants_json(request: Request) -> bool:
    return _path(request).startswith("/api")


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
