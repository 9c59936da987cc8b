"""This process: its name, and how it stops in good order when it is asked to end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def this_process() -> str:
    """Return a name for this process that means something to people."""
    return f"{socket.gethostname()}:{os.getpid()}"


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
        signal.signal(number, before[signal.Signals(number)])
        stop()

    for number in _SIGNALS:
        signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def stopping_loop_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Do the same inside a running event loop."""
    loop = asyncio.get_running_loop()
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_signal(number: signal.Signals) -> None:
        loop.remove_signal_handler(number)
        stop()

    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
