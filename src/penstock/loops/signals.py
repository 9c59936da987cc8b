"""This process: its name, and how it stops in good order when it is asked to end."""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

_SIGNALS = (signal.SIGTERM, signal.SIGINT)

#: what to stop in each event loop: a loop has one handler for a signal, and may run many consumers
_stops: WeakKeyDictionary[asyncio.AbstractEventLoop, list[Callable[[], None]]]
_stops = WeakKeyDictionary()
#: the handlers that were there before, to be put back
_before: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[signal.Signals, Any]]
_before = WeakKeyDictionary()


def this_process() -> str:
    """Return a name for this process that means something to people."""
    return f"{socket.gethostname()}:{os.getpid()}"


class StopEvent:
    """An event that a signal handler may set.

    `threading.Event` may deadlock there: it takes a lock that the interrupted code may hold. To put
    into a `SimpleQueue` takes none.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._woken: queue.SimpleQueue[None] = queue.SimpleQueue()

    def is_set(self) -> bool:
        """Whether it was set."""
        return self._is_set

    def set(self) -> None:
        """Set it, and wake who waits."""
        self._is_set = True
        self._woken.put(None)

    def wait_for(self, timeout: float) -> bool:
        """Wait until it is set, for at most `timeout` seconds. Return whether it is set."""
        if not self._is_set and timeout > 0:
            with suppress(queue.Empty):
                self._woken.get(timeout=timeout)
                self._woken.put(None)  # for the next who waits
        return self._is_set


@contextmanager
def stopping_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on SIGTERM and SIGINT inside the block. A second signal acts as it did before.

    Only the main thread may set handlers; elsewhere this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def on_signal(number: int, frame: FrameType | None) -> None:
        signal.signal(number, before[signal.Signals(number)] or signal.SIG_DFL)
        stop()

    for number in _SIGNALS:
        signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


@contextmanager
def stopping_loop_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Do the same inside a running event loop.

    A handler of the application's own, such as a web server's, is called as well, so that both end.
    One that was set with `loop.add_signal_handler` cannot be read back, and is gone then.
    """
    loop = asyncio.get_running_loop()
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    stops = _stops.setdefault(loop, [])
    if not stops:
        for number in _SIGNALS:
            _take_over(loop, number)
    stops.append(stop)
    try:
        yield
    finally:
        stops.remove(stop)
        if not stops:
            for number in _SIGNALS:
                _give_back(loop, number)


def _take_over(loop: asyncio.AbstractEventLoop, number: signal.Signals) -> None:
    loop.remove_signal_handler(number)  # else its stub would be taken for what was there before
    _before.setdefault(loop, {})[number] = signal.getsignal(number)
    loop.add_signal_handler(number, _stop_all, loop, number)


def _give_back(loop: asyncio.AbstractEventLoop, number: signal.Signals) -> None:
    if loop.remove_signal_handler(number):  # which leaves the default
        handler = _before[loop].pop(number)
        if handler is not None:  # one that Python did not set
            signal.signal(number, handler)


def _stop_all(loop: asyncio.AbstractEventLoop, number: signal.Signals) -> None:
    handler = _before[loop].get(number)
    _give_back(loop, number)
    for stop in list(_stops.get(loop, [])):
        stop()
    if callable(handler) and not _only_interrupts(handler):
        handler(number, None)


def _only_interrupts(handler: Callable[..., Any]) -> bool:
    """Whether the handler is Python's or asyncio's own for Ctrl-C, which would cancel the loops."""
    if handler is signal.default_int_handler:
        return True
    return isinstance(handler, partial) and isinstance(
        getattr(handler.func, "__self__", None), asyncio.Runner
    )
