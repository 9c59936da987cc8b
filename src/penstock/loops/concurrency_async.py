"""What differs between async and blocking code: waiting, signals, background work, handlers.

`concurrency.py` has the same names for blocking code. These two are the only modules that are
written twice; every other `x.py` beside an `x_async.py` is generated.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from penstock.errors import ValidationError
from penstock.loops.concurrency import is_coroutine_function
from penstock.loops.signals import stopping_loop_on_signals as stopping_on_signals

Result = TypeVar("Result")

__all__ = [
    "HANDLERS",
    "IS_ASYNC",
    "StopEvent",
    "background",
    "check_handler",
    "is_coroutine_function",
    "is_interrupt",
    "is_supported",
    "run_handler",
    "run_in_thread",
    "shielded",
    "sleep",
    "stopping_on_signals",
    "wait_for",
]

IS_ASYNC = True
#: what a handler may be, for error messages
HANDLERS = "a function, async or plain"
sleep = asyncio.sleep


class StopEvent(asyncio.Event):
    """An event that ends a loop, with a timeout for waiting."""

    async def wait_for(self, timeout: float) -> bool:
        """Wait until it is set, for at most `timeout` seconds. Return whether it is set."""
        if not self.is_set() and timeout > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):  # in 3.11 wait_for may lose a cancellation
                    await self.wait()
        return self.is_set()


async def wait_for(future: Future[Result], timeout: float) -> Result:
    """Return the result of a future that another thread or task sets, or raise TimeoutError."""
    if not future.done():
        await asyncio.wait([asyncio.wrap_future(future)], timeout=timeout)
    return future.result(0)


async def run_in_thread(
    function: Callable[[], Result], undo: Callable[[Result], object] = lambda result: None
) -> Result:
    """Run a function that blocks. If the task is cancelled meanwhile, its result is undone."""
    running = asyncio.ensure_future(asyncio.to_thread(function))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        running.add_done_callback(lambda done: _undo(done, undo))
        raise


def _undo(done: asyncio.Future[Result], undo: Callable[[Result], object]) -> None:
    if not done.cancelled() and done.exception() is None:
        undo(done.result())


@asynccontextmanager
async def background(
    work: Callable[[StopEvent], Awaitable[None]], name: str
) -> AsyncIterator[None]:
    """Run `work` beside the block. It gets an event that is set when the block ends."""
    done = StopEvent()
    task = asyncio.ensure_future(work(done))
    try:
        yield
    finally:
        done.set()
        await asyncio.shield(task)


async def run_handler(handler: Callable[..., Any], *arguments: Any) -> Any:
    """Call a handler, plain or async, and return its result."""
    result = handler(*arguments)
    if inspect.isawaitable(result):
        result = await result
    return result


def is_supported(handler: Callable[..., Any]) -> bool:
    """Whether `run_handler` can run it."""
    return callable(handler)


def check_handler(handler: Callable[..., Any], class_name: str) -> None:
    """Refuse a handler that `run_handler` cannot run."""
    if not is_supported(handler):
        raise ValidationError("handler", handler, HANDLERS)


async def shielded(work: Callable[[], Awaitable[Result]]) -> Result:
    """Do work that must not be left half done: a cancellation meanwhile is raised after it."""
    task = asyncio.ensure_future(work())
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        task.exception()  # so that asyncio does not report it as lost
        raise cancelled
    return task.result()


def is_interrupt(error: BaseException) -> bool:
    """Whether the error interrupts this task, or the program, and is not a handler's own."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(error, KeyboardInterrupt)
