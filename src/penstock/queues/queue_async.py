"""A queue: offer records, and open sessions that read them.

A queue is the stream `queue-{name}`. It is not created beforehand, and whatever reads the log can
read it. Each consumer id has an offset of its own, so each consumer gets every record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from penstock.log import write
from penstock.log.runs_async import AsyncRuns
from penstock.message import as_uuid, new_id
from penstock.queues import operations
from penstock.queues.record import ConsumedRecord, Record, records_from
from penstock.queues.session_async import AsyncConsumerSession
from penstock.queues.session_state import CommitMode, SessionState, check_options


class AsyncQueue:
    """A queue of records. Made by `store.queue(name)`, or `tx.queue(name)` in a transaction."""

    def __init__(self, log: AsyncRuns, name: str) -> None:
        self._log = log
        self.name = name
        #: the stream that holds its records
        self.stream_name = operations.stream_of(name)

    async def offer(
        self,
        value: Any,
        key: str | bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        id: UUID | str | None = None,
    ) -> int:
        """Add a record and return its offset. `value` is any JSON value.

        A retry with the same `id` adds nothing and returns the first offset.
        """
        record = Record(value, key, headers, id=new_id() if id is None else as_uuid(id))
        context = self._log.context
        message = operations.message_of(context, record)
        return await self._log.run(write.write_message(context, self.stream_name, message))

    async def offer_many(self, values: Iterable[Any]) -> list[int]:
        """Add several records, all or none, in one round trip, and return their offsets.

        Pass `Record` objects to set keys, headers or ids. Anything else is a value.
        """
        records = records_from(values)
        if not records:
            return []
        context = self._log.context
        messages = [operations.message_of(context, record) for record in records]
        return await self._log.run(write.write_messages(context, self.stream_name, messages))

    async def fetch_at(self, offset: int) -> ConsumedRecord | None:
        """Return the record at an offset; None if there is none yet, or if it was removed.

        Does not move any consumer.
        """
        return await self._log.run(operations.fetch_at(self._log.context, self.stream_name, offset))

    async def commit_offset(self, consumer_id: str, next_offset: int) -> None:
        """Store the offset of the record that a consumer reads next, without a session.

        An offset below the stored one is ignored. An open session does not move; the next one
        continues from the stored offset.

        Raises:
            OffsetBeyondTail: The offset is higher than the one that the next record will get.
        """
        context = self._log.context
        await self._log.run(
            operations.commit_offset(context, self.stream_name, consumer_id, next_offset)
        )

    async def create_consumer(
        self,
        consumer_id: str,
        mode: CommitMode = CommitMode.AUTO_COMMIT,
        *,
        read_ahead: bool = False,
    ) -> AsyncConsumerSession:
        """Open a session. It continues at this consumer's stored offset, or at 0 the first time.

        A session that is open under this id is fenced. With `read_ahead` (manual mode only) `poll`
        moves on without a commit.
        """
        check_options(mode, read_ahead)
        context = self._log.context
        id, next_offset = await self._log.run(
            operations.open_session(context, self.stream_name, consumer_id)
        )
        state = SessionState(context, id, next_offset, mode, read_ahead)
        return AsyncConsumerSession(self._log, state)
