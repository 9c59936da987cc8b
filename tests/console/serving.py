"""The console, served by uvicorn in a thread with an event loop and a store of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

import penstock
from penstock import console

Made = Callable[[penstock.AsyncStore], Any]


@contextmanager
def serving(url: str, make: Made | None = None, **options: Any) -> Iterator[str]:
    """Serve the console of a database, or what `make` makes of its store, and yield the address."""
    make = make or (lambda store: console.app(store, **options))
    running = _Running(url, make)
    thread = threading.Thread(target=running.run, name="console", daemon=True)
    thread.start()
    try:
        yield running.address()
    finally:
        running.stop()
        thread.join(30)


class _Running:
    def __init__(self, url: str, make: Made) -> None:
        self._url, self._make = url, make
        self._ready = threading.Event()
        self._server: uvicorn.Server | None = None
        self._failure: BaseException | None = None

    def run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
            raise
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        async with await penstock.connect_async(self._url) as store:
            config = uvicorn.Config(
                self._make(store),
                host="127.0.0.1",
                port=0,
                log_level="warning",
                timeout_graceful_shutdown=1,  # streams of events do not end by themselves
            )
            self._server = server = uvicorn.Server(config)
            serving = asyncio.create_task(server.serve())
            while not server.started and not serving.done():
                await asyncio.sleep(0.005)
            self._ready.set()
            await serving

    def address(self) -> str:
        self._ready.wait(30)
        if self._server is None or not self._server.started:
            raise RuntimeError("the console was not started") from self._failure
        port = self._server.servers[0].sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"

    def stop(self) -> None:
        if self._server is not None:
            self._server.should_exit = True
