"""Live pages: one poll of the database, whatever the number of viewers.

While anyone watches, a task reads the figures every `INTERVAL` seconds, and renders each page that
is watched once for all its viewers. A viewer's stream (server-sent events) gets a page when it has
changed. Two viewers of one page cost the database no more than one; viewers of many different pages
cost at most `PAGES` pages in each interval, in turn.

The task starts with the first viewer and ends with the last: a mounted application's lifespan is
not run. Where it is run (`penstock console`), `keep` makes the history complete.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg

from penstock.console.history import History, Rates
from penstock.errors import PenstockError, first_line
from penstock.settings import redact

_log = logging.getLogger("penstock.console")

#: seconds between two looks at the database
INTERVAL = 2.0
#: seconds after which a database that does not answer is away
ANSWER_WITHIN = 10.0
#: pages that are rendered in one interval, at most
PAGES = 20
#: seconds without an event after which a comment is sent, so that proxies keep the stream open
KEEP_ALIVE = 15.0


@dataclass(eq=False)
class Viewer:
    """A stream of events: of each name, only the newest that was not sent yet."""

    #: the path at which its console is mounted
    root: str
    waiting: dict[str, str] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def push(self, event: str, text: str) -> None:
        """Send an event, in place of an older one that has not left yet."""
        self.waiting[event] = text
        self.changed.set()


@dataclass(eq=False)
class Page:
    """A page that is watched."""

    render: Callable[[], Awaitable[str]]
    viewers: set[Viewer] = field(default_factory=set)
    shown: str = ""
    rendered_at: float = 0.0


class Live:
    """The shared poll, its viewers, and the history of the figures."""

    def __init__(self, poll: Callable[[], Awaitable[Any]], show: Callable[[str], str]) -> None:
        #: `poll` reads the figures; `show` makes HTML of them, for a console mounted at a path
        self._poll, self._show = poll, show
        self.history = History()
        self.rates = Rates()
        #: what the last poll has read
        self.figures: Any = None
        self.pages: dict[str, Page] = {}
        #: why the database cannot be read; None if it can
        self.away: str | None = None
        self._state = ""
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._kept = False
        self._closed = False

    async def watch(
        self, key: str, root: str, render: Callable[[], Awaitable[str]]
    ) -> AsyncIterator[bytes]:
        """Yield the events of a page, until the viewer leaves."""
        viewer, page = Viewer(root), self.pages.setdefault(key, Page(render))
        page.viewers.add(viewer)
        self._start()
        if self.figures is not None or self.away is not None:
            viewer.push("state", self.state(root))
        if page.shown:
            viewer.push("live", page.shown)
        try:
            yield b"retry: 2000\n\n"
            while not self._closed:
                if not viewer.waiting:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(viewer.changed.wait(), KEEP_ALIVE)
                viewer.changed.clear()
                waiting, viewer.waiting = viewer.waiting, {}
                yield b"".join(_event(*one) for one in waiting.items()) or b": still here\n\n"
        finally:
            page.viewers.discard(viewer)
            if not page.viewers:
                self.pages.pop(key, None)

    def keep(self) -> None:
        """Go on without viewers, so that the history has no gaps."""
        self._kept = True
        self._start()

    def close(self) -> None:
        """End the task and all streams."""
        self._closed, self._kept = True, False
        for viewer in self._viewers():
            viewer.changed.set()
        if self._task is not None:
            self._task.cancel()

    def _start(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while (self.pages or self._kept) and not self._closed:
            started = time.monotonic()
            await self.look()
            await asyncio.sleep(max(INTERVAL / 4, INTERVAL - (time.monotonic() - started)))

    async def look(self) -> None:
        """Read the figures and the watched pages once, and push what has changed."""
        try:
            await self._read()
        except Exception as error:  # the streams must outlive any failure
            self._change_state(reason(error))
            return
        self._change_state(None)
        for page in sorted(self.pages.values(), key=lambda one: one.rendered_at)[:PAGES]:
            await self._renew(page)

    async def _renew(self, page: Page) -> None:
        page.rendered_at = time.monotonic()
        try:
            html = await page.render()
        except (PenstockError, psycopg.Error):
            return  # what it shows is gone, or took too long: its next request says so
        except Exception:
            _log.exception("a live page of the console failed")
            return
        if html == page.shown:
            return
        page.shown = html
        for viewer in page.viewers:
            viewer.push("live", html)

    def _change_state(self, away: str | None) -> None:
        self.away = away
        if away is not None:
            for page in self.pages.values():
                page.shown = ""  # pushed again when the database is back
        state = self.state("")
        if state == self._state:
            return
        self._state = state
        for viewer in self._viewers():
            viewer.push("state", self.state(viewer.root))

    def state(self, root: str) -> str:
        """Return the HTML that every page has: figures, and whether the database can be read."""
        return self._show(root)

    async def fresh(self) -> Any:
        """Return the figures: those of the last poll, if it is not long ago."""
        if self.away is not None or time.monotonic() - self._read_at > INTERVAL:
            async with self._reading:
                if self.away is not None or time.monotonic() - self._read_at > INTERVAL:
                    await self._read()
        return self.figures

    async def _read(self) -> None:
        async with asyncio.timeout(ANSWER_WITHIN):
            self.figures = await self._poll()
        self._read_at = time.monotonic()
        self.away = None

    def _viewers(self) -> list[Viewer]:
        return [viewer for page in self.pages.values() for viewer in page.viewers]


def reason(error: Exception) -> str:
    """Return why the database cannot be read, in one line and without a password."""
    if isinstance(error, TimeoutError):
        return f"it has not answered within {ANSWER_WITHIN:g} seconds"
    if isinstance(error, PenstockError | psycopg.Error | OSError):
        return redact(first_line(error))
    return f"{type(error).__name__}: {redact(first_line(error))}"


def _event(name: str, text: str) -> bytes:
    lines = "".join(f"data: {line}\n" for line in re.split(r"\r\n|\r|\n", text))
    return f"event: {name}\n{lines}\n".encode()
