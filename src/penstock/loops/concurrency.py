"""What differs between blocking and async code: waiting, signals, background work, handlers.

`concurrency_async.py` has the same names for async code. These two are the only modules that are
written twice; every other `x.py` beside an `x_async.py` is generated.
"""

from __future__ import annotations

import inspect
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from time import sleep
from typing import Any, Generic, Self, TypeVar

from penstock.errors import ValidationError
from penstock.loops.event_loop import HandlerLoop
from penstock.loops.signals import StopEvent, Wakeup, stopping_on_signals

Item = TypeVar("Item")
Result = TypeVar("Result")

__all__ = [
    "HANDLERS",
    "IS_ASYNC",
    "HandlerLoop",
    "Handlers",
    "StopEvent",
    "background",
    "check_handler",
    "is_coroutine_function",
    "is_interrupt",
    "is_supported",
    "run_handler",
    "run_in_thread",
    "run_to_end",
    "shielded",
    "side_by_side",
    "sleep",
    "stopping_on_signals",
    "wait_for",
]

IS_ASYNC = False
#: what a handler may be, for error messages
HANDLERS = "a plain function; async ones need the async form of this class"


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
        raise ValidationError("handler", result, HANDLERS)
    return result


def is_supported(handler: Callable[..., Any]) -> bool:
    """Whether `run_handler` can run the handler."""
    return callable(handler) and not is_coroutine_function(handler)


def is_coroutine_function(function: Any) -> bool:
    """Whether this is an async function, or an object with an async `__call__`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - its value is needed
    )


def check_handler(handler: Callable[..., Any], class_name: str) -> None:
    """Refuse a handler that `run_handler` cannot run. The error names the class that can."""
    if not is_supported(handler) or inspect.isasyncgenfunction(handler):
        expected = f"a plain function; Async{class_name} takes async ones"
        raise ValidationError("handler", handler, expected)


def shielded(work: Callable[[], Result]) -> Result:
    """Run work that must be completed."""
    return work()


def is_interrupt(error: BaseException) -> bool:
    """Whether the error interrupts the program, and does not come from a handler."""
    return isinstance(error, KeyboardInterrupt)


def run_to_end(work: Callable[[], Result], on_cancel: Callable[[], None]) -> Result:
    """Return the result of `work`. A thread cannot be cancelled."""
    return work()


def side_by_side(functions: Sequence[Callable[[], Result]]) -> list[Result]:
    """Call the functions concurrently, each in a thread, and return when all have ended."""
    if len(functions) == 1:
        return [functions[0]()]
    with ThreadPoolExecutor(len(functions)) as threads:
        return list(threads.map(lambda function: function(), functions))


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

    def wait(self, timeout: float) -> None:
        """Wait until a call has ended or `wake()` is called, for at most `timeout` seconds."""
        if self._wakeup.wait(timeout):
            self._wakeup.wake()  # until `ended()`

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
