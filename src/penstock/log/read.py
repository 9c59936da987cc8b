"""Read a stream, a category, or the last message of a stream."""

from __future__ import annotations

import re
from typing import Any, LiteralString
from uuid import UUID

from penstock.database.operation import ArchiveRead, Operation, ReplicaRead, call, only_value
from penstock.errors import ValidationError
from penstock.log.context import LogContext, check_position, is_whole
from penstock.log.write import check_category, check_stream_name
from penstock.message import RecordedMessage, as_uuid, check_text, names

_COLUMNS: LiteralString = (
    "select id, stream_name, type, position, global_position, data, metadata, time from "
)
_STREAM: LiteralString = "penstock.get_stream_messages(%s, %s, %s, %s)"
_STREAM_IN_MESSAGE_DB: LiteralString = "message_store.get_stream_messages(%s, %s, %s, %s)"
_LAST: LiteralString = "penstock.get_last_stream_message(%s, %s)"
_LAST_IN_MESSAGE_DB: LiteralString = "message_store.get_last_stream_message(%s, %s)"
_CATEGORY: LiteralString = "penstock.get_category_messages(%s, %s, %s, %s, %s, %s, %s, %s, true)"
_RESUMED: LiteralString = (
    "(values (%s)) as c(category) cross join lateral penstock.next_position(%s) as p(first)"
    " cross join lateral penstock.get_category_messages("
    "c.category, p.first, %s, %s, %s, %s, %s, %s, true)"
)
_AFTER: LiteralString = (
    "penstock.get_category_messages("
    "%s, greatest(%s, penstock.resume_after(%s, %s, %s, %s) + 1), %s, %s, %s, %s, %s, %s, true)"
)
_IN_MESSAGE_DB: LiteralString = "message_store.get_category_messages(%s, %s, %s, %s, %s, %s, %s)"


def get_stream_messages(
    context: LogContext,
    stream_name: str,
    position: int = 0,
    batch_size: int | None = None,
    condition: str | None = None,
) -> Operation[list[RecordedMessage]]:
    """Read a stream from a position on, in order."""
    check_stream_name(stream_name)
    if names.is_category(stream_name):
        expected = "a stream with an id; read a category with get_category_messages"
        raise ValidationError("stream_name", stream_name, expected)
    most = context.batch_size(batch_size)
    return call(
        "get_stream_messages",
        _COLUMNS + (_STREAM if context.edition.has_watermark else _STREAM_IN_MESSAGE_DB),
        (stream_name, check_position("position", position), most, context.condition(condition)),
        context.decode,
        stream_name=stream_name,
    ).with_archive(_seam(context, stream_name, most))


def get_category_messages(
    context: LogContext,
    category_name: str,
    position: int = 1,
    batch_size: int | None = None,
    correlation: str | None = None,
    consumer_group_member: int | None = None,
    consumer_group_size: int | None = None,
    condition: str | None = None,
    after: str | RecordedMessage | None = None,
    *,
    resumes: bool = False,
) -> Operation[list[RecordedMessage]]:
    """Read a category, or the whole log as `$all`, from a global position on, in order.

    `after` is a resume token, or the message that was read last. The log must contain the message
    of a token; the message that was read last may have been deleted since. If `resumes`, everything
    before the position has been read, and `LogChanged` is raised if the log ends before it.
    """
    check_category(category_name)
    check_group(consumer_group_member, consumer_group_size)
    if correlation is not None:
        check_text("correlation", correlation)
    most = context.batch_size(batch_size)
    arguments: tuple[Any, ...] = (
        category_name,
        check_position("position", position),
        most,
        correlation,
        consumer_group_member,
        consumer_group_size,
        context.condition(condition),
    )
    if not context.edition.has_watermark:
        sql = _IN_MESSAGE_DB
        if after is not None:
            context.require_penstock("after")
        if category_name == "$all":
            context.require_penstock("reading $all")
        if correlation is not None and not names.is_category(correlation):
            context.require_penstock("correlation with a stream-name prefix")
    elif after is None:
        sql = _RESUMED if resumes else _CATEGORY
        arguments = (*arguments, context.watermark)
    else:
        sql = _AFTER
        just_read = isinstance(after, RecordedMessage)
        token = after.resume_token if isinstance(after, RecordedMessage) else after
        place = (category_name, *parse_resume_token(token), just_read)
        arguments = (*arguments[:2], *place, *arguments[2:], context.watermark)
    return (
        call(
            "get_category_messages",
            _COLUMNS + sql,
            arguments,
            context.decode,
            category_name=category_name,
        )
        .with_archive(
            _seam(
                context,
                category_name,
                most,
                correlation=correlation,
                member=consumer_group_member,
                size=consumer_group_size,
            )
        )
        .replicated(_replicated(context, position if resumes and after is None else None))
    )


