"""Writing to a stream: one message, or several at once.

On a genuine Message DB there is no function that knows a repeated id, so the client asks for it
itself: it takes Message DB's lock, and under that lock looks for the id before it writes. Both
statements go out together, in one transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from penstock import names
from penstock.database.edition import Edition
from penstock.database.operation import Operation, Statement, call, only_value
from penstock.errors import ValidationError
from penstock.log.context import LogContext, is_whole
from penstock.message import Message, as_uuid, check_text, new_id
from penstock.typed import TypedMessage


def write_message(
    context: LogContext,
    stream_name: str,
    type: str | Message | TypedMessage,
    data: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    *,
    id: UUID | str | None = None,
    expected_version: int | None = None,
) -> Operation[int]:
    """Write one message; the result is its position in the stream."""
    check_stream_name(stream_name)
    check_version(expected_version)
    message = _one_message(type, data, metadata, id)
    sent = context.encode(stream_name, message)
    arguments = (str(sent[0]), stream_name, *sent[1:], expected_version)
    if context.edition is Edition.PENSTOCK:
        return call(
            "write_message",
            "select message_store.write_message(%s, %s, %s, %s, %s, %s)",
            arguments,
            only_value,
            stream_name=stream_name,
            type=sent[1],
        )
    return Operation(
        "write_message",
        (
            _lock(stream_name),
            Statement(
                """
                select coalesce(
                  (select m.position from message_store.messages m
                   where m.id = %s::uuid and m.stream_name = %s),
                  message_store.write_message(%s, %s, %s, %s, %s, %s)
                )
                """,
                (arguments[0], stream_name, *arguments),
            ),
        ),
        only_value,
        {"stream_name": stream_name, "type": sent[1]},
    )


def write_messages(
    context: LogContext,
    stream_name: str,
    messages: Iterable[Message | TypedMessage],
    *,
    expected_version: int | None = None,
) -> Operation[list[int]]:
    """Write several messages to one stream, all or none; the result is their positions."""
    check_stream_name(stream_name)
    check_version(expected_version)
    sent = [context.encode(stream_name, message) for message in checked_messages(messages)]
    ids, types, data, metadata = (list(column) for column in zip(*sent, strict=True))
    if context.edition is Edition.PENSTOCK:
        return call(
            "write_messages",
            "select penstock.write_messages("
            "%s, %s::uuid[], %s::text[], %s::text[], %s::text[], %s)",
            (stream_name, ids, types, data, metadata, expected_version),
            only_value,
            stream_name=stream_name,
            count=len(ids),
        )
    return Operation(
        "write_messages",
        (
            _lock(stream_name),
            Statement(
                # all ids present: their positions. Else write, and Message DB refuses a known id
                """
                with new as (
                  select n.*, m.position as present
                  from unnest(%s::uuid[], %s::text[], %s::text[], %s::text[])
                    with ordinality as n(id, type, data, metadata, ordinality)
                  left join message_store.messages m on m.id = n.id and m.stream_name = %s
                ), placed as (
                  select n.ordinality, case
                    when (select bool_and(p.present is not null) from new p) then n.present
                    else message_store.write_message(
                      n.id::varchar, %s, n.type, n.data::jsonb, n.metadata::jsonb,
                      %s::bigint + n.ordinality - 1)
                  end as position
                  from new n
                  order by n.ordinality
                )
                select array_agg(position order by ordinality) from placed
                """,
                (ids, types, data, metadata, stream_name, stream_name, expected_version),
            ),
        ),
        only_value,
        {"stream_name": stream_name, "count": len(ids)},
    )


def lock_categories(context: LogContext, *categories: str) -> Operation[None]:
    """Keep other writers out of these categories until the transaction ends."""
    for category in categories:
        check_category(category)
    if context.edition is Edition.PENSTOCK:
        return call(
            "lock_categories",
            "select penstock.lock_categories(%s::varchar[])",
            (list(categories),),
            lambda _: None,
        )
    return call(
        "lock_categories",
        "select message_store.acquire_lock(c) from (select c from unnest(%s::varchar[]) c"
        " group by c order by message_store.hash_64(c)) as ordered(c)",
        (list(categories),),
        lambda _: None,
    )


def _one_message(
    type: str | Message | TypedMessage,
    data: Mapping[str, Any] | None,
    metadata: Mapping[str, Any] | None,
    id: UUID | str | None,
) -> Message:
    if not isinstance(type, Message | TypedMessage):
        return Message(type, data, metadata, id=new_id() if id is None else as_uuid(id))
    for name, value in (("data", data), ("metadata", metadata), ("id", id)):
        if value is not None:
            raise ValidationError(name, value, "left out, since the message has its own")
    return plain_message(type, "type")


def _lock(stream_name: str) -> Statement:
    return Statement("select message_store.acquire_lock(%s)", (stream_name,))


def checked_messages(messages: Iterable[Message | TypedMessage]) -> list[Message]:
    """Return the messages as plain ones; refuse none, what is no message, and an id twice."""
    checked = [plain_message(one, "messages") for one in listed(messages)]
    if not checked:
        raise ValidationError("messages", checked, "at least one message")
    if len(checked) > 1:
        seen: set[UUID] = set()
        for message in checked:
            if message.id in seen:
                raise ValidationError("messages", message.id, "messages with ids of their own")
            seen.add(message.id)
    return checked


def listed(messages: object) -> list[Message | TypedMessage]:
    """Return what should be several messages as a list; refuse what holds none."""
    if type(messages) is not list and (
        isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable)
    ):
        raise ValidationError("messages", messages, "a list of messages")
    return list(messages)


def plain_message(message: object, name: str) -> Message:
    """Return a message, typed or not, as it is written. `name` is what an error calls it."""
    if isinstance(message, TypedMessage):
        return message.to_message()
    if not isinstance(message, Message):
        raise ValidationError(name, message, "a Message or a TypedMessage")
    return message


def check_stream_name(stream_name: str) -> None:
    """Refuse a name that no stream can have."""
    check_text("stream_name", stream_name)
    if names.category(stream_name) == "":
        raise ValidationError("stream_name", stream_name, "a name with a category before its '-'")
    if stream_name == "$all":
        raise ValidationError("stream_name", stream_name, "a stream; '$all' is the whole log")


def check_category(category: str) -> None:
    """Refuse a name that is no category."""
    check_text("category", category)
    if not names.is_category(category):
        raise ValidationError("category", category, "a category, which has no '-'")


def check_version(expected_version: int | None) -> None:
    """Refuse a version that no stream can have."""
    if expected_version is not None and (not is_whole(expected_version) or expected_version < -1):
        raise ValidationError("expected_version", expected_version, "-1 (no stream) or more")
