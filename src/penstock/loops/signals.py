"""The name of this process, and handlers that stop loops on SIGTERM and SIGINT."""

from __future__ import annotations

import asyncio
import os
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

#: the functions to call, by event loop: a loop has one handler per signal, and many consumers
_stops: WeakKeyDictionary[asyncio.AbstractEventLoop, list[Callable[[], None]]]
_stops = WeakKeyDictionary()
#: the previous handlers, to be restored
_before: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[signal.Signals, Any]]
_before = WeakKeyDictionary()


def this_process() -> str:
    """Return a readable name for this process: its host and pid."""
    return f"{socket.gethostname()}:{os.getpid()}"


class Wakeup:
    """Wakes one thread that waits. A signal handler may use it.

    Of what Python has, only a lock is safe there. `threading.Event` may deadlock, since the
    interrupted code may hold its own lock. `SimpleQueue.get(timeout=)` may never return: if a
    handler runs until after the timeout, the time left is negative, which means no limit.
    """

    def __init__(self) -> None:
        self._asleep = threading.Lock()
        self._asleep.acquire()

    def wake(self) -> None:
        """End the wait of one thread, or else the next one that begins."""
        with suppress(RuntimeError):  # it is released already
            self._asleep.release()

    def wait(self, timeout: float) -> bool:
        """Wait for at most `timeout` seconds, and return whether `wake` was called."""
        return self._asleep.acquire(timeout=min(max(timeout, 0.0), threading.TIMEOUT_MAX))


class StopEvent:
    """An event that a signal handler may set."""

    def __init__(self) -> None:
        self._is_set = False
        self._wakeup = Wakeup()

    def is_set(self) -> bool:
        """Whether the event is set."""
        return self._is_set

    def set(self) -> None:
        """Set the event, and wake all waiting threads."""
        self._is_set = True
        self._wakeup.wake()

    def wait_for(self, timeout: float) -> bool:
        """Wait until the event is set, for at most `timeout` seconds. Return whether it is set."""
        if not self._is_set and self._wakeup.wait(timeout):
            self._wakeup.wake()  # the next waiting thread
        return self._is_set


@contextmanager
def stopping_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on SIGTERM and SIGINT inside the block. A second signal acts as before.

    Only the main thread can set handlers; in other threads this does nothing.
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

    An existing handler, such as a web server's, is called as well. A handler that was set with
    `loop.add_signal_handler` cannot be read, and is lost.
    """
    loop = asyncio.get_running_loop()
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    stops = _stops.setdefault(loop, [])
    if not stops:
        for number in _SIGNALS:
            _set_handler(loop, number)
    stops.append(stop)
    try:
        yield
    finally:
        stops.remove(stop)
        if not stops:
            for number in _SIGNALS:
                _restore_handler(loop, number)


def _set_handler(loop: asyncio.AbstractEventLoop, number: signal.Signals) -> None:
    loop.remove_signal_handler(number)  # else getsignal returns its stub
    _before.setdefault(loop, {})[number] = signal.getsignal(number)
    loop.add_signal_handler(number, _stop_all, loop, number)


def _restore_handler(loop: asyncio.AbstractEventLoop, number: signal.Signals) -> None:
    if loop.remove_signal_handler(number):  # sets the default handler
        handler = _before[loop].pop(number)
        if handler is not None:  # None: not set by Python
            signal.signal(number, handler)


def _stop_all(loop: asyncio.AbstractEventLoop, number: signal.Signals) -> None:
    handler = _before[loop].get(number)
    _restore_handler(loop, number)
    for stop in list(_stops.get(loop, [])):
        stop()
    if callable(handler) and not _only_interrupts(handler):
        handler(number, None)


def _only_interrupts(handler: Callable[..., Any]) -> bool:
    """Whether the handler is Python's or asyncio's default for Ctrl-C, which interrupts tasks."""
    if handler is signal.default_int_handler:
        return True
    return isinstance(handler, partial) and isinstance(
        getattr(handler.func, "__self__", None), asyncio.Runner
    )
