"""Run an operation inside the store's interceptors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TypeVar

from penstock.database.operation import Operation
from penstock.interceptor import Call, Interceptor

Result = TypeVar("Result")


def intercepted(
    interceptors: Sequence[Interceptor],
    operation: Operation[Result],
    run: Callable[[Operation[Result]], Result],
) -> Result:
    """Run the operation inside every interceptor's `around`."""
    if not interceptors:
        return run(operation)
    with _around(interceptors, Call(operation.name, operation.facts)) as call:
        call.result = result = run(operation)
        return result


async def intercepted_async(
    interceptors: Sequence[Interceptor],
    operation: Operation[Result],
    run: Callable[[Operation[Result]], Awaitable[Result]],
) -> Result:
    """Await the operation inside every interceptor's `around`."""
    if not interceptors:
        return await run(operation)
    with _around(interceptors, Call(operation.name, operation.facts)) as call:
        call.result = result = await run(operation)
        return result


@contextmanager
def _around(interceptors: Sequence[Interceptor], call: Call) -> Iterator[Call]:
    with ExitStack() as stack:
        for interceptor in interceptors:
            stack.enter_context(interceptor.around(call))
        yield call
