"""Whose fault is it that a step failed? The rule, in one place.

A step fails for one of three causes:

1. *The moment.* The database is away, or a lock is in use. The step is tried again (`is_passing`).
2. *Something that every message would meet.* A mistake in the function, a setting that is missing,
   a bad value in a table, a service or an executor that is away, no memory. The processor stops
   with the cause: somebody has to look, and nothing is lost until then.
3. *One message.* It goes to the errors queue, and the others flow on.

To take the second for the third sends every message to the errors queue. So a message is blamed
only if all of this is true; where one of them is not, the processor stops:

- The error is of a kind that a value can cause (`may_be_data`, below).
- The tables of the step can be read, and the function does not fail in the same way when it is
  given no message at all, with the same tables.
- The message fails alone: the step is split until it does.
- A value that the error names is the message's own, where the processor has tables as well.
- It is not just any message. Messages that fail one after the other, for one reason and with none
  that passes between them, are `max_consecutive_errors` of the processor less one at most. The
  messages that follow are tried before the first of them is blamed; a sink's are not, since to try
  is to send.

The kind of an error is read from what it is, not from how it is worded. Of Spark's own, the
SQLSTATE tells: data that does not fit (22), a constraint on values (21, 23), a limit on their size
(54), a function of the user's (39), `raise_error` (P0). Where there is none, an unchecked exception
of Java's that a task met while it evaluated an expression is of that kind, and nothing else is. Of
Python's exceptions, in the function or in a task, all are but those that tell of the machine or of
the program: no file, no connection, no memory, no module, no such name.
"""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
from py4j.java_gateway import is_instance_of  # type: ignore[import-untyped]
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import AnalysisException, PySparkException, PythonException

from penstock.errors import (
    DuplicateMessageId,
    PenstockError,
    WrongExpectedVersion,
    WrongValue,
    first_line,
)

#: classes of SQLSTATEs that Spark gives to what a value can cause
_DATA = ("21", "22", "23", "39", "54", "P0")
#: and single ones, of errors that only a task meets: a text that does not fit its format
_DATA_STATES = ("42601", "42K0B")
#: exceptions of Python's that no value causes
_NOT_DATA = (
    OSError, MemoryError, ImportError, NameError, SyntaxError, NotImplementedError, SystemError,
)  # fmt: skip
#: what Spark says when a task or a plan of ours has lost the database
_AWAY = "penstock.errors.database.DatabaseUnreachable"
#: and when that made the driver in `arrow` abort the worker, if `session` has set it up to tell
_ABORTED = ("Fatal Python error: Aborted", "penstock/spark/read/arrow.py")
_CLASS = re.compile(r"(?P<name>[A-Za-z_][\w.]*)(:|$)")


@dataclass(frozen=True)
class JavaCause:
    """The exception of Java's that decided, among those that wrap each other."""

    name: str
    state: str | None
    condition: str | None
    text: str
    #: the values that Spark names in it
    values: tuple[str, ...] = ()
    unchecked: bool = False


def is_passing(error: BaseException) -> bool:
    """Whether the same step may do well a little later: the database was away, or a lock in use."""
    if isinstance(error, WrongExpectedVersion):
        return False  # the step reads what it read: it would expect the same again
    if isinstance(error, PenstockError):
        return error.retryable
    if isinstance(error, PySparkException | Py4JJavaError):
        return _AWAY in str(error) or _was_aborted(error)
    return isinstance(error, psycopg.OperationalError)


def may_be_data(error: BaseException) -> bool:
    """Whether a value can have caused it, so that other messages may pass."""
    if is_passing(error):
        return False
    if isinstance(error, PenstockError):
        return _is_data_class(type(error))
    if isinstance(error, psycopg.Error):
        return isinstance(error, psycopg.DataError | psycopg.IntegrityError)
    if isinstance(error, AnalysisException):
        return False
    if isinstance(error, PySparkException | Py4JJavaError):
        if text := _python_text(error):
            return _is_data_class(_python_class(text))
        cause = _java_cause(error)
        return cause is not None and _is_data_cause(cause)
    return _is_data_class(type(error))


