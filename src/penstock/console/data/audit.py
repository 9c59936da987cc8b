"""What was done on the console: who, what, when, as messages of the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.console.data.log import MessageRow, messages
from penstock.message import check_text
from penstock.store_async import AsyncStore

#: the stream of what was done on the console
AUDIT_STREAM = "penstock:console-actions"


async def record_action(store: AsyncStore, who: str, what: str, facts: Mapping[str, Any]) -> int:
    """Write what somebody did to the stream of actions; return the message's global position."""
    check_text("who", who)
    check_text("what", what)
    data = {"who": who, "what": what, "facts": dict(facts)}
    written: int = await store.write_message(
        AUDIT_STREAM, "ActionTaken", data, returning="global_position"
    )
    return written


async def recorded_actions(store: AsyncStore, limit: int = 50) -> tuple[MessageRow, ...]:
    """Return what was done last, newest first."""
    return (await messages(store, AUDIT_STREAM, limit=limit)).items
