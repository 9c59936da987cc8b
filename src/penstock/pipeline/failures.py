"""Whose fault was it? Data that a function cannot take, or a machine that went away.

Only the first kind is worth a search for the message that did it. A lost executor or database, a
mistake in the query itself, or a function that returns the wrong thing would fail for any data.
"""

from __future__ import annotations

import psycopg
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException, PythonException

from penstock.errors import PenstockError, WrongExpectedVersion, WrongValue, first_line

#: the class of SQLSTATEs for data that does not fit
_DATA = "22"
#: what Spark says when a task or a plan of ours has lost the database
_AWAY = "penstock.errors.database.DatabaseUnreachable"
#: and when that made the driver in `arrow` abort the worker, if `session` has set it up to tell
_ABORTED = ("Fatal Python error: Aborted", "penstock/pipeline/arrow.py")


def is_passing(error: BaseException) -> bool:
    """Whether the same step may do well a little later: the database was away, or a lock in use."""
    if isinstance(error, WrongExpectedVersion):
        return False  # the step reads what it read: it would expect the same again
    if isinstance(error, PenstockError):
        return error.retryable
    if isinstance(error, PySparkException | Py4JJavaError):
        return _AWAY in str(error) or _was_aborted(error)
    return isinstance(error, psycopg.OperationalError)


def is_data_error(error: BaseException) -> bool:
    """Whether some message made the function fail, so that the others may pass."""
    if isinstance(error, WrongValue):
        return True
    if is_passing(error) or isinstance(error, AnalysisException):
        return False
    if isinstance(error, PythonException):
        return "WrongColumns" not in reason_of(error)
    if isinstance(error, PySparkException):
        return (_state(error) or "").startswith(_DATA)
    if isinstance(error, PenstockError):
        return False
    return isinstance(error, ValueError | ArithmeticError | LookupError | TypeError)


def reason_of(error: BaseException) -> str:
    """Return what went wrong in one line: of a Python worker, its own last words."""
    if isinstance(error, PythonException):
        lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
        ours = [line for line in lines if not line.startswith(("File ", "at ", "SQLSTATE"))]
        return ours[-1] if ours else first_line(error)
    if isinstance(error, PenstockError):
        return f"{type(error).__name__}: {error}"
    if _was_aborted(error):
        return "a task lost its connection as it began to read, and its worker was aborted"
    return f"{type(error).__name__}: {first_line(error)}"


def _was_aborted(error: BaseException) -> bool:
    if not isinstance(error, PySparkException | Py4JJavaError):
        return False
    told = str(error)
    return all(one in told for one in _ABORTED)


def _state(error: PySparkException) -> str | None:
    try:
        return error.getSqlState()
    except Exception:  # Spark's own failures have none
        return None
