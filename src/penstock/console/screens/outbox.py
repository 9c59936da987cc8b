"""The outbox and its joins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.console.data import joins as join_data
from penstock.console.data import outbox as data
from penstock.console.data import topics as topic_data
from penstock.console.screen import Ask, Screen

_PAGED = {"after": "the `next` of the page before", "limit": "rows of a page, at most 200"}
STATES = ("ready", "in_progress", "failed", "done")
JOIN_STATES = ("pending", "completed", "failed", "cancelled")


async def topics(ask: Ask) -> Mapping[str, Any]:
    """Return the topics with messages that are not done."""
    return {"topics": await topic_data.topics(ask.store)}


async def messages(ask: Ask) -> Mapping[str, Any]:
    """Return messages of a topic and state."""
    topic, state = ask.text("topic"), ask.text("state")
    page = await data.outbox_messages(ask.store, topic, state, ask.text("after"), ask.limit())
    return {"topic": topic, "state": state, "messages": page, "states": STATES}


async def message(ask: Ask) -> Mapping[str, Any]:
    """Return one message with its attempts."""
    return {"message": await data.outbox_message(ask.store, ask.uuid("id"))}


async def joins(ask: Ask) -> Mapping[str, Any]:
    """Return joins, newest first."""
    status, key = ask.text("status"), ask.text("grouping_key")
    after, limit = ask.text("after"), ask.limit()
    page = await join_data.joins(ask.store, status, after, limit, grouping_key=key)
    return {"status": status, "grouping_key": key, "joins": page, "statuses": JOIN_STATES}


async def join(ask: Ask) -> Mapping[str, Any]:
    """Return one join with its steps, and what it waits for."""
    return {"join": await join_data.join(ask.store, ask.uuid("id"))}


async def download(ask: Ask) -> tuple[str, bytes]:
    """Return a whole payload; of one with hidden fields, the rest of its JSON."""
    id = ask.uuid("id")
    content = ask.plain.whole(await data.whole_payload(ask.store, id), written=True)
    return f"outbox-{id}", content


SCREENS = (
    Screen(
        *("/outbox", "outbox", "Outbox", "topics.html", topics),
        "The topics of the outbox, with the number of messages in each state.",
    ),
    Screen(
        *("/outbox/messages", "outbox", "Outbox messages", "outbox_messages.html", messages),
        "Messages of the outbox.",
        {"topic": "only this topic", "state": f"one of {', '.join(STATES)}", **_PAGED},
    ),
    Screen(
        *("/outbox/message", "outbox", "Outbox message", "outbox_message.html", message),
        "One message of the outbox, with its attempts.",
        {"id": "its id"},
    ),
    Screen(
        *("/joins", "joins", "Joins", "joins.html", joins),
        "Joins, newest first.",
        {
            "status": f"one of {', '.join(JOIN_STATES)}",
            "grouping_key": "only joins with this grouping key",
            **_PAGED,
        },
    ),
    Screen(
        *("/joins/join", "joins", "Join", "join.html", join),
        "One join: its steps, and what it waits for.",
        {"id": "its id"},
    ),
)
DOWNLOADS = {"/outbox/download": download}
