"""What differs between blocking and async code: waiting, signals, background work, handlers.

`concurrency_async.py` has the same names for async code. These two are the only modules that are
written twice; every other `x.py` beside an `x_async.py` is generated.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from time import sleep as sleep
from typing import Any, Generic, Self, TypeVar

from penstock.errors import ValidationError
from penstock.loops.signals import StopEvent as StopEvent
from penstock.loops.signals import Wakeup as Wakeup
from penstock.loops.signals import stopping_on_signals as stopping_on_signals

Item = TypeVar("Item")
Result = TypeVar("Result")

IS_ASYNC = False


class Signal:
    """One thread waits until another one sets it."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()  # an event would cost ten times as much
        self._lock.acquire()

    def set(self) -> None:
        """End the wait of the thread."""
        with suppress(RuntimeError):  # it was set before
            self._lock.release()

    def wait(self) -> None:
        """Wait until it is set."""
        self._lock.acquire()


def waiting_scope() -> object:
    """Return what threads that wait for each other have in common: the process."""
    return os.getpid()


def finish_in_background(work: Callable[[], None]) -> None:
    """Do the work. A thread cannot be cancelled."""
    work()


def wait_for(future: Future[Result], timeout: float) -> Result:
    """Return the result of a future that another thread sets, or raise TimeoutError."""
    return future.result(timeout)


def run_in_thread(
    function: Callable[[], Result], undo: Callable[[Result], object] = lambda result: None
) -> Result:
    """Run a function that blocks, in this thread."""
    return function()


@contextmanager
def background(work: Callable[[StopEvent], None], name: str) -> Iterator[None]:
    """Run `work` in a thread beside the block. It gets an event that is set when the block ends."""
    done = StopEvent()
    thread = threading.Thread(target=work, args=(done,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def run_handler(handler: Callable[..., Any], *arguments: Any) -> Any:
    """Call a handler and return its result. Refuses an awaitable result."""
    result = handler(*arguments)
    if result is not None and inspect.isawaitable(result):  # None is the rule
        if inspect.iscoroutine(result):
            result.close()
        expected = "a plain function; async ones need the async form of this class"
        raise ValidationError("handler", result, expected)
    return result


def is_coroutine_function(function: Any) -> bool:
    """Whether this is an async function, or an object with an async `__call__`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - its value is needed
    )


def check_handler(handler: Callable[..., Any], class_name: str) -> None:
    """Refuse a handler that `run_handler` cannot run. The error names the class that can."""
    is_async = is_coroutine_function(handler) or inspect.isasyncgenfunction(handler)
    if is_async or not callable(handler):
        expected = f"a plain function; Async{class_name} takes async ones"
        raise ValidationError("handler", handler, expected)


def is_interrupt(error: BaseException) -> bool:
    """Whether the error interrupts the program, and does not come from a handler."""
    return isinstance(error, KeyboardInterrupt)


def run_to_end(work: Callable[[], Result], on_cancel: Callable[[], None] = lambda: None) -> Result:
    """Return the result of `work`. A thread cannot be cancelled."""
    return work()


def side_by_side(functions: Sequence[Callable[[], Result]]) -> list[Result]:
    """Call the functions concurrently, each in a thread, and return when all have ended."""
    if len(functions) == 1:
        return [functions[0]()]
    with ThreadPoolExecutor(len(functions)) as threads:
        return list(threads.map(lambda function: function(), functions))


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


class Handlers(Generic[Item]):
    """Calls `handle` with each item passed to `give`, inside a `with` block.

    `size` threads take the items from one queue, in order. `handle` must not raise.
    (`concurrent.futures` creates a future for each item, which costs more than most handlers.)
    """

    def __init__(self, size: int, handle: Callable[[Item], None]) -> None:
        self._size = size
        self._handle = handle
        self._waiting: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
        self._ended: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self._wakeup = Wakeup()

    def give(self, item: Item) -> None:
        """Call `handle` with the item as soon as a thread is free."""
        self._waiting.put(item)

    def take_back(self) -> list[Item]:
        """Return the items whose call has not begun. They will not be handled."""
        return list(_drained(self._waiting))

    def ended(self) -> list[Item]:
        """Return the items whose call has ended since the last time."""
        self._wakeup.wait(0)  # forget what woke us
        return list(_drained(self._ended))

    def wait(self, timeout: float) -> bool:
        """Wait until a call has ended or `wake()` is called, for at most `timeout` seconds.

        Returns whether that was the case.
        """
        is_woken = self._wakeup.wait(timeout)
        if is_woken:
            self._wakeup.wake()  # until `ended()`
        return is_woken

    def wake(self) -> None:
        """End `wait()`. Any thread, and a signal handler, may call this."""
        self._wakeup.wake()

    def cancel(self) -> None:
        """Do nothing: a thread cannot be cancelled."""

    def _run(self) -> None:
        while (item := self._waiting.get()) is not None:
            self._handle(item)
            self._ended.put(item)
            self._wakeup.wake()

    def __enter__(self) -> Self:
        self._threads = [
            threading.Thread(target=self._run, name=f"penstock handler {n}")
            for n in range(self._size)
        ]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for _thread in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join()


def _drained(items: queue.SimpleQueue[Any]) -> Iterator[Item]:
    with suppress(queue.Empty):
        while True:
            if (item := items.get_nowait()) is not None:
                yield item
