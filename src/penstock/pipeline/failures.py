"""Which errors of a step are tried again, which stop the processor, and which a message may cause.

A step fails for one of three causes:

1. *The moment.* The database cannot be reached, or a lock is in use. The step is tried again
   (`is_passing`).
2. *Something that every message would meet.* A mistake in the function, a missing setting, a bad
   value in a table, a service or an executor that is away, no memory. The processor stops with the
   cause. Somebody has to fix it, and nothing is lost until then.
3. *One message.* It goes to the errors queue, and the others are processed.

Taking the second for the third would send every message to the errors queue. So a message is blamed
only if all of this is true; otherwise the processor stops:

- The error is of a kind that a value can cause (`may_be_data`, below).
- The tables of the step can be read, and the function does not fail in the same way on an empty
  input with the same tables.
- The message fails alone: the step is split until it does.
- A value that the error names is in the message, where the processor has tables as well.
- Other messages pass. If `max_consecutive_errors` messages in a row fail for one reason, none of
  them is blamed. The messages that follow are tried before the first one is blamed; a sink's are
  not, since trying a sink sends its messages.

The kind of an error is taken from its class or SQLSTATE, not from its wording. Spark's own errors
have an SQLSTATE: data that does not fit (22), a constraint on values (21, 23), a limit on their
size (54), a function of the user's (39), `raise_error` (P0). Where there is none, an unchecked Java
exception that a task met while it evaluated an expression is of that kind, and nothing else is. All
Python exceptions are, in the function or in a task, except those about the machine or the program:
no file, no connection, no memory, no module, no such name.

An exception of one of Spark's Python processes reaches the driver as the text of its traceback. An
error of Penstock's carries a mark there, a note with its class: see `penstock.errors.base`.
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

from penstock import errors
from penstock.errors import (
    DuplicateMessageId,
    PenstockError,
    UnavailableError,
    WrongExpectedVersion,
    WrongValue,
    first_line,
)
from penstock.errors.base import MARK

#: classes of SQLSTATEs that Spark gives to what a value can cause
_DATA = ("21", "22", "23", "39", "54", "P0")
#: and single ones, of errors that only a task meets: a text that does not fit its format
_DATA_STATES = ("42601", "42K0B")
#: Python exceptions that no value causes
_NOT_DATA = (
    OSError, MemoryError, ImportError, NameError, SyntaxError, NotImplementedError, SystemError,
)  # fmt: skip
_MARK = re.compile(rf"^\s*\[{re.escape(MARK)}(?P<name>\w+)\] ", re.MULTILINE)
_CLASS = re.compile(r"(?P<name>[A-Za-z_][\w.]*)(:|$)")


@dataclass(frozen=True)
class JavaCause:
    """The Java exception that says what happened, among those that wrap each other."""

    name: str
    state: str | None
    condition: str | None
    text: str
    #: the values that Spark names in it
    values: tuple[str, ...] = ()
    unchecked: bool = False


def is_passing(error: BaseException) -> bool:
    """Whether the same step may succeed a little later: the database was away, or a lock in use."""
    if isinstance(error, WrongExpectedVersion):
        return False  # the step reads the same messages, and would expect the same version
    if isinstance(error, PenstockError):
        return error.retryable
    if isinstance(error, PySparkException | Py4JJavaError):
        away = [one for one in _marked(str(error)) if issubclass(one, UnavailableError)]
        return any(one.retryable for one in away) or _was_aborted(error)
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
            return _is_data_class(_raised_class(text))
        cause = _java_cause(error)
        if cause is None or cause.state is None:
            return cause is not None and cause.unchecked
        return cause.state.startswith(_DATA) or cause.state in _DATA_STATES
    return _is_data_class(type(error))


def reason_of(error: BaseException) -> str:
    """Return what went wrong in one line: of a Python worker, the line that names its error."""
    if isinstance(error, PenstockError):
        return f"{type(error).__name__}: {error}"
    if _was_aborted(error):
        return "a task lost its connection when it began to read, and its worker was aborted"
    if text := _python_text(error):
        return _python_line(text)
    if isinstance(error, Py4JJavaError) and (cause := _java_cause(error)):
        return f"{cause.name}: {cause.text.splitlines()[0] if cause.text else cause.condition}"
    return f"{type(error).__name__}: {first_line(error)}"


def kind_of(error: BaseException) -> str:
    """Return the kind of an error, whatever value caused it."""
    if text := _python_text(error):
        return _python_line(text).partition(":")[0]
    if cause := _java_cause(error):
        return cause.condition or cause.name
    return type(error).__name__


def shared_reason(error: BaseException) -> str:
    """Return what is equal in two errors that have the same reason."""
    # each DuplicateMessageId names another id
    return kind_of(error) if isinstance(error, DuplicateMessageId) else reason_of(error)


def named_values(error: BaseException) -> tuple[str, ...]:
    """Return the values that a Spark error names."""
    cause = None if _python_text(error) else _java_cause(error)
    return cause.values if cause else ()


def _is_data_class(found: type[BaseException] | None) -> bool:
    """Whether a value can cause exceptions of this class. An unknown class counts as such."""
    if found is None:
        return True
    if issubclass(found, PenstockError):
        return issubclass(found, WrongValue | DuplicateMessageId)
    return issubclass(found, Exception) and not issubclass(found, _NOT_DATA)


def _was_aborted(error: BaseException) -> bool:
    """Whether the driver of a task's read aborted the worker, since it lost its connection.

    A process that is aborted raises nothing. If `session` has set it up, it prints which functions
    it was in.
    """
    text = str(error) if isinstance(error, PySparkException | Py4JJavaError) else ""
    if "Fatal Python error: Aborted" not in text:
        return False
    from penstock.spark.read.arrow import read_batches

    return f" in {read_batches.__name__}\n" in f"{text}\n"


# An exception of a Python worker arrives as the text of its traceback.


def _marked(text: str) -> list[type[PenstockError]]:
    """Return the classes of Penstock's errors in a traceback, outermost last."""
    found = (getattr(errors, match["name"], None) for match in _MARK.finditer(text))
    return [one for one in found if one is not None]


