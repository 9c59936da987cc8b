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
    first, longest = seconds("delay", delay), seconds("longest_delay", longest_delay)

    def pauses() -> Iterator[float]:
        """Yield the pause after each attempt but the last."""
        for attempt in range(attempts - 1):
            yield min(longest, first * 2.0 ** min(attempt, 60)) * random.uniform(0.5, 1.5)

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def retrying(*args: Any, **kwargs: Any) -> Any:
            for pause in pauses():
                try:
                    return function(*args, **kwargs)
                except PenstockError as error:
                    if not error.retryable:
                        raise
                time.sleep(pause)
            return function(*args, **kwargs)

        @functools.wraps(function)
        async def retrying_async(*args: Any, **kwargs: Any) -> Any:
            for pause in pauses():
                try:
                    return await function(*args, **kwargs)
                except PenstockError as error:
                    if not error.retryable:
                        raise
                await asyncio.sleep(pause)
            return await function(*args, **kwargs)

        is_async = inspect.iscoroutinefunction(function)
        return cast(Function, retrying_async if is_async else retrying)

    return decorate if function is None else decorate(function)
