"""What differs between async and blocking code: waiting, signals, background work, handlers.

`concurrency.py` has the same names for blocking code. These two are the only modules that are
written twice; every other `x.py` beside an `x_async.py` is generated.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Generic, Self, TypeVar

from penstock.errors import ValidationError
from penstock.loops.concurrency import is_coroutine_function as is_coroutine_function
from penstock.loops.signals import stopping_loop_on_signals

Item = TypeVar("Item")
Result = TypeVar("Result")

IS_ASYNC = True
sleep = asyncio.sleep
stopping_on_signals = stopping_loop_on_signals


class StopEvent(asyncio.Event):
    """An event that ends a loop. Waiting for it has a timeout."""

    async def wait_for(self, timeout: float) -> bool:
        """Wait until the event is set, for at most `timeout` seconds. Return whether it is set."""
        if not self.is_set() and timeout > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):  # in 3.11 wait_for may lose a cancellation
                    await self.wait()
        return self.is_set()


class Wakeup:
    """Wakes one task that waits. Made inside the event loop; any thread may call `wake`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """End the wait of the task, or else the next one that begins."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._woken.set)

    async def wait(self, timeout: float) -> bool:
        """Wait for at most `timeout` seconds, and return whether `wake` was called."""
        with suppress(TimeoutError):
            async with asyncio.timeout(
                max(timeout, 0.0)
            ):  # in 3.11 wait_for may lose a cancellation
                await self._woken.wait()
        was_woken = self._woken.is_set()
        self._woken.clear()
        return was_woken


class Signal:
    """One task waits until another one sets it."""

    __slots__ = ("_future",)

    def __init__(self) -> None:
        self._future = asyncio.get_running_loop().create_future()

    def set(self) -> None:
        """End the wait of the task. Call it in the same event loop."""
        if not self._future.done():  # else the task was cancelled
            with suppress(RuntimeError):  # the loop is closed
                self._future.set_result(None)

    async def wait(self) -> None:
        """Wait until it is set."""
        await self._future


def waiting_scope() -> object:
    """Return what tasks that wait for each other have in common: the event loop."""
    return asyncio.get_running_loop()


async def finish_in_background(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Wait until `work` ends. If this task is cancelled, the work goes on."""
    running = asyncio.ensure_future(work())
    _IN_BACKGROUND.add(running)  # asyncio itself keeps only weak references
    running.add_done_callback(_IN_BACKGROUND.discard)
    await asyncio.shield(running)


_IN_BACKGROUND: set[asyncio.Future[None]] = set()


async def wait_for(future: Future[Result], timeout: float) -> Result:
    """Return the result of a future that another thread or task sets, or raise TimeoutError."""
    if not future.done():
        await asyncio.wait([asyncio.wrap_future(future)], timeout=timeout)
    return future.result(0)


async def run_in_thread(
    function: Callable[[], Result], undo: Callable[[Result], object] = lambda result: None
) -> Result:
    """Run a function that blocks, in a thread. If the task is cancelled, undo the result."""
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
    if result is not None and inspect.isawaitable(result):  # None is the rule
        result = await result
    return result


def check_handler(handler: Callable[..., Any], class_name: str) -> None:
    """Refuse a handler that `run_handler` cannot run."""
    if not callable(handler):
        raise ValidationError("handler", handler, "a function, async or plain")


def is_interrupt(error: BaseException) -> bool:
    """Whether the error interrupts this task or the program, and does not come from a handler."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(error, KeyboardInterrupt)


async def run_to_end(
    work: Callable[[], Awaitable[Result]], on_cancel: Callable[[], None] = lambda: None
) -> Result:
    """Return the result of `work`, which is not cancelled with the task.

    When the task is cancelled, call `on_cancel`, wait until `work` ends, and raise CancelledError.
    """
    running, cancellation = asyncio.ensure_future(work()), None
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError as error:
            cancellation = error
            on_cancel()
    if cancellation is not None:
        raise cancellation from running.exception()
    return running.result()


async def side_by_side(functions: Sequence[Callable[[], Awaitable[Result]]]) -> list[Result]:
    """Call the functions concurrently, each in a task, and return when all have ended."""
    results = await asyncio.gather(*(one() for one in functions), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results  # type: ignore[return-value]


class HandlerLoop:
    """Calls handlers. Async handlers run on the loop of the application."""

    async def call(self, handler: Callable[..., Any], *arguments: Any) -> Any:
        """Call a handler, plain or async, and return its result."""
        return await run_handler(handler, *arguments)

    def close(self) -> None:
        """Do nothing: the loop belongs to the application."""


class Handlers(Generic[Item]):
    """Calls `handle` with each item passed to `give`, inside an `async with` block.

    Each call is a task, and at most `size` of them run at a time. `handle` must not raise.
    """

    def __init__(self, size: int, handle: Callable[[Item], Awaitable[None]]) -> None:
        self._size = size
        self._handle = handle
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: deque[Item] = deque()
        self._ended: list[Item] = []
        self._running: set[asyncio.Future[None]] = set()
        self._is_cancelled = False

    def give(self, item: Item) -> None:
        """Call `handle` with the item as soon as fewer than `size` calls are running."""
        self._waiting.append(item)
        self._start()

    def take_back(self) -> list[Item]:
        """Return the items whose call has not begun. They will not be handled."""
        unbegun, self._waiting = list(self._waiting), deque()
        return unbegun

    def ended(self) -> list[Item]:
        """Return the items whose call has ended since the last time."""
        self._woken.clear()
        ended, self._ended = self._ended, []
        return ended

    async def wait(self, timeout: float) -> bool:
        """Wait until a call has ended or `wake()` is called, for at most `timeout` seconds.

        Returns whether that was the case.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):  # in 3.11 wait_for may lose a cancellation
                await self._woken.wait()
        return self._woken.is_set()

    def wake(self) -> None:
        """End `wait()`. Any thread, and a signal handler, may call this."""
        loop = self._loop  # the end of the block may reset it
        if loop is not None:
            with suppress(RuntimeError):  # it is closed
                loop.call_soon_threadsafe(self._woken.set)

    def cancel(self) -> None:
        """Cancel the calls that are running, and start no others. Call it from the event loop."""
        self._is_cancelled = True
        for call in self._running:
            call.cancel()

    def _start(self) -> None:
        while self._waiting and len(self._running) < self._size and not self._is_cancelled:
            item = self._waiting.popleft()
            call = asyncio.ensure_future(self._handle(item))
            self._running.add(call)
            call.add_done_callback(partial(self._end, item))

    def _end(self, item: Item, call: asyncio.Future[None]) -> None:
        self._running.discard(call)
        self._ended.append(item)
        self._woken.set()
        self._start()

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._running:
            await asyncio.wait(self._running)
        self._loop = None
