"""The base of every error, and how errors show values."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, fields
from typing import Any, ClassVar


@dataclass(eq=False)
class PenstockError(Exception):
    """The base of every error that Penstock raises."""

    retryable: ClassVar[bool] = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by facts, so that an error can leave a worker process."""
        return _rebuild, (
            type(self),
            {f.name: _portable(getattr(self, f.name)) for f in fields(self)},
        )


def _rebuild(error_class: type[PenstockError], facts: dict[str, Any]) -> PenstockError:
    return error_class(**facts)


def _portable(value: object) -> object:
    """Return the value or, if it cannot be pickled, how it looks."""
    try:
        pickle.dumps(value)
    except Exception:
        return shown(value)
    return value


@dataclass(eq=False)
class ValidationError(PenstockError, ValueError):
    """Bad input, refused before anything was sent."""

    name: str
    value: object
    expected: str

    def __str__(self) -> str:
        return f"{self.name} must be {self.expected}; got {shown(self.value)}"


def shown(value: object, limit: int = 120) -> str:
    """Return `repr(value)`, shortened, for an error message."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


#: how Java's errors begin in PySpark; what went wrong stands in the next line
_PY4J = "An error occurred while calling"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text that says something, or the error's name."""
    # fit for any log and database
    text = str(error).encode(errors="backslashreplace").decode().replace("\0", "\\0")
    lines = (line.removeprefix(": ") for line in text.strip().splitlines())
    told = (line for line in lines if not line.startswith(_PY4J))
    return next(told, type(error).__name__)
