"""Which messages a consumer reads: a category, and the filters on it."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.database.operation import Operation, call, only_value
from penstock.log import read
from penstock.log.context import LogContext
from penstock.log.write import check_category
from penstock.message import RecordedMessage, names

_POSITIONS_OF_WHOLE_LOG = ("$all:position", "$all:parked")


@dataclass(frozen=True, slots=True)
class Subscription:
    """Builds the operations that read one consumer's messages."""

    context: LogContext
    category: str
    correlation: str | None = None
    consumer_group_member: int | None = None
    consumer_group_size: int | None = None
    condition: str | None = None

    def __post_init__(self) -> None:
        """Check the category and the consumer group."""
        check_category(self.category)
        read.check_group(self.consumer_group_member, self.consumer_group_size)

    @property
    def is_whole_log(self) -> bool:
        """Whether it reads every category."""
        return self.category == "$all"

    @property
    def is_filtered(self) -> bool:
        """Whether it leaves out messages of the category, in a log whose head can be read."""
        return read.is_sparse(
            self.context, self.correlation, self.consumer_group_size, self.condition
        )

    @property
    def has_head(self) -> bool:
        """Whether the head of the category can be read: not on a genuine Message DB."""
        return self.context.edition.has_watermark

    def head(self) -> Operation[int]:
        """Read the global position of the last message there is."""
        if self.is_whole_log:
            return read.head_without_bookkeeping(self.context)
        return read.category_head(self.context, self.category)

    def page(
        self, after: int, size: int, until: int | None, resumes: bool
    ) -> Operation[list[RecordedMessage]]:
        """Read the next messages after a global position, up to a head if one is given.

        If the consumer `resumes`, a log that ends before that position raises `LogChanged`.
        """
        return read.get_category_messages(
            self.context.until(until),
            self.category,
            after + 1,
            size,
            self.correlation,
            self.consumer_group_member,
            self.consumer_group_size,
            self.condition,
            resumes=resumes,
        )

    def removed(self, after: int, before: int) -> Operation[int]:
        """Count at most how many messages retention has removed between two positions."""
        return call(
            "missed",
            "select penstock.missed(%s, %s, %s)",
            (self.category, after, before),
            only_value,
        )

    def is_own_bookkeeping(self, message: RecordedMessage) -> bool:
        """Whether a consumer of the whole log wrote it: a position, or a parked message.

        Handling these, or saving a position after them, would write more of them, without end.
        """
        return self.is_whole_log and names.category(message.stream_name) in _POSITIONS_OF_WHOLE_LOG
