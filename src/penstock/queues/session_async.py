"""A session of a queue's consumer. What its calls mean is in `session_state.py`."""

from __future__ import annotations

from typing import Any, Self, TypeVar

from penstock.log.runs_async import AsyncRuns
from penstock.loops.concurrency_async import StopEvent
from penstock.queues.record import ConsumedRecord
from penstock.queues.session_state import CommitMode, SessionState, Step, pauses

Result = TypeVar("Result")


class AsyncConsumerSession:
    """Reads a queue record by record. Made by `queue.create_consumer()`; close it when done.

    In `AUTO_COMMIT` mode a record is done with when it is polled: if the process fails after that,
    the record does not come again (at most once). In `MANUAL_COMMIT` mode it is done with when it
    is committed, and comes again until then (at least once).

    Of the sessions opened with one consumer id only the newest works; the others raise
    `SessionFenced`. A session is for one caller at a time; a second raises `SessionInUse`.
    """

    def __init__(self, log: AsyncRuns, state: SessionState) -> None:
        self._log = log
        self._state = state
        self._closing = StopEvent()

    @property
    def consumer_id(self) -> str:
        """The id under which the queue keeps this consumer's offset."""
        return self._state.id.consumer_id

    @property
    def mode(self) -> CommitMode:
        """When the offset is stored."""
        return self._state.mode

    @property
    def missed(self) -> int:
        """How many records retention removed before this session could poll them."""
        return self._state.missed

    async def poll(self, timeout: float | None = None) -> ConsumedRecord | None:
        """Return the next record, or None if there is none within `timeout` seconds.

        Without a timeout it does not wait. Manual: the same record until it is committed, unless
        the session reads ahead. A record that cannot be decoded raises `UndecodableRecord` each
        time, until `skip()` or a seek passes over it.
        """
        with self._state.turn():
            waits = pauses(timeout)
            while True:
                record = await self._take(self._state.poll())
                pause = next(waits, None)
                if record is not None or pause is None:
                    return record
                await self._closing.wait_for(pause)

    async def commit(self, offset: int | None = None) -> None:
        """Store that this record, or else the last one polled, and all before it are done with.

        A lower offset than is stored already is ignored, but the first commit after a seek stores
        where the seek went, also if that goes back. Does nothing in `AUTO_COMMIT` mode.

        Raises:
            NothingToCommit: Nothing was polled, and no seek was made, since the last commit.
            OffsetBeyondTail: There is no such record yet.
        """
        with self._state.turn():
            step = self._state.commit(offset)
            if step is not None:
                await self._take(step)

    async def seek_to_beginning(self) -> int:
        """Go to the oldest record, and return how many before it were removed by retention."""
        return await self.seek(0)

    async def seek_to_end(self) -> int:
        """Go past all records that are there now, so that the next poll returns a new one."""
        with self._state.turn():
            return await self._take(self._state.seek(None))

    async def seek(self, offset: int) -> int:
        """Go to an offset: the next poll reads there. Return how many records were skipped.

        Records are skipped only where retention has removed them: then the session goes to the
        oldest one left. Stored at once in `AUTO_COMMIT` mode, else with the next commit.

        Raises:
            OffsetBeyondTail: The offset is higher than the one that the next record will get.
        """
        with self._state.turn():
            return await self._take(self._state.seek(offset))

    async def skip(self) -> int:
        """Pass over the record that could not be decoded, and return its offset.

        In `MANUAL_COMMIT` mode that is stored with the next commit.

        Raises:
            NothingToSkip: The last poll did not raise `UndecodableRecord`.
        """
        with self._state.turn():
            return self._state.skip()

    async def committed_offset(self) -> int:
        """Return the stored offset: that of the record to read next. 0 before the first commit."""
        with self._state.turn():
            return await self._take(self._state.committed_offset())

    async def close(self) -> None:
        """End the session; its offset stays. A poll that waits in another task raises at once."""
        self._state.closed = True
        self._closing.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _take(self, step: Step[Any, Result]) -> Result:
        return step.settle(await self._log.run(step.operation))
