"""Helpers of the iterators that page through the log."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import ValidationError
from penstock.log.context import LogContext, is_whole
from penstock.message import RecordedMessage


def page_size(context: LogContext, batch_size: int | None) -> int:
    """Return the number of messages in a page."""
    size = context.batch_size(batch_size)
    if size == -1:
        raise ValidationError(
            "batch_size", batch_size, "at least 1: an iterator reads page by page"
        )
    return size


def is_sparse(context: LogContext, *filters: object) -> bool:
    """Whether filters may exclude messages, and the head of the category can be read."""
    return context.edition.has_watermark and any(one is not None for one in filters)


def last_read(context: LogContext, page: Sequence[RecordedMessage]) -> RecordedMessage | None:
    """Return the message that the next page is checked against; None on genuine Message DB."""
    return page[-1] if context.edition.has_watermark else None


def check_interval(polling_interval_ms: int) -> None:
    """Refuse an interval that is too short or too long."""
    if not is_whole(polling_interval_ms) or not 1 <= polling_interval_ms <= 3_600_000:
        raise ValidationError(
            "polling_interval_ms", polling_interval_ms, "from 1 to 3600000 milliseconds"
        )
