"""One message, by its global position or its id, archived or not."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString
from uuid import UUID

import msgspec

from penstock.admin.readers import end_of_log
from penstock.console.data.pages import Shown, as_shown, query
from penstock.database.operation import call, only_value
from penstock.errors import MessageNotFound
from penstock.log.context import check_position
from penstock.log.read import get_category_messages
from penstock.message import RecordedMessage, as_uuid
from penstock.store_async import AsyncStore


@dataclass(frozen=True, slots=True)
class MessageDetail:
    """One message."""

    id: UUID
    stream_name: str
    category: str
    type: str
    position: int
    global_position: int
    time: datetime
    data: Shown
    metadata: Shown
    correlation_id: str | None
    causation_id: str | None
    reply_stream_name: str | None
    trace_id: str | None
    #: whether it was read from the archive
    archived: bool
    #: whether readers of many streams get it already
    complete: bool
    #: global positions of its neighbours in the stream
    previous: int | None
    next: int | None


_POSITION_OF: LiteralString = "select global_position from message_store.messages where id = %s"


_AROUND: LiteralString = """
select penstock.watermark(),
  (select m.global_position from message_store.messages m
   where m.stream_name = %(stream)s and m.position < %(position)s order by m.position desc limit 1),
  (select m.global_position from message_store.messages m
   where m.stream_name = %(stream)s and m.position > %(position)s order by m.position limit 1),
  not exists (select from message_store.messages m where m.global_position = %(at)s)"""


async def message(store: AsyncStore, key: int | str | UUID) -> MessageDetail:
    """Return a message by its global position or its id, or raise `MessageNotFound`."""
    one = await recorded(store, key)
    arguments = {"stream": one.stream_name, "position": one.position, "at": one.global_position}
    around = query("message", _AROUND, arguments, lambda rows: rows[0])
    watermark, previous, following, archived = await store.run(around)
    return MessageDetail(
        id=one.id,
        stream_name=one.stream_name,
        category=one.category,
        type=one.type,
        position=one.position,
        global_position=one.global_position,
        time=one.time,
        data=as_shown(one.data),
        metadata=as_shown(one.metadata or {}),
        correlation_id=one.correlation_id,
        causation_id=one.causation_id,
        reply_stream_name=one.reply_stream_name,
        trace_id=one.trace_id,
        archived=archived,
        complete=one.global_position <= watermark,
        previous=previous,
        next=following,
    )


async def recorded(store: AsyncStore, key: int | str | UUID) -> RecordedMessage:
    """Return a message by its global position or its id, archived or not."""
    store.context.require_penstock("the console")
    position = _as_position(key)
    if position is None:
        found = query("message_position", _POSITION_OF, (as_uuid(key),), list)
        rows = await store.run(found)
        if not rows:
            hint = "archived messages are found by their global position only"
            raise MessageNotFound(str(key), hint)
        position = rows[0][0]
    sql: LiteralString = (
        "select id::varchar, stream_name::varchar, type::varchar, position, global_position,"
        " data::varchar, metadata::varchar, time from message_store.messages"
        " where global_position = %s"
    )
    in_table = await store.run(query("message", sql, (position,), store.context.decode))
    if in_table:
        return in_table[0]
    archived_to = await store.run(
        call("archived_to", "select penstock.archived_to('$all')", (), only_value)
    )
    if archived_to is not None and position <= archived_to:
        read = get_category_messages(store.context, "$all", position, 1)
        in_archive = await store.run(read)
        if in_archive and in_archive[0].global_position == position:
            return in_archive[0]
    end = await store.run(end_of_log())
    hint = f"the log ends at {end}" if position > end else "it was removed, or never committed"
    raise MessageNotFound(str(key), hint)


def _as_position(key: int | str | UUID) -> int | None:
    if isinstance(key, str) and key.isascii() and key.isdigit():
        key = int(key)
    return check_position("position", key) if isinstance(key, int) else None


async def whole(store: AsyncStore, key: int | str | UUID) -> bytes:
    """Return a whole message as JSON, however large, for a download."""
    return msgspec.json.encode((await recorded(store, key)).to_dict())
