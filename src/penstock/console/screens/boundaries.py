"""The boundary explorer: what a guard would see, and who is deciding there now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.console.data import boundaries as data
from penstock.console.data import categories as category_data
from penstock.console.screen import Ask, Screen


async def boundaries(ask: Ask) -> Mapping[str, Any]:
    """Return the messages that match conditions, and who is deciding there."""
    text = ask.text("conditions")
    boundary = None
    if text is not None:
        conditions = data.parse_conditions(text)
        for one in conditions:
            if one.name is not None:
                ask.plain.check_visible(one.name)
        boundary = await data.explore(ask.store, conditions, ask.text("after"), ask.limit())
    declared = await category_data.declared_types(ask.store)
    return {"conditions": text, "boundary": boundary, "declared": declared}


SCREENS = (
    Screen(
        *("/boundaries", "boundaries", "Boundary explorer", "boundaries.html", boundaries),
        "The messages that a guard with these conditions would see, and who is deciding there now.",
        {
            "conditions": "a type and attributes on each line: joined course=Algebra user=joe",
            "after": "the `next` of the page before",
            "limit": "rows of a page, at most 200",
        },
    ),
)
