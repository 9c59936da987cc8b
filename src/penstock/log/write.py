"""Write one message or several to a stream, or messages to many streams.

Genuine Message DB has no function that accepts a repeated id. There the client takes Message DB's
lock, and looks for the id before it writes. Both statements are sent together, in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, get_args
from uuid import UUID

from penstock.database.arrays import text_array, uuid_array
from penstock.database.batch import batch_item
from penstock.database.edition import Edition
from penstock.database.operation import BatchItem, Operation, Row, Statement, call, only_value
from penstock.database.waiters import written, written_one
from penstock.errors import ValidationError
from penstock.log.context import LogContext, SentMessage, is_whole
from penstock.message import Message, as_uuid, check_text, names, new_id
from penstock.message.typed import TypedMessage

#: which position a write returns: in the stream, or in the log
Returning = Literal["position", "global_position"]
#: the result of a write in a batch, from the positions in the stream and in the log
_FIRST: Mapping[Returning, Callable[[list[int], list[int]], int]] = {
    "position": lambda positions, _: positions[0],
    "global_position": lambda _, global_positions: global_positions[0],
}
_ALL: Mapping[Returning, Callable[[list[int], list[int]], list[int]]] = {
    "position": lambda positions, _: positions,
    "global_position": lambda _, global_positions: global_positions,
}


def write_message(
    context: LogContext,
    stream_name: str,
    type: str | Message | TypedMessage,
    data: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    id: UUID | str | None = None,
    expected_version: int | None = None,
    returning: Returning = "position",
) -> Operation[int]:
    """Write one message; the result is its position in the stream, or in the log."""
    check_stream_name(stream_name)
    check_version(expected_version)
    check_returning(returning)
    sent = context.encode(stream_name, _one_message(type, data, metadata, id))
    arguments = (str(sent[0]), stream_name, *sent[1:], expected_version)
    if context.edition is Edition.PENSTOCK:
        write = Statement("select message_store.write_message(%s, %s, %s, %s, %s, %s)", arguments)
        statements: tuple[Statement, ...] = (write,)
    else:
        lock = Statement("select message_store.acquire_lock(%s)", (stream_name,))
        write = Statement(
            """
            select coalesce(
              (select m.position from message_store.messages m
               where m.id = %s::uuid and m.stream_name = %s),
              message_store.write_message(%s, %s, %s, %s, %s, %s)
            )
            """,
            (arguments[0], stream_name, *arguments),
        )
        statements = (lock, write)
    facts = {"stream_name": stream_name, "type": sent[1]}
    notifies = written_one(stream_name, sent[1])
    item = _batch_item(context, [sent], stream_name, expected_version, _FIRST[returning])
    decode: Callable[[list[Row]], int] = only_value
    if returning == "global_position":
        statements = (*statements, _global_positions([sent]))
        decode = lambda rows: rows[0][0][0]  # noqa: E731
    return Operation("write_message", statements, decode, facts, notifies, item=item)


def write_messages(
    context: LogContext,
    stream_name: str,
    messages: Iterable[Message | TypedMessage],
    expected_version: int | None = None,
    returning: Returning = "position",
) -> Operation[list[int]]:
    """Write several messages to one stream, all or none; the result is their positions."""
    check_stream_name(stream_name)
    check_version(expected_version)
    check_returning(returning)
    checked = checked_messages(messages)
    facts = {"stream_name": stream_name, "count": len(checked)}
    if context.edition is not Edition.PENSTOCK:
        versions = None if expected_version is None else {stream_name: expected_version}
        pairs = [(stream_name, message) for message in checked]
        many = write_many(context, pairs, versions, returning)
        return Operation("write_messages", many.statements, only_value, facts, many.notifies)
    rows = [context.encode(stream_name, message) for message in checked]
    sent = as_arrays(rows)
    write = Statement(
        "select penstock.write_messages(%s, %s::uuid[], %s::text[], %s::text[], %s::text[], %s)",
        (stream_name, *sent, expected_version),
    )
    statements = (write,) if returning == "position" else (write, _global_positions(rows))
    notifies = written([stream_name], {type for _, type, *_ in rows})
    item = _batch_item(context, rows, stream_name, expected_version, _ALL[returning])
    return Operation("write_messages", statements, only_value, facts, notifies, item=item)


def write_many(
    context: LogContext,
    messages: Iterable[tuple[str, Message | TypedMessage]],
    expected_versions: Mapping[str, int] | None = None,
    returning: Returning = "position",
) -> Operation[list[int]]:
    """Write messages to many streams, all or none; the result is their positions, in order."""
    pairs = listed_pairs(messages)
    streams = [stream_name for stream_name, _ in pairs]
    for stream_name in set(streams):
        check_stream_name(stream_name)
    checked = checked_messages([message for _, message in pairs])
    expected = _checked_versions(expected_versions, set(streams))
    rows = [context.encode(*pair) for pair in zip(streams, checked, strict=True)]
    sent, notifies = as_arrays(rows), written(set(streams), {type for _, type, *_ in rows})
    if context.edition is Edition.PENSTOCK:
        return call(
            "write_many",
            "select penstock.write_many(%s::varchar[], %s::uuid[], %s::text[], %s::text[],"
            " %s::text[], %s::varchar[], %s::bigint[])",
            (text_array(streams), *sent, list(expected), list(expected.values())),
            only_value,
            notifies=notifies,
            count=len(streams),
        )
    write = Statement(
        # all ids present: their positions. Else write: Message DB refuses a repeated id
        """
        with new as (
          select n.*, m.position as present,
            row_number() over (partition by n.stream_name order by n.ordinality) as number
          from unnest(%s::text[], %s::uuid[], %s::text[], %s::text[], %s::text[], %s::bigint[])
            with ordinality as n(stream_name, id, type, data, metadata, expected, ordinality)
          left join message_store.messages m on m.id = n.id and m.stream_name = n.stream_name
        ), placed as (
          select n.ordinality, case
            when (select bool_and(p.present is not null) from new p) then n.present
            else message_store.write_message(
              n.id::varchar, n.stream_name, n.type, n.data::jsonb, n.metadata::jsonb,
              n.expected + n.number - 1)
          end as position
          from new n
          order by n.ordinality
        )
        select array_agg(position order by ordinality) from placed
        """,
        (text_array(streams), *sent, [expected.get(stream_name) for stream_name in streams]),
    )
    lock = lock_categories(context, *{names.category(stream_name) for stream_name in streams})
    statements = (*lock.statements, write)
    if returning == "global_position":
        statements = (*statements, _global_positions(rows))
    return Operation("write_many", statements, only_value, {"count": len(streams)}, notifies)


def lock_categories(context: LogContext, *categories: str) -> Operation[None]:
    """Block other writers to these categories until the transaction ends."""
    for category in categories:
        check_category(category)
    return call(
        "lock_categories",
        "select penstock.lock_categories(%s::varchar[])"
        if context.edition is Edition.PENSTOCK
        else "select message_store.acquire_lock(c) from (select c from unnest(%s::varchar[]) c"
        " group by c order by message_store.hash_64(c)) as ordered(c)",
        (list(categories),),
        lambda _: None,
    )


def as_arrays(sent: Iterable[SentMessage]) -> tuple[str, str, str, str]:
    """Return the ids, types, data and metadata of messages, each as an array literal."""
    ids, types, data, metadata = zip(*sent, strict=True)
    return uuid_array(ids), text_array(types), text_array(data), text_array(metadata)


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
    return _plain_message(type)


def checked_messages(messages: Iterable[Message | TypedMessage]) -> list[Message]:
    """Return plain messages; refuse an empty list, other objects and repeated ids."""
    checked = [_plain_message(one) for one in listed(messages)]
    if not checked:
        raise ValidationError("messages", checked, "at least one message")
    if len(checked) > 1:
        seen: set[UUID] = set()
        for message in checked:
            if message.id in seen:
                raise ValidationError("messages", message.id, "messages with different ids")
            seen.add(message.id)
    return checked


def check_returning(returning: Returning) -> Returning:
    """Return which position a write returns; refuse anything else."""
    if returning not in get_args(Returning):
        raise ValidationError("returning", returning, "'position' or 'global_position'")
    return returning


def _global_positions(rows: Sequence[SentMessage]) -> Statement:
    """Look up where these messages are in the log, in their order."""
    return Statement(
        "select array(select m.global_position from unnest(%s::uuid[]) with ordinality as i(id, n)"
        " join message_store.messages m on m.id = i.id order by i.n)",
        (uuid_array(id for id, *_ in rows),),
    )


def _batch_item(
    context: LogContext,
    rows: Sequence[SentMessage],
    stream_name: str,
    expected_version: int | None,
    decode: Callable[[list[int], list[int]], Any],
) -> BatchItem | None:
    """Return what a batch needs of this write. Genuine Message DB has no batches."""
    if context.edition is not Edition.PENSTOCK:
        return None
    return batch_item(rows, stream_name, expected_version, None, decode)


def listed_pairs(messages: object) -> list[tuple[str, Message | TypedMessage]]:
    """Return pairs of a stream name and a message as a list; refuse anything else."""
    expected = "a list of pairs: a stream name and a message"
    pairs = listed(messages, expected)
    for one in pairs:
        if not isinstance(one, tuple | list) or len(one) != 2 or not isinstance(one[0], str):
            raise ValidationError("messages", one, expected)
    return pairs


def _checked_versions(expected: object, streams: Collection[str]) -> dict[str, int]:
    if expected is None:
        return {}
    if not isinstance(expected, Mapping):
        raise ValidationError(
            "expected_versions", expected, "a mapping of stream names to versions"
        )
    for name, version in expected.items():
        if name not in streams:
            raise ValidationError("expected_versions", name, "streams that messages are written to")
        if version is None:
            raise ValidationError("expected_versions", version, "-1 (no stream) or more")
        check_version(version)
    return dict(expected)


def listed(messages: object, expected: str = "a list of messages") -> list[Any]:
    """Return an iterable of messages as a list; refuse what is not iterable."""
    if type(messages) is not list and (
        isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable)
    ):
        raise ValidationError("messages", messages, expected)
    return list(messages)


def _plain_message(message: object) -> Message:
    if isinstance(message, TypedMessage):
        return message.to_message()
    if not isinstance(message, Message):
        raise ValidationError("messages", message, "a Message or a TypedMessage")
    return message


def check_stream_name(stream_name: str) -> None:
    """Refuse a name that no stream can have."""
    check_text("stream_name", stream_name)
    if names.category(stream_name) == "":
        raise ValidationError("stream_name", stream_name, "a name with a category before its '-'")
    if stream_name == "$all":
        raise ValidationError("stream_name", stream_name, "a stream; '$all' is the whole log")


def check_category(category: str) -> None:
    """Refuse a name that is not a category."""
    check_text("category", category)
    if not names.is_category(category):
        raise ValidationError("category", category, "a category, which has no '-'")


def check_version(expected_version: int | None) -> None:
    """Refuse a version that no stream can have."""
    if expected_version is not None and (not is_whole(expected_version) or expected_version < -1):
        raise ValidationError("expected_version", expected_version, "-1 (no stream) or more")
