"""The console, served by uvicorn in a thread with an event loop and a store of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import uvicorn

import penstock
from penstock import console

Make = Callable[[penstock.AsyncStore], Any]


@contextmanager
def serving(
    url: str, make: Make | None = None, settings: Mapping[str, Any] = {}, **options: Any
) -> Iterator[str]:
    """Serve the console of a database, or what `make` makes of its store, and yield the address.

    `settings` are those of the store, `options` those of the console. The socket listens at once:
    a request waits until the server is ready.
    """
    made = make or (lambda store: console.app(store, **options))
    server = uvicorn.Server(
        uvicorn.Config(
            lambda: None,
            factory=True,
            log_level="warning",
            timeout_graceful_shutdown=1,  # streams of events do not end by themselves
        )
    )

    async def serve() -> None:
        async with await penstock.connect_async(url, **settings) as store:
            server.config.app = lambda: made(store)
            await server.serve([listening])

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=lambda: asyncio.run(serve()), name="console", daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(30)
