"""Write to streams; read streams and categories, page through them and follow them.

Each method builds an operation and runs it; a store, a transaction or a borrowed connection
inherits them and provides `run`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any
from uuid import UUID

from penstock.database import edition
from penstock.database.operation import Operation
from penstock.database.waiters import of_category
from penstock.log import overview, read, write
from penstock.log.boundary import classes_of
from penstock.log.boundary_calls_async import AsyncBoundaryCalls
from penstock.log.declare_async import declare_missing
from penstock.log.overview import CategorySummary, Status, StreamSummary
from penstock.log.waiter_async import AsyncWaiter
from penstock.log.write import Returning
from penstock.message import Message, RecordedMessage
from penstock.message.typed import TypedMessage


class AsyncLogCalls(AsyncBoundaryCalls):
    """Write to streams; read streams and categories; page through them and follow them."""

    async def write_message(
        self,
        stream_name: str,
        type: str | Message | TypedMessage,
        data: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        *,
        id: UUID | str | None = None,
        expected_version: int | None = None,
        returning: Returning = "position",
    ) -> int:
        """Write one message and return its position in the stream.

        Pass its type, data and metadata, or a `Message` or `TypedMessage`. A retry with the same
        `id` returns the first position, regardless of `expected_version`. `expected_version` is the
        position of the last message you have read, -1 for none. If the stream has another version,
        `WrongExpectedVersion` is raised and nothing is written. With
        `returning="global_position"`, its position in the log is returned, for `wait_until`.
        """
        await declare_missing(self, classes_of([type]), to_write=True)
        operation = write.write_message(
            self.context, stream_name, type, data, metadata, id, expected_version, returning
        )
        return await self.run(operation)

    async def write_messages(
        self,
        stream_name: str,
        messages: Iterable[Message | TypedMessage],
        *,
        expected_version: int | None = None,
        returning: Returning = "position",
    ) -> list[int]:
        """Write several messages to one stream, all or none, and return their positions.

        It takes one round trip. A retry with the same ids returns the first result. With
        `returning="global_position"`, their positions in the log are returned.
        """
        messages = write.listed(messages)
        await declare_missing(self, classes_of(messages), to_write=True)
        return await self.run(
            write.write_messages(self.context, stream_name, messages, expected_version, returning)
        )

    async def write_many(
        self,
        messages: Iterable[tuple[str, Message | TypedMessage]],
        *,
        expected_versions: Mapping[str, int] | None = None,
    ) -> list[int]:
        """Write messages to many streams, all or none, and return their positions, in order.

        Each is a pair of a stream name and a message: `("account-1", message)`. Their order in the
        log is the order of the pairs. `expected_versions` has the expected versions of any of the
        streams. It takes one round trip. A retry with the same ids returns the first result. To
        import very many, write a few thousand at a time: readers of the log wait for a transaction
        that writes.
        """
        messages = write.listed_pairs(messages)
        await declare_missing(self, classes_of(message for _, message in messages), to_write=True)
        return await self.run(write.write_many(self.context, messages, expected_versions))

    async def get_stream_messages(
        self,
        stream_name: str,
        position: int = 0,
        batch_size: int | None = None,
        condition: str | None = None,
    ) -> list[RecordedMessage]:
        """Return a stream's messages from `position` on, in order, at most `batch_size`.

        `batch_size` defaults to the setting `default_batch_size`; -1 means all. `condition` is SQL,
        and refused unless the store was connected with `sql_condition=True`.
        """
        return await self.run(
            read.get_stream_messages(self.context, stream_name, position, batch_size, condition)
        )

    async def get_category_messages(
        self,
        category_name: str,
        position: int = 1,
        batch_size: int | None = None,
        correlation: str | None = None,
        consumer_group_member: int | None = None,
        consumer_group_size: int | None = None,
        condition: str | None = None,
        *,
        after: str | None = None,
    ) -> list[RecordedMessage]:
        """Return the messages of a category (or `$all`) from a global position on, in order.

        A message that is still being committed holds back those after it, so a reader that
        continues after the last position it got never misses one.

        `correlation` is a category (or a stream-name prefix, with a hyphen) whose messages the
        returned ones answer. Member and size assign each stream to exactly one member of a group.

        `after` is the `resume_token` of the last message that you read, to continue after it. If
        the log was restored or truncated and does not contain that message any more, `LogChanged`
        is raised. A position alone cannot detect this.
        """
        filters = (correlation, consumer_group_member, consumer_group_size, condition)
        return await self.run(
            read.get_category_messages(
                self.context, category_name, position, batch_size, *filters, after
            )
        )

    async def get_last_stream_message(
        self, stream_name: str, type: str | None = None
    ) -> RecordedMessage | None:
        """Return the last message of a stream, or its last of one type; None if there is none."""
        return await self.run(read.get_last_stream_message(self.context, stream_name, type))

    async def stream_version(self, stream_name: str) -> int | None:
        """Return the position of a stream's last message, None if it has none."""
        return await self.run(read.stream_version(self.context, stream_name))

    async def category_head(self, category_name: str) -> int:
        """Return the last complete global position in a category (or `$all`), 0 if there is none.

        All messages at or below it can be read, and no more will be written there.
        """
        return await self.run(read.category_head(self.context, category_name))

    async def message_store_version(self) -> str:
        """Return the version of the database's Message DB interface, such as `1.3.0`."""
        return await self.run(edition.message_store_version())

    async def categories(self) -> list[CategorySummary]:
        """Return all categories by name, each with its last global position."""
        return await self.run(overview.categories(self.context))

    async def streams(
        self, category: str | None = None, after: str = "", limit: int = 100
    ) -> list[StreamSummary]:
        """Return streams by name, each with its version; the next page is after the last name."""
        return await self.run(overview.streams(self.context, category, after, limit))

    async def status(self) -> Status:
        """Return the state of the store: versions, head, watermark and open writers."""
        return await self.run(overview.status(self.context))

    async def read_stream(
        self,
        stream_name: str,
        position: int = 0,
        batch_size: int | None = None,
        condition: str | None = None,
    ) -> AsyncIterator[RecordedMessage]:
        """Iterate over a stream from `position` on, a page of `batch_size` in memory at a time."""
        size = read.page_size(self.context, batch_size)
        while True:
            page = await self.get_stream_messages(stream_name, position, size, condition)
            for message in page:
                yield message
            if len(page) < size:
                return
            position = page[-1].position + 1

    async def read_category(
        self,
        category_name: str,
        position: int = 1,
        batch_size: int | None = None,
        correlation: str | None = None,
        consumer_group_member: int | None = None,
        consumer_group_size: int | None = None,
        condition: str | None = None,
        *,
        after: str | None = None,
    ) -> AsyncIterator[RecordedMessage]:
        """Iterate over a category (or `$all`) from a global position up to its head, by pages.

        `after` is a message's `resume_token`: see `get_category_messages`.
        """
        filters = (correlation, consumer_group_member, consumer_group_size, condition)
        last: str | RecordedMessage | None = after
        size = read.page_size(self.context, batch_size)
        while True:
            operation = read.get_category_messages(
                self.context, category_name, position, size, *filters, last
            )
            page = await self.run(operation)
            for message in page:
                yield message
            if len(page) < size:
                return
            position = page[-1].global_position + 1
            last = page[-1] if self.context.edition.has_watermark else None

    async def follow_category(
        self,
        category_name: str,
        position: int = 1,
        batch_size: int | None = None,
        correlation: str | None = None,
        consumer_group_member: int | None = None,
        consumer_group_size: int | None = None,
        condition: str | None = None,
        *,
        after: str | None = None,
        polling_interval_ms: int = 100,
        stop: Callable[[], bool] | None = None,
    ) -> AsyncIterator[RecordedMessage]:
        """Iterate over a category (or `$all`) and wait for new messages, until `stop()` is true.

        `stop` is called between pages. When there are no more messages, it waits until some are
        written; for writers that do not wake it see the guide on following. Where wake-ups do not
        work, the next read is `polling_interval_ms` later.

        `after` is a message's `resume_token`: see `get_category_messages`. Each page is checked
        against the last message of the page before. If the database was restored in between,
        `LogChanged` is raised.
        """
        filters = (correlation, consumer_group_member, consumer_group_size, condition)
        last: str | RecordedMessage | None = after
        size = read.page_size(self.context, batch_size)
        read.check_interval(polling_interval_ms)
        sparse, pause = read.is_sparse(self.context, *filters), polling_interval_ms / 1000
        next_page: Operation[list[RecordedMessage]] | None = None

        def read_to(head: int | None) -> Operation[list[RecordedMessage]]:
            context = self.context.until(head)
            return read.get_category_messages(
                context, category_name, position, size, *filters, last
            )

        with AsyncWaiter(self, [of_category(category_name)]) as waiter:
            has_ended = stop is not None and stop()
            while not has_ended:
                waiter.looks()
                # Skip what the filter excludes up to this head, or each read would scan it again.
                # The page ends at the same head, not at a new watermark, which may be lower.
                head = await self.category_head(category_name) if sparse else None
                page = await self.run(next_page or read_to(head))
                next_page = None
                for message in page:
                    yield message
                if page:
                    position = page[-1].global_position + 1
                    last = page[-1] if self.context.edition.has_watermark else None
                if len(page) < size:
                    position = max(position, (head or 0) + 1)
                    next_page = None if sparse else read_to(None)  # here, not when it is woken
                    has_ended = await waiter.sleep(
                        pause, found=bool(page), reached=position - 1, ended=stop
                    )
                elif stop is not None:
                    has_ended = stop()