def _raised_class(text: str) -> type[BaseException] | None:
    """Return the class of the exception that a traceback ends with, if this process has it."""
    if marked := _marked(text[text.rfind("Traceback (most") :]):
        return marked[-1]
    match = _CLASS.match(_python_line(text))
    if match is None:
        return None
    module, _, name = match["name"].rpartition(".")
    found = getattr(sys.modules.get(module) if module else builtins, name, None)
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


def _python_text(error: BaseException) -> str | None:
    if isinstance(error, PythonException):
        return str(error)
    for one in _java_chain(error):
        if one.getClass().getName() == "org.apache.spark.api.python.PythonException":
            return str(one.getMessage())
    return None


def _python_line(text: str) -> str:
    """Return the line of a traceback that names the exception: the first after the last frame."""
    lines = text.rstrip().splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("Traceback (most")]
    for line in lines[starts[-1] + 1 :] if starts else ():
        if line and not line.startswith(" "):
            return line
    return lines[-1].strip() if lines else "a Python worker failed"


# The JVM has exceptions that wrap each other, outermost first.


def _java_chain(error: BaseException) -> Iterator[Any]:
    java = None
    if isinstance(error, PySparkException | Py4JJavaError):
        java = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    for _ in range(20):
        if java is None:
            return
        yield java
        java = java.getCause()


def _java_cause(error: BaseException) -> JavaCause | None:
    """Return the first of the exceptions that says what happened; the others only wrap it."""
    gateway, jvm = SparkContext._gateway, SparkContext._jvm
    if gateway is None or jvm is None:
        return None
    for one in _java_chain(error):
        name, text = one.getClass().getSimpleName(), str(one.getMessage() or "")
        unchecked = is_instance_of(gateway, one, "java.lang.RuntimeException")
        if is_instance_of(gateway, one, "org.apache.spark.SparkThrowable"):
            state, condition = one.getSqlState(), one.getCondition()
            if state or condition:
                texts = [str(value) for value in one.getMessageParameters().values()]
                quoted = [each for each in texts if len(each) > 2 and each[0] == each[-1] == "'"]
                values = tuple(each[1:-1] for each in quoted)
                return JavaCause(name, state, condition, text, values, unchecked)
        elif unchecked:
            return JavaCause(name, None, None, text, unchecked=True)
    return None
