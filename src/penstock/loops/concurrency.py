"""What differs between blocking and async code: waiting, signals, background work, handlers.

`concurrency_async.py` has the same names for async code. These two are the only modules that are
written twice; every other `x.py` beside an `x_async.py` is generated.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from time import sleep
from typing import Any, TypeVar

from penstock.errors import ValidationError
from penstock.loops.signals import StopEvent, stopping_on_signals

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

IS_ASYNC = False
#: what a handler may be, for error messages
HANDLERS = "a plain function; async ones need the async form of this class"


def wait_for(future: Future[Result], timeout: float) -> Result:
    """Return the result of a future that another thread sets, or raise TimeoutError."""
    return future.result(timeout)


def run_in_thread(
    function: Callable[[], Result], undo: Callable[[Result], object] = lambda result: None
) -> Result:
    """Run a function that blocks."""
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
    """Call a handler and return its result. Refuses what only an event loop could finish."""
    result = handler(*arguments)
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise ValidationError("handler", result, HANDLERS)
    return result


def is_supported(handler: Callable[..., Any]) -> bool:
    """Whether `run_handler` can run it."""
    return callable(handler) and not is_coroutine_function(handler)


def is_coroutine_function(function: Any) -> bool:
    """Whether a call returns something to await: of an async function, or of an object with one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - what it is, not whether it is
    )


def check_handler(handler: Callable[..., Any], class_name: str) -> None:
    """Refuse a handler that `run_handler` cannot run, and name the class that could."""
    if not is_supported(handler) or inspect.isasyncgenfunction(handler):
        expected = f"a plain function; Async{class_name} takes async ones"
        raise ValidationError("handler", handler, expected)


def shielded(work: Callable[[], Result]) -> Result:
    """Do work that must not be left half done."""
    return work()


def is_interrupt(error: BaseException) -> bool:
    """Whether the error interrupts the program, and is not a handler's own."""
    return isinstance(error, KeyboardInterrupt)
