"""The states of deciders as JSON, for snapshots.

A state may be anything that msgspec supports: numbers, texts, dates, UUIDs, lists, sets and dicts
of them, dataclasses, `msgspec.Struct`. What is read must equal what was written. JSON has no sets,
tuples or dates, so that depends on the type of the state; each state is compared before it is
saved.
"""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.errors import ValidationError, first_line


class StateCodec:
    """Encodes and decodes states of one type."""

    def __init__(self, state_type: Any) -> None:
        self._state_type = state_type
        try:
            self._decoder = msgspec.json.Decoder(state_type)
        except Exception as error:  # whatever msgspec makes of it
            expected = f"a type that msgspec can decode from JSON: {first_line(error)}"
            raise ValidationError("state_type", state_type, expected) from error

    def encode(self, state: object, name: str = "state") -> str:
        """Return a state as JSON; refuse one that would not be the same when it is read."""
        try:
            encoded = msgspec.json.encode(state)
            decoded = self._decoder.decode(encoded)
        except Exception as error:  # of msgspec, or of the state's own methods
            expected = f"one that msgspec can encode as JSON, and decode: {first_line(error)}"
            raise ValidationError(name, state, expected) from error
        if type(decoded) is not type(state) or decoded != state:
            expected = (
                f"the same when it is read as {self._state_type!r}, which makes it {decoded!r:.200}"
                " (does state_type say what it holds?)"
            )
            raise ValidationError(name, state, expected)
        return encoded.decode()

    def decode(self, encoded: str) -> Any:
        """Return the state of a snapshot. Raises what msgspec raises."""
        return self._decoder.decode(encoded)
