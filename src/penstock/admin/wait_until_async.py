"""Wait until a reader has handled everything up to a global position.

First the watermark has to pass the position: until then a message may still be committed there.
Then the reader's stored progress is read again and again, at first after a millisecond, and twice
as long each time. A consumer is asked to store its position when it has nothing to do: otherwise it
would store it a second later.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from penstock.admin.awaited import Reader, Tailers, Task, unread
from penstock.errors import ReaderNotFound, UnavailableError, ValidationError, WaitTimedOut
from penstock.log import overview
from penstock.log.context import check_position
from penstock.log.runs_async import AsyncRuns
from penstock.log.waiter_async import log_ends
from penstock.loops.concurrency_async import sleep
from penstock.loops.durations import Duration, seconds

SHORTEST_PAUSE, LONGEST_PAUSE = 0.001, 0.05  # seconds
Result = TypeVar("Result")


async def wait_for_reader(
    runs: AsyncRuns, reader: Reader, position: int, timeout: Duration
) -> None:
    """Return when the reader has handled everything up to the position, or raise WaitTimedOut."""
    deadline = time.monotonic() + seconds("timeout", timeout)
    check_position("position", position)
    tailers: Tailers = {}

    async def is_complete() -> bool:
        complete_to, last = await runs.run(log_ends())
        if position > last:
            raise ValidationError("position", position, f"at most {last}, where the log ends")
        return complete_to >= position

    async def has_handled() -> bool:
        nonlocal tailers
        runs.context.notify(reader.asks)
        try:
            tailers = await runs.run(reader.progress)
        except ReaderNotFound:  # it may be about to store its first position
            if time.monotonic() >= deadline:
                raise
            return False
        is_behind = False
        for queue, after in tailers.items():
            is_behind = is_behind or await runs.run(unread(queue, after, position))
        return not is_behind

    awaited = f"position {position} of the log by {reader.name}"
    if not await _happens(is_complete, deadline):
        raise WaitTimedOut(awaited, seconds("timeout", timeout), await _held_back_by(runs))
    if not await _happens(has_handled, deadline):
        raise WaitTimedOut(awaited, seconds("timeout", timeout), _reached(tailers))


async def wait_for_task(runs: AsyncRuns, task: Task, timeout: Duration) -> str:
    """Return the state in which the task has ended, or raise WaitTimedOut."""
    deadline, state = time.monotonic() + seconds("timeout", timeout), ""

    async def has_ended() -> bool:
        nonlocal state
        state = await runs.run(task.state)
        return state not in task.unfinished

    if not await _happens(has_ended, deadline):
        reached = f"it is {state.replace('_', ' ')}"
        raise WaitTimedOut(f"the end of {task.name}", seconds("timeout", timeout), reached)
    return state


async def _happens(question: Callable[[], Awaitable[bool]], deadline: float) -> bool:
    """Ask until the answer is yes, at least once and until the deadline.

    While the database is away there is no answer; at the deadline, its error is raised.
    """
    pause = SHORTEST_PAUSE
    while True:
        left = deadline - time.monotonic()
        try:
            if await question():
                return True
        except UnavailableError as error:
            if left <= 0 or not error.retryable:
                raise
        if left <= 0:
            return False
        await sleep(min(pause, left))
        pause = min(2 * pause, LONGEST_PAUSE)


async def _held_back_by(runs: AsyncRuns) -> str:
    writers = (await runs.run(overview.status(runs.context))).open_writers
    return f"an open writer holds it back: {writers[0]}" if writers else "it is held back no more"


def _reached(tailers: Tailers) -> str:
    return "it has come to " + ", ".join(
        f"{position} of {queue}" if queue else str(position) for queue, position in tailers.items()
    )
