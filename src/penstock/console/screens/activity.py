"""What was done on the console: who, what, when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.console.data import audit, message_detail
from penstock.console.screen import Ask, Screen


async def activity(ask: Ask) -> Mapping[str, Any]:
    """Return what was done last."""
    return {"actions": await audit.recorded_actions(ask.store)}


async def done(ask: Ask) -> Mapping[str, Any]:
    """Return one thing that was done, with its result."""
    return {"message": await message_detail.message(ask.store, ask.whole("position", 0) or 0)}


SCREENS = (
    Screen(
        *("/activity", "activity", "Activity", "activity.html", activity),
        "What was done on the console last: the newest messages of the category penstock:console.",
    ),
    Screen(
        *("/activity/action", "activity", "Action", "action_done.html", done),
        "One thing that was done on the console, with its result.",
        {"position": "the global position of its record"},
        live=False,
    ),
)
