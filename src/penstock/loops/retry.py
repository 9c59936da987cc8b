"""Retry a function after a temporary error: a conflict, a deadlock, an outage."""

from __future__ import annotations

import asyncio
import functools
import inspect
import random
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast, overload

from penstock.errors import PenstockError, ValidationError
from penstock.loops.durations import Duration, seconds

Function = TypeVar("Function", bound=Callable[..., Any])


@overload
def retry(function: Function, /) -> Function: ...


@overload
def retry(
    *, attempts: int = 5, delay: Duration = 0.01, longest_delay: Duration = 1.0
) -> Callable[[Function], Function]: ...


def retry(
    function: Function | None = None,
    /,
    *,
    attempts: int = 5,
    delay: Duration = 0.01,
    longest_delay: Duration = 1.0,
) -> Function | Callable[[Function], Function]:
    """Retry a function, plain or async, when it raises a retryable error.

    Read and decide inside the function, so that each attempt uses current data. The pause before
    each new attempt doubles from `delay` to `longest_delay` (in seconds, or as timedelta), with
    jitter. After the last attempt, its error is raised.
    """
    if not isinstance(attempts, int) or isinstance(attempts, bool) or attempts < 1:
        raise ValidationError("attempts", attempts, "a whole number of at least 1")
    pause, longest = seconds("delay", delay), seconds("longest_delay", longest_delay)

    def decorate(function: Function) -> Function:
        if inspect.iscoroutinefunction(function):
            return cast(Function, _retrying_async(function, attempts, pause, longest))
        return cast(Function, _retrying(function, attempts, pause, longest))

    return decorate if function is None else decorate(function)


def _retrying(
    function: Callable[..., Any], attempts: int, delay: float, longest: float
) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        for pause in _pauses(attempts, delay, longest):
            try:
                return function(*args, **kwargs)
            except PenstockError as error:
                if not error.retryable:
                    raise
            time.sleep(pause)
        return function(*args, **kwargs)

    return wrapper


def _retrying_async(
    function: Callable[..., Any], attempts: int, delay: float, longest: float
) -> Callable[..., Any]:
    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        for pause in _pauses(attempts, delay, longest):
            try:
                return await function(*args, **kwargs)
            except PenstockError as error:
                if not error.retryable:
                    raise
            await asyncio.sleep(pause)
        return await function(*args, **kwargs)

    return wrapper


def _pauses(attempts: int, delay: float, longest: float) -> Iterator[float]:
    """Yield the pause after each attempt but the last."""
    for attempt in range(attempts - 1):
        yield min(longest, delay * 2.0 ** min(attempt, 60)) * random.uniform(0.5, 1.5)
