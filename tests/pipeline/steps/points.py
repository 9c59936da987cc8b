"""The points of a step at which a server may go away: before and after what a step does.

They are found by wrapping the functions that a step calls. Each thread has points of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from penstock.pipeline import step

CALLED = (
    (step, "begin"),
    (step, "perform"),
    (step, "stage_frame"),
    (step, "commit"),
)
_here = threading.local()


class Path:
    """The points that a thread passes, and what happens at one of them."""

    def __init__(self, stop_at: Callable[[list[str]], bool], stop: Callable[[], None]) -> None:
        self.passed: list[str] = []
        self._stop_at = stop_at
        self._stop = stop

    def reach(self, point: str) -> None:
        self.passed.append(point)
        if self._stop_at(self.passed):
            self._stop()


def reach(point: str) -> None:
    """Come to a point on this thread's path, if it is on one."""
    path = getattr(_here, "path", None)
    if path is not None:
        path.reach(point)


@contextmanager
def walking(stop_at: Callable[[list[str]], bool], stop: Callable[[], None]) -> Iterator[Path]:
    """Let this thread note its points, and do something at one of them."""
    _here.path = Path(stop_at, stop)
    try:
        yield _here.path
    finally:
        _here.path = None


@contextmanager
def points_are_noticed() -> Iterator[None]:
    """Wrap the functions that a step calls."""
    with ExitStack() as patches:
        for owner, name in CALLED:
            wrapped = _wrap(getattr(owner, name), name)
            patches.enter_context(mock.patch.object(owner, name, wrapped))
        yield


def _wrap(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    def wrapped(*arguments: Any, **options: Any) -> Any:
        reach(f"before {name}")
        result = function(*arguments, **options)
        reach(f"after {name}")
        return result

    return wrapped
