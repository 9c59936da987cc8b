"""An event loop in its own thread, for the async handlers of blocking code."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any


class HandlerLoop:
    """Calls handlers. Async handlers run on one event loop, which the first of them starts.

    In asyncio, a SystemExit or KeyboardInterrupt of a task ends the loop, and with it the tasks of
    all other handlers. So the loop is then run again, and only the task gets the error.
    """

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closing = False

    def call(self, handler: Callable[..., Any], *arguments: Any) -> Any:
        """Call a handler, plain or async, and return its result."""
        result = handler(*arguments)
        if inspect.isawaitable(result):
            return asyncio.run_coroutine_threadsafe(_awaited(result), self._running()).result()
        return result

    def close(self) -> None:
        """Stop the loop and cancel its tasks. The next async handler starts a new loop."""
        if self._loop and self._thread:
            self._closing = True
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop = None

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None:
                self._closing = False
                runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
                self._loop = runner.get_loop()
                self._thread = threading.Thread(
                    target=self._run, args=(runner, self._loop), name="penstock handlers"
                )
                self._thread.daemon = True
                self._thread.start()
            return self._loop

    def _run(self, runner: asyncio.Runner, loop: asyncio.AbstractEventLoop) -> None:
        while not self._closing:
            with suppress(SystemExit, KeyboardInterrupt):
                loop.run_forever()
        with suppress(SystemExit, KeyboardInterrupt):
            runner.close()  # cancels the remaining tasks


async def _awaited(awaitable: Any) -> Any:
    return await awaitable