def get_last_stream_message(
    context: LogContext, stream_name: str, type: str | None = None
) -> Operation[RecordedMessage | None]:
    """Read the last message of a stream, or its last of one type."""
    check_stream_name(stream_name)
    if type is not None:
        check_text("type", type)
    return call(
        "get_last_stream_message",
        _COLUMNS + (_LAST if context.edition.has_watermark else _LAST_IN_MESSAGE_DB),
        (stream_name, type),
        lambda rows: context.decode(rows)[0] if rows else None,
        stream_name=stream_name,
    ).with_archive(_seam(context, stream_name, -1, only_last=True, type=type))


def _seam(context: LogContext, target: str, most: int, **filters: Any) -> ArchiveRead:
    return ArchiveRead(target, None if most == -1 else most, context.lake_options, **filters)


def _replicated(context: LogContext, resumes_at: int | None) -> ReplicaRead | None:
    return ReplicaRead(resumes_at) if context.edition.has_watermark else None


def stream_version(context: LogContext, stream_name: str) -> Operation[int | None]:
    """Read the position of a stream's last message, None if it has none."""
    check_stream_name(stream_name)
    return call(
        "stream_version",
        "select message_store.stream_version(%s)",
        (stream_name,),
        only_value,
        stream_name=stream_name,
    )


def category_head(context: LogContext, category_name: str) -> Operation[int]:
    """Read the last complete global position in a category, 0 if there is none."""
    check_category(category_name)
    context.require_penstock("category_head")
    return call(
        "category_head",
        "select penstock.category_head(%s, %s)",
        (category_name, context.watermark),
        only_value,
        category_name=category_name,
    )


def head_without_bookkeeping(context: LogContext) -> Operation[int]:
    """Read the head of the log, without the bookkeeping messages of consumers of `$all`."""
    context.require_penstock("category_head")
    return call(
        "category_head",
        "select penstock.head_without_bookkeeping(%s)",
        (context.watermark,),
        only_value,
        category_name="$all",
    )


def parse_resume_token(token: object) -> tuple[int, UUID]:
    """Return the global position and the id of the message that a resume token names."""
    expected = "the resume_token of a message, such as '60@018f6d1c-7a2b-7c3d-8e4f-5a6b7c8d9e0f'"
    position, _, id = token.partition("@") if isinstance(token, str) else ("", "", "")
    if not re.fullmatch("[1-9][0-9]{0,17}", position):
        raise ValidationError("after", token, expected)
    try:
        return int(position), as_uuid(id)
    except ValidationError:
        raise ValidationError("after", token, expected) from None


def check_group(member: int | None, size: int | None) -> None:
    """Refuse a member without a size or a size without a member, and a member out of range."""
    if member is None and size is None:
        return
    if member is None or not is_whole(member) or member < 0:
        raise ValidationError(
            "consumer_group_member", member, "0 or more, together with consumer_group_size"
        )
    if size is None or not is_whole(size) or not 1 <= size <= 32767:
        raise ValidationError(
            "consumer_group_size", size, "from 1 to 32767, together with consumer_group_member"
        )
    if member >= size:
        raise ValidationError("consumer_group_member", member, f"below the group's size, {size}")


def page_size(context: LogContext, batch_size: int | None) -> int:
    """Return the number of messages in a page of an iterator."""
    size = context.batch_size(batch_size)
    if size == -1:
        raise ValidationError(
            "batch_size", batch_size, "at least 1: an iterator reads page by page"
        )
    return size


def is_sparse(context: LogContext, *filters: object) -> bool:
    """Whether filters may exclude messages, and the head of the category can be read."""
    return context.edition.has_watermark and any(one is not None for one in filters)


def check_interval(polling_interval_ms: int) -> None:
    """Refuse an interval that is too short or too long."""
    if not is_whole(polling_interval_ms) or not 1 <= polling_interval_ms <= 3_600_000:
        raise ValidationError(
            "polling_interval_ms", polling_interval_ms, "from 1 to 3600000 milliseconds"
        )
