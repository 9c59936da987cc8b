"""Run an operation inside the store's interceptors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TypeVar, cast

from penstock.database.interceptor import Call, Interceptor
from penstock.database.operation import Operation

Result = TypeVar("Result")


def intercepted(
    interceptors: Sequence[Interceptor],
    operation: Operation[Result],
    run: Callable[[Operation[Result]], Result],
) -> Result:
    """Run the operation inside every interceptor's `around`."""
    if not interceptors:
        return run(operation)
    call = Call(operation.name, operation.facts)
    failure: BaseException | None = None
    with _around(interceptors, call):
        try:
            call.result = run(operation)
        except BaseException as error:
            failure = error
            raise
    if failure is not None:  # an interceptor may watch an error, but not make it a success
        raise failure
    return cast(Result, call.result)


async def intercepted_async(
    interceptors: Sequence[Interceptor],
    operation: Operation[Result],
    run: Callable[[Operation[Result]], Awaitable[Result]],
) -> Result:
    """Await the operation inside every interceptor's `around`."""
    if not interceptors:
        return await run(operation)
    call = Call(operation.name, operation.facts)
    failure: BaseException | None = None
    with _around(interceptors, call):
        try:
            call.result = await run(operation)
        except BaseException as error:
            failure = error
            raise
    if failure is not None:  # an interceptor may watch an error, but not make it a success
        raise failure
    return cast(Result, call.result)


@contextmanager
def _around(interceptors: Sequence[Interceptor], call: Call) -> Iterator[None]:
    with ExitStack() as stack:
        for interceptor in interceptors:
            stack.enter_context(interceptor.around(call))
        yield
