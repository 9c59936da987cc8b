"""What a step reads: decided once, written down before anything is run, and named by its hash."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

Range = tuple[int, int]


@dataclass(frozen=True)
class Snapshot:
    """The ranges of a step's inputs, and how far its tables are read."""

    processor: str
    generation: int
    #: by queue: after which number, up to which
    ranges: Mapping[str, Range] = field(default_factory=dict)
    tables: Mapping[str, Range] = field(default_factory=dict)
    #: of a source: where it goes on
    cursor: Any = None
    #: counts the attempts of a source, which has no ranges to tell its steps apart
    number: int | None = None
    #: by queue: the last message of its range. A log that was restored grows over the same ranges
    #: again, with other messages: that is another step, and has another hash
    last_ids: Mapping[str, str] = field(default_factory=dict)

    def as_data(self) -> dict[str, Any]:
        """Return what the backing stream keeps of it."""
        facts: dict[str, Any] = {
            "processor": self.processor,
            "generation": self.generation,
            "ranges": {queue: list(one) for queue, one in self.ranges.items()},
            "tables": {queue: list(one) for queue, one in self.tables.items()},
        }
        if self.number is not None:
            facts |= {"cursor": self.cursor, "number": self.number}
        if self.last_ids:
            facts["last_ids"] = dict(self.last_ids)
        return {**facts, "hash": _hash(facts)}

    @property
    def hash(self) -> str:
        """The name of the delivery: the same whenever this snapshot is run."""
        return str(self.as_data()["hash"])

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Snapshot:
        """Return the snapshot that a backing stream holds."""
        return cls(
            data["processor"],
            data["generation"],
            {queue: (one[0], one[1]) for queue, one in data["ranges"].items()},
            {queue: (one[0], one[1]) for queue, one in data["tables"].items()},
            data.get("cursor"),
            data.get("number"),
            data.get("last_ids", {}),
        )


def _hash(facts: Mapping[str, Any]) -> str:
    text = msgspec.json.encode(facts, order="sorted")
    return hashlib.blake2b(text, digest_size=16).hexdigest()
