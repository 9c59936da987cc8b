"""Errors of the server, translated to ours by their SQLSTATE.

The server's facts come as JSON in the error's detail. `where` and `reason` are added for the
errors that have such fields.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import psycopg

from penstock.errors.base import PenstockError, first_line
from penstock.errors.database import (
    DatabaseUnreachable,
    IncompatibleVersion,
    LockTableFull,
    PreparedStatementLost,
)
from penstock.errors.log import (
    ConditionNotActivated,
    DuplicateMessageId,
    TransactionConflict,
    WrongExpectedVersion,
)
from penstock.errors.tree import all_errors

_BY_SQLSTATE: Mapping[str, type[PenstockError]] = {
    code: error for error in all_errors() for code in error.sqlstates
}

# Genuine Message DB has no codes of its own for these, nor a detail: its text is all there is.
_MESSAGE_DB_CONDITION = "Retrieval with SQL condition is not activated"
_MESSAGE_DB_VERSION = re.compile(
    r"Wrong expected version: (?P<expected>-?\d+) "
    r"\(Stream: (?P<stream_name>.*), Stream Version: (?P<actual>-?\d+)\)$",
    re.DOTALL,
)

_PREPARED_FOR_ANOTHER_SESSION = {"26000", "42P05"}


def translate(error: psycopg.Error, where: str) -> Exception:
    """Return the Penstock error for an error of the server, or the error itself."""
    diag = error.diag
    reason = diag.message_primary or first_line(error)
    code, facts = _code_and_facts(error)
    if error_class := _BY_SQLSTATE.get(code or ""):
        return _with_facts(error_class, {"where": where, "reason": reason, **facts}) or error
    if reason == _MESSAGE_DB_CONDITION:
        return ConditionNotActivated()
    if code == "P0001" and (match := _MESSAGE_DB_VERSION.match(reason)):
        return WrongExpectedVersion(
            match["stream_name"], int(match["expected"]), int(match["actual"])
        )
    if code == "23505" and diag.constraint_name == "messages_id":
        return DuplicateMessageId(_key_value(diag.message_detail))
    if code == "23505" and diag.constraint_name == "messages_stream":
        return TransactionConflict("another transaction wrote to the stream at the same time")
    if code == "53200" and diag.source_file == "lock.c":  # else the server is out of memory
        return LockTableFull(where, reason)
    if _has_other_schema(code, reason):
        return IncompatibleVersion(
            f"{where} holds SQL of another version of Penstock than this client expects: upgrade "
            f"the Python package penstock-log, or run `penstock init` ({reason})"
        )
    if code in _PREPARED_FOR_ANOTHER_SESSION:
        return PreparedStatementLost(
            f"{where}: {reason}. A pooler that gives each transaction another session "
            "needs prepared_statements=False, or must pool by session"
        )
    if is_lost_connection(error):
        return DatabaseUnreachable(where, first_line(error))
    return error


def error_of(code: str, facts: Mapping[str, Any], where: str) -> Exception:
    """Return the Penstock error for a code of ours and its facts."""
    named = {"where": where, "reason": code, **facts}
    return _with_facts(_BY_SQLSTATE[code], named) or PenstockError(code)


def _has_other_schema(code: str | None, message: str) -> bool:
    """Whether one of our functions or tables is missing, or differs from what was prepared."""
    if code in ("42883", "42P01"):
        return "penstock." in message
    # a prepared call of a function that was replaced by one with another result
    return code == "0A000" and message == "cached plan must not change result type"


def is_lost_connection(error: psycopg.Error) -> bool:
    """Whether the connection failed, not the statement."""
    if error.sqlstate is None:
        aborted = isinstance(error, psycopg.errors.PipelineAborted)  # by an earlier statement
        return isinstance(error, psycopg.OperationalError) and not aborted
    return error.sqlstate.startswith(("08", "57P"))


def _code_and_facts(error: psycopg.Error) -> tuple[str | None, dict[str, Any]]:
    try:
        facts = json.loads(error.diag.message_detail or "")
        return facts.pop("code", error.sqlstate), facts
    except (ValueError, AttributeError, TypeError):
        return error.sqlstate, {}


def _with_facts(error_class: type[PenstockError], facts: Mapping[str, Any]) -> PenstockError | None:
    """Return the error with the facts that are its fields; None if some are missing."""
    names = {one.name for one in fields(error_class)}
    try:
        return error_class(**{name: value for name, value in facts.items() if name in names})
    except TypeError:
        return None


def _key_value(detail: str | None) -> str:
    """Return the value in PostgreSQL's text `Key (id)=(value) already exists`."""
    return (detail or "").partition("=(")[2].partition(")")[0]
