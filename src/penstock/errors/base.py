"""The base of every error, and how errors show values."""

from __future__ import annotations

import pickle
import sys
from dataclasses import dataclass, fields
from functools import partial
from string import Formatter
from typing import Any, ClassVar, dataclass_transform

#: how an error is marked whose text leaves a Python process of Spark: as Spark marks its own errors
MARK = "PENSTOCK."


@dataclass_transform(eq_default=False)
@dataclass(eq=False)
class PenstockError(Exception):
    """The base of every error that Penstock raises.

    Catch it at the outermost level of your program.
    """

    #: whether a retry can succeed
    retryable: ClassVar[bool] = False
    #: the codes with which the server raises this error; see `penstock.errors.translation`
    sqlstates: ClassVar[tuple[str, ...]] = ()
    #: the text, with fields in braces: `{name!r}` is `shown`, and the items of a list are joined
    template: ClassVar[str] = ""

    def __init_subclass__(
        cls, *, retryable: bool | None = None, sqlstates: tuple[str, ...] = ()
    ) -> None:
        """Make the class a dataclass. `retryable` is inherited, `sqlstates` are not."""
        super().__init_subclass__()
        cls.sqlstates = sqlstates
        if retryable is not None:
            cls.retryable = retryable
        dataclass(eq=False)(cls)

    def __post_init__(self) -> None:
        if _in_spark():  # only the text of its traceback reaches the driver, notes included
            self.add_note(f"[{MARK}{type(self).__name__}] {first_line(self)}")

    def __str__(self) -> str:
        if not self.template:
            return super().__str__()
        return _Text().vformat(self.template, (), vars(self))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the fields, so that an error can leave a worker process."""
        facts = {one.name: _picklable(getattr(self, one.name)) for one in fields(self)}
        return partial(type(self), **facts), ()


class _Text(Formatter):
    def convert_field(self, value: Any, conversion: Any) -> Any:
        if conversion == "r":
            return shown(value)
        if isinstance(value, list | tuple):
            return ", ".join(value) or "none"
        return value


def _in_spark() -> bool:
    """Whether this is a Python process of Spark, which runs tasks or plans reads."""
    return "pyspark.worker_util" in sys.modules  # only its programs import it


def _picklable(value: object) -> object:
    """Return the value or, if it cannot be pickled, its representation."""
    try:
        pickle.dumps(value)
    except Exception:
        return shown(value)
    return value


class ValidationError(PenstockError, ValueError):
    """A value is invalid: not a UUID, not a JSON object, a negative position. Nothing was sent.

    Correct the call. `name`, `value` and `expected` describe the problem. It is also a
    `ValueError`.
    """

    name: str
    value: object
    expected: str
    template = "{name} must be {expected}; got {value!r}"


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
