"""A consumer's session on a queue. `session_state.py` says what each call does."""

from __future__ import annotations

from typing import Any, Self, TypeVar

from penstock.database.waiters import of_stream
from penstock.log.runs_async import AsyncRuns
from penstock.log.waiter_async import AsyncWaiter
from penstock.loops.durations import Duration
from penstock.queues.record import ConsumedRecord
from penstock.queues.session_state import (
    CommitMode,
    SessionState,
    Transition,
    deadline_after,
    pauses,
)

Result = TypeVar("Result")


class AsyncConsumerSession:
    """Reads a queue record by record. Made by `queue.create_consumer()`; close it when done.

    In `AUTO_COMMIT` mode each poll commits: if the process fails after that, the record is not
    read again (at most once). In `MANUAL_COMMIT` mode a record is read again until it is committed
    (at least once).

    Only the newest session of a consumer id can be used; older ones raise `SessionFenced`. Only one
    caller at a time can use a session; a second one raises `SessionInUse`.
    """

    def __init__(self, log: AsyncRuns, state: SessionState) -> None:
        self._log = log
        self._state = state
        self._waiter = AsyncWaiter(log, [of_stream(state.id.stream_name)], held_back=False)

    @property
    def consumer_id(self) -> str:
        """The id under which the offset is stored."""
        return self._state.id.consumer_id

    @property
    def mode(self) -> CommitMode:
        """When the offset is stored."""
        return self._state.mode

    @property
    def missed(self) -> int:
        """How many records retention removed before this session polled them."""
        return self._state.missed

    async def poll(self, timeout: Duration | None = None) -> ConsumedRecord | None:
        """Return the next record, or None if there is none within `timeout` (seconds, timedelta).

        Without a timeout it does not wait. In `MANUAL_COMMIT` mode it returns the same record until
        that is committed, unless the session reads ahead. A record that cannot be decoded raises
        `UndecodableRecord` each time, until `skip()` or a seek.
        """
        with self._state.in_use():
            deadline = deadline_after(timeout)
            record = await self._run(self._state.poll())
            if record is not None or deadline is None:
                return record
            with self._waiter:
                return await self._wait_for_record(deadline)

    async def commit(self, offset: int | None = None) -> None:
        """Commit the record at `offset`, or else the last one polled, and all before it.

        An offset below the stored one is ignored, except in the first commit after a seek: that
        also goes back. Does nothing in `AUTO_COMMIT` mode.

        Raises:
            NothingToCommit: There was no poll that returned a record, and no seek, since the last
                commit.
            OffsetBeyondTail: There is no such record yet.
        """
        with self._state.in_use():
            transition = self._state.commit(offset)
            if transition is not None:
                await self._run(transition)

    async def seek_to_beginning(self) -> int:
        """Go to the oldest record, and return how many before it retention has removed."""
        return await self.seek(0)

    async def seek_to_end(self) -> int:
        """Go to the tail, so that the next poll returns a record that is offered after this."""
        with self._state.in_use():
            return await self._run(self._state.seek(None))

    async def seek(self, offset: int) -> int:
        """Go to an offset, which the next poll reads. Return how many records were skipped.

        If retention has removed the record, the session goes to the oldest one left. The offset is
        stored at once in `AUTO_COMMIT` mode, and with the next commit in `MANUAL_COMMIT` mode.

        Raises:
            OffsetBeyondTail: The offset is higher than the one that the next record will get.
        """
        with self._state.in_use():
            return await self._run(self._state.seek(offset))

    async def skip(self) -> int:
        """Skip the record that could not be decoded, and return its offset.

        In `MANUAL_COMMIT` mode the next commit stores that.

        Raises:
            NothingToSkip: The last poll did not raise `UndecodableRecord`.
        """
        with self._state.in_use():
            return self._state.skip()

    async def committed_offset(self) -> int:
        """Return the stored offset, which is that of the next record. 0 before the first commit."""
        with self._state.in_use():
            return await self._log.run(self._state.committed_offset())

    async def close(self) -> None:
        """Close the session. Its offset stays. A poll that waits raises `SessionClosed`."""
        self._state.closed = True
        self._waiter.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _wait_for_record(self, deadline: float) -> ConsumedRecord | None:
        """Return the next record, or None if there is none until the deadline."""
        remaining = pauses(deadline)
        while True:
            self._waiter.looks()
            record = await self._run(self._state.poll())
            pause = next(remaining, None)
            if record is not None or pause is None:
                return record
            await self._waiter.sleep(pause, due=deadline)

    async def _run(self, transition: Transition[Any, Result]) -> Result:
        result = transition.apply(await self._log.run(transition.operation))
        while isinstance(result, Transition):
            result = result.apply(await self._log.run(result.operation))
        return result
