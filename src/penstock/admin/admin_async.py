"""What operators do to consumers, as methods of a store: list, move, clean up, see to parked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypeVar

from penstock.admin import health, readers
from penstock.admin.health import HealthFigure
from penstock.admin.readers import ConsumerStatus, SessionStatus
from penstock.consumers import parked
from penstock.consumers.parked import ParkedMessage, parked_stream
from penstock.database.operation import Operation
from penstock.errors import ParkedMessageNotFound
from penstock.log import read
from penstock.log.context import LogContext
from penstock.log.retain_async import retain
from penstock.log.retention import Keep, Retained
from penstock.message import RecordedMessage

Result = TypeVar("Result")


class AsyncOperatorCalls(ABC):
    """Operators' calls: list and move readers, remove old messages, retry or drop parked ones."""

    context: LogContext

    @abstractmethod
    async def run(self, operation: Operation[Result], /) -> Result:
        """Run an operation and return its result."""

    async def health(self) -> list[HealthFigure]:
        """Return how the store stands: who lags behind, what is parked or failed, old claims.

        Cheap however long the log is: fit to be called every few seconds.
        """
        return await self.run(health.health(self.context))

    async def consumers(self, count_up_to: int = 10_000) -> list[ConsumerStatus]:
        """Return every consumer that has stored a position, with its backlog.

        The backlog is counted up to `count_up_to` messages, so that the answer stays cheap.
        """
        return await self.run(readers.consumers(self.context, count_up_to))

    async def sessions(self, count_up_to: int = 10_000) -> list[SessionStatus]:
        """Return every consumer of a queue, with its backlog, counted up to `count_up_to`."""
        return await self.run(readers.sessions(self.context, count_up_to))

    async def move_session(self, queue: str, consumer_id: str, next_offset: int) -> int:
        """Put a queue's consumer at an offset, forwards or back, and return where it was.

        A session that is open is fenced: opened again, it goes on from the offset. One beyond the
        tail is refused.
        """
        return await self.run(readers.move_session(self.context, queue, consumer_id, next_offset))

    async def offset_since(self, queue: str, moment: datetime) -> int:
        """Return the offset of a queue's first record written since `moment`, or its tail."""
        return await self.run(readers.offset_since(self.context, queue, moment))

    async def move_consumer(
        self, category: str, consumer_id: str, position: int, kept_in: str = "stream"
    ) -> None:
        """Put a consumer right after a global position, forwards or back; 0 is the beginning.

        A position beyond the end of the log is refused: messages to come would be passed over.
        `kept_in` says where the consumer keeps its position: "stream", "table" or "hybrid". A
        running consumer notices at its next save and stops.
        """
        move = readers.move_consumer(self.context, category, consumer_id, position, kept_in)
        readers.refuse_beyond(await self.run(readers.end_of_log()), position)
        await self.run(move)

    async def position_before(self, category: str, moment: datetime) -> int:
        """Return the global position right before the first message written since `moment`."""
        return await self.run(readers.position_before(self.context, category, moment))

    async def retain(
        self,
        target: str,
        *,
        keep_count: int | None = None,
        keep_for: timedelta | None = None,
        keep_from: int | None = None,
        ignore_consumers: bool = False,
        progress: Callable[[int], None] = lambda removed: None,
    ) -> Retained:
        """Remove the oldest messages of a stream, category or queue, and return how many.

        Give one of: how many messages to keep, for how long, or from which position on. What a
        consumer has not read stays, unless `ignore_consumers`; the last message of each stream
        stays always. Needs the owner's rights.
        """
        keep = Keep(keep_count, keep_for, keep_from)
        return await retain(
            self, target, keep, ignore_consumers=ignore_consumers, progress=progress
        )

    async def parked(self, category: str, consumer_id: str) -> list[ParkedMessage]:
        """Return the messages that a consumer could not handle and that still wait."""
        stream_name = parked_stream(category, consumer_id)
        story: list[RecordedMessage] = []
        while page := await self.run(
            read.get_stream_messages(self.context, stream_name, parked.next_position(story))
        ):
            story.extend(page)
        return list(parked.fold(story).values())

    async def retry_parked(self, category: str, consumer_id: str, global_position: int) -> None:
        """Have a parked message handled again, when its consumer runs and is idle."""
        await self._mark_parked(category, consumer_id, global_position, "RetryRequested")

    async def drop_parked(self, category: str, consumer_id: str, global_position: int) -> None:
        """Give a parked message up."""
        await self._mark_parked(category, consumer_id, global_position, "Dropped")

    async def _mark_parked(
        self, category: str, consumer_id: str, global_position: int, what: str
    ) -> None:
        for one in await self.parked(category, consumer_id):
            if one.message.global_position == global_position:
                stream_name = parked_stream(category, consumer_id)
                await self.run(parked.mark(self.context, stream_name, what, one.message))
                return
        raise ParkedMessageNotFound(category, consumer_id, global_position)
