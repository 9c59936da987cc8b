"""The list of what the console answers as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.console.screen import Ask, Screen


async def reference(ask: Ask) -> Mapping[str, Any]:
    """Return every address under `/api/`, with its parameters."""
    from penstock.console.screens import SCREENS as ALL

    return {
        "addresses": [
            {
                "path": screen.api,
                "about": screen.about,
                "parameters": screen.parameters,
            }
            for screen in ALL
        ]
    }


SCREENS = (
    Screen(
        *("/reference", "api", "API", "reference.html", reference),
        "This list.",
        live=False,
    ),
)
