"""What a mutant is: a name, the edits that remove a mechanism, the tests that have to fail."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "penstock"


class DoesNotApply(Exception):
    """An edit does not fit the source: the text to replace is not there the expected times."""


@dataclass(frozen=True)
class Edit:
    """Replace a text of one file, below `src/penstock`, by another."""

    file: str
    old: str
    new: str
    times: int = 1  # how often the text occurs; all of them are replaced

    def apply(self, source: Path) -> None:
        """Edit a copy of `src/penstock`."""
        path = source / self.file
        text = path.read_text(encoding="utf-8")
        if text.count(self.old) != self.times:
            found = f"{text.count(self.old)} times, expected {self.times}"
            raise DoesNotApply(f"{self.file} has {self.old!r} {found}")
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")


@dataclass(frozen=True)
class Mutant:
    """Penstock without one mechanism."""

    name: str  # as `python -m tests.mutants NAME` takes it
    without: str  # the heading on the page: "Without the watermark", "If a claim had no lease"
    edits: tuple[Edit, ...]
    caught_by: tuple[str, ...]  # pytest's names; every one of them has to fail


@dataclass(frozen=True)
class Excuse:
    """Why no mutant removes a line of SQL that looks like a mechanism."""

    file: str  # below `src/penstock/database/sql`
    line: str  # a part of the line, or lines
    reason: str
