"""Lists as arguments, in the form of PostgreSQL's array literals.

psycopg adapts a list element by element, in Python, which took most of the time of a batch; a
literal takes a tenth of it. The statement casts it to the type of the array: `%s::text[]`.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID


def text_array(texts: Iterable[str | None]) -> str:
    """Return the literal of an array of texts; None is NULL."""
    return "{" + ",".join(["NULL" if text is None else _quoted(text) for text in texts]) + "}"


def uuid_array(ids: Iterable[UUID]) -> str:
    """Return the literal of an array of ids."""
    return "{" + ",".join([id.hex for id in ids]) + "}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