def reason_of(error: BaseException) -> str:
    """Return what went wrong in one line: of a Python worker, its own last words."""
    if isinstance(error, PenstockError):
        return f"{type(error).__name__}: {error}"
    if _was_aborted(error):
        return "a task lost its connection as it began to read, and its worker was aborted"
    if isinstance(error, PySparkException | Py4JJavaError):
        if text := _python_text(error):
            return _python_line(text)
        if (cause := _java_cause(error)) and isinstance(error, Py4JJavaError):
            return f"{cause.name}: {cause.text.splitlines()[0] if cause.text else cause.condition}"
    return f"{type(error).__name__}: {first_line(error)}"


def kind_of(error: BaseException) -> str:
    """Return which kind of error it is, whatever value it met."""
    if isinstance(error, PySparkException | Py4JJavaError):
        if text := _python_text(error):
            return _python_line(text).partition(":")[0]
        if cause := _java_cause(error):
            return cause.condition or cause.name
    return type(error).__name__


def sameness(error: BaseException) -> str:
    """Return what two errors have in common if they have one reason."""
    if isinstance(error, DuplicateMessageId):
        return kind_of(error)  # each names another id
    return reason_of(error)


def named_values(error: BaseException) -> tuple[str, ...]:
    """Return the values that Spark says it could not take; none if it names none."""
    if isinstance(error, PySparkException | Py4JJavaError) and not _python_text(error):
        cause = _java_cause(error)
        return cause.values if cause else ()
    return ()


def _is_data_class(found: type[BaseException] | None) -> bool:
    """Whether exceptions of this class can tell of a value. A class that is not known can."""
    if found is None:
        return True
    if issubclass(found, PenstockError):
        return issubclass(found, WrongValue | DuplicateMessageId)
    return issubclass(found, Exception) and not issubclass(found, _NOT_DATA)


def _is_data_cause(cause: JavaCause) -> bool:
    if cause.state is None:
        return cause.unchecked
    return cause.state.startswith(_DATA) or cause.state in _DATA_STATES


def _was_aborted(error: BaseException) -> bool:
    if not isinstance(error, PySparkException | Py4JJavaError):
        return False
    told = str(error)
    return all(one in told for one in _ABORTED)


# Of a Python worker there is its traceback, as text.


def _python_text(error: BaseException) -> str | None:
    if isinstance(error, PythonException):
        return str(error)
    for one in _java_chain(error):
        if one.getClass().getName() == "org.apache.spark.api.python.PythonException":
            return str(one.getMessage())
    return None


def _python_line(text: str) -> str:
    """Return the line of a traceback that names the exception: the first after its last frame."""
    lines = text.rstrip().splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("Traceback (most")]
    for line in lines[starts[-1] + 1 :] if starts else ():
        if line and not line.startswith(" "):
            return line
    return lines[-1].strip() if lines else "a Python worker failed"


def _python_class(text: str) -> type[BaseException] | None:
    """Return the class that a traceback names, if this process has it."""
    match = _CLASS.match(_python_line(text))
    if match is None:
        return None
    module, _, name = match["name"].rpartition(".")
    place = sys.modules.get(module) if module else builtins
    found = getattr(place, name, None)
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


# Of the JVM there are exceptions that wrap each other, outermost first.


def _java_chain(error: BaseException) -> Iterator[Any]:
    java = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    seen = 0
    while java is not None and seen < 20:
        yield java
        java, seen = java.getCause(), seen + 1


def _java_cause(error: BaseException) -> JavaCause | None:
    """Return the first of the exceptions that says what happened: the others only wrap it."""
    gateway, jvm = SparkContext._gateway, SparkContext._jvm
    if gateway is None or jvm is None:
        return None
    for one in _java_chain(error):
        name, text = one.getClass().getSimpleName(), str(one.getMessage() or "")
        if is_instance_of(gateway, one, "org.apache.spark.SparkThrowable"):
            state, condition = one.getSqlState(), one.getCondition()
            if state or condition:
                values = _values(one.getMessageParameters())
                unchecked = is_instance_of(gateway, one, "java.lang.RuntimeException")
                return JavaCause(name, state, condition, text, values, unchecked)
        elif is_instance_of(gateway, one, "java.lang.RuntimeException"):
            return JavaCause(name, None, None, text, unchecked=True)
    return None


def _values(parameters: Any) -> tuple[str, ...]:
    """Return those parameters of a condition that are values of texts, as SQL quotes them."""
    texts = (str(value) for value in parameters.values())
    return tuple(one[1:-1] for one in texts if len(one) > 2 and one[0] == one[-1] == "'")
