"""The base of every error, and how errors show values."""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass, fields
from typing import Any, ClassVar

#: how the note begins that an error carries out of a Python process of Spark's, as text
MARK = "penstock-error: "
#: Spark sets it for the processes that run tasks and plan reads
_IN_SPARK = "SPARK_BUFFER_SIZE" in os.environ


@dataclass(eq=False)
class PenstockError(Exception):
    """The base of every error that Penstock raises."""

    retryable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if _IN_SPARK:  # only the text of its traceback reaches the driver, notes included
            self.add_note(f"{MARK}{type(self).__name__}")

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
    try:
        text = repr(value)
    except Exception:  # somebody else's, or one that goes too deep
        text = f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


#: how Java's errors begin in PySpark; what went wrong stands in the next line
_PY4J = "An error occurred while calling"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text that says something, or the error's name."""
    try:
        told = str(error)
    except Exception:  # an error may be as broken as anything else
        told = ""
    # fit for any log and database
    text = told.encode(errors="backslashreplace").decode().replace("\0", "\\0")
    lines = (line.removeprefix(": ") for line in text.strip().splitlines())
    telling = (line for line in lines if not line.startswith(_PY4J))
    return next(telling, type(error).__name__)
