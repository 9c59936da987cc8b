"""The log: categories, streams, messages, one message; search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.console.data import categories as category_data
from penstock.console.data import log as data
from penstock.console.data import message_detail as message_data
from penstock.console.data import search as search_data
from penstock.console.screen import Ask, Screen
from penstock.errors import ValidationError
from penstock.message import as_uuid

_PAGED = {"after": "the `next` of the page before", "limit": "rows of a page, at most 200"}


async def categories(ask: Ask) -> Mapping[str, Any]:
    """Return the categories, and the newest messages of the log."""
    return {
        "categories": await category_data.categories(ask.store, ask.text("after"), ask.limit()),
        "newest": await data.messages(ask.store, limit=10),
    }


async def streams(ask: Ask) -> Mapping[str, Any]:
    """Return the streams of a category by name."""
    category = ask.need("category")
    found = await category_data.streams(ask.store, category, ask.text("after"), ask.limit())
    return {"category": category, "streams": found}


async def messages(ask: Ask) -> Mapping[str, Any]:
    """Return messages of a category, a stream or the log: the newest, or from a place on."""
    target, type = ask.text("target", "$all") or "$all", ask.text("type")
    position, moment, after = ask.whole("position"), ask.moment("time"), ask.text("after")
    facts = {"target": target, "type": type, "position": position, "time": moment}
    if position is None and moment is not None:
        position = await data.position_at(ask.store, moment)
    if position is None:
        page = await data.messages(ask.store, target, type=type, after=after, limit=ask.limit())
        return {**facts, "page": page, "from": None, "newest_first": True, "after": after}
    in_stream = "-" in target
    rows = await data.messages_from(
        ask.store, target, position if in_stream else max(1, position), ask.limit()
    )
    following = None
    if len(rows) == ask.limit():
        following = (rows[-1].position if in_stream else rows[-1].global_position) + 1
    rows = tuple(row for row in rows if type is None or row.type == type)
    return {
        **facts,
        "page": {"items": rows, "next": None, "head": None, "archived_to": None},
        "from": position,
        "next_position": following,
        "newest_first": False,
        "after": None,
    }


async def message(ask: Ask) -> Mapping[str, Any]:
    """Return one message, by its global position or its id."""
    return {"message": await message_data.message(ask.store, _key(ask))}


async def search(ask: Ask) -> Mapping[str, Any]:
    """Return messages by id, by correlation, or by type and attributes."""
    attributes = search_data.as_attributes(ask.texts("attribute"))
    for name in attributes:
        ask.plain.check_visible(name)
    given: dict[str, Any] = {
        "type": ask.text("type"),
        "attributes": attributes or None,
        "correlation": ask.text("correlation"),
        "id": ask.text("id"),
    }
    found = None
    if given["correlation"] is not None:
        ask.plain.check_visible("correlation_id")
    if any(given.values()):
        found = await search_data.search(
            ask.store, **given, after=ask.text("after"), limit=ask.limit()
        )
    return {
        **given,
        "attribute": ask.texts("attribute"),
        "found": found,
        "declared": await category_data.declared_types(ask.store),
    }


async def find(ask: Ask, to: str) -> tuple[str, dict[str, str]]:
    """Return the page of what a text names: a position, an id, a stream, a category or a type."""
    number = to.replace(",", "")
    if number.isascii() and number.isdigit():
        return "/log/message", {"key": number}
    try:
        return "/trace", {"key": str(as_uuid(to))}
    except ValidationError:
        pass
    if not to:
        return "/search", {}
    if "-" in to or (await data.messages(ask.store, to, limit=1)).items:
        return "/log/messages", {"target": to}
    return "/search", {"type": to}


async def download(ask: Ask) -> tuple[str, bytes]:
    """Return a whole message as JSON, without the fields that are hidden."""
    key = _key(ask)
    return f"message-{key}.json", ask.plain.whole(await message_data.whole(ask.store, key))


def _key(ask: Ask) -> int | str:
    found = ask.need("key")
    return int(found) if found.isascii() and found.isdigit() and len(found) < 19 else found


SCREENS = (
    Screen(
        *("/log", "log", "Messages", "categories.html", categories),
        "The categories, by name, and the newest messages of the log.",
        _PAGED,
    ),
    Screen(
        *("/log/streams", "log", "Streams", "streams.html", streams),
        "The streams of a category, by name.",
        {"category": "the category", **_PAGED},
        live=False,
    ),
    Screen(
        *("/log/messages", "log", "Messages", "messages.html", messages),
        "Messages of a category or stream, newest first; with a position or time, oldest first.",
        {
            "target": "a category, a stream or $all",
            "type": "only messages of this type",
            "position": "from this global position (of a stream: position) on",
            "time": "from this time on",
            **_PAGED,
        },
    ),
    Screen(
        *("/log/message", "log", "Message", "message.html", message),
        "One message.",
        {"key": "its global position or its id"},
        live=False,
    ),
    Screen(
        *("/search", "search", "Search", "search.html", search),
        "Messages by id, by correlation, or by type and attributes.",
        {
            "id": "an id",
            "correlation": "a correlation id",
            "type": "a message type",
            "attribute": "name=value; several times for several attributes",
            **_PAGED,
        },
        live=False,
    ),
)
DOWNLOADS = {"/log/download": download}
