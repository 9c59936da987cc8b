"""The result of a check."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Level(Enum):
    """The severity."""

    OK = "OK"
    WARNING = "warning"
    PROBLEM = "PROBLEM"

    @property
    def style(self) -> str:
        """The style in a terminal."""
        return {"OK": "green", "warning": "yellow", "PROBLEM": "bold red"}[self.value]


@dataclass(frozen=True, slots=True)
class Finding:
    """What was checked, what was found, and what to do."""

    check: str
    level: Level
    found: str
    advice: str = ""
