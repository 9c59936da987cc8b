"""What a check found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Level(Enum):
    """How bad it is."""

    OK = "OK"
    WARNING = "warning"
    PROBLEM = "PROBLEM"

    @property
    def style(self) -> str:
        """The colour that people see it in."""
        return {"OK": "green", "warning": "yellow", "PROBLEM": "bold red"}[self.value]


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, what was found, and what to do about it."""

    check: str
    level: Level
    found: str
    advice: str = ""
