"""The base of every error, and how errors show values."""

from __future__ import annotations

import pickle
import sys
from dataclasses import dataclass, fields
from typing import Any, ClassVar

#: how an error is marked whose text leaves a Python process of Spark: as Spark marks its own errors
MARK = "PENSTOCK."


@dataclass(eq=False)
class PenstockError(Exception):
    """The base of every error that Penstock raises.

    Catch it at the outermost level of your program.
    """

    #: whether a retry can succeed
    retryable: ClassVar[bool] = False
    #: the codes with which the server raises this error; see `penstock.errors.translation`
    sqlstates: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        if _in_spark():  # only the text of its traceback reaches the driver, notes included
            self.add_note(f"[{MARK}{type(self).__name__}] {first_line(self)}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the fields, so that an error can leave a worker process."""
        return _rebuild, (
            type(self),
            {f.name: _picklable(getattr(self, f.name)) for f in fields(self)},
        )


def _in_spark() -> bool:
    """Whether this is a Python process of Spark, which runs tasks or plans reads."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return main is not None and main.name.startswith("pyspark.")


def _rebuild(error_class: type[PenstockError], facts: dict[str, Any]) -> PenstockError:
    return error_class(**facts)


def _picklable(value: object) -> object:
    """Return the value or, if it cannot be pickled, its representation."""
    try:
        pickle.dumps(value)
    except Exception:
        return shown(value)
    return value


@dataclass(eq=False)
class ValidationError(PenstockError, ValueError):
    """A value is invalid: not a UUID, not a JSON object, a negative position. Nothing was sent.

    Correct the call. `name`, `value` and `expected` describe the problem. It is also a
    `ValueError`.
    """

    name: str
    value: object
    expected: str

    def __str__(self) -> str:
        return f"{self.name} must be {self.expected}; got {shown(self.value)}"


def shown(value: object, limit: int = 120) -> str:
    """Return `repr(value)`, shortened, for an error message."""
    try:
        text = repr(value)
    except Exception:  # a faulty __repr__, or one that recurses too deep
        text = f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


#: the first line of a Java error in PySpark; the reason is in the next line
_PY4J = "An error occurred while calling"


def first_line(error: BaseException) -> str:
    """Return the first informative line of an error's text, or the name of its class."""
    try:
        message = str(error)
    except Exception:  # a faulty __str__
        message = ""
    # valid in any log and any database encoding
    text = message.encode(errors="backslashreplace").decode().replace("\0", "\\0")
    lines = (line.removeprefix(": ") for line in text.strip().splitlines())
    return next((line for line in lines if not line.startswith(_PY4J)), type(error).__name__)
