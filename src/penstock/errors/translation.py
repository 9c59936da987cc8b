"""Which error the server's answer stands for: the table from SQLSTATE to error."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import psycopg

from penstock.errors.base import PenstockError, first_line
from penstock.errors.consumers import OffsetBeyondTail, PositionConflict, SessionFenced
from penstock.errors.database import (
    CommandTimeout,
    DatabaseUnreachable,
    IncompatibleVersion,
    LockTableFull,
    PreparedStatementLost,
    TransactionTimeout,
)
from penstock.errors.groups import (
    DeclarationBlocked,
    GroupNotFound,
    IndexingUnfinished,
    InvalidAck,
    PartitionByChanged,
    StaleClaim,
    UndeclaredAttribute,
    UndeclaredType,
)
from penstock.errors.log import (
    CategoryBusy,
    ConcurrentAppendError,
    ConditionNotActivated,
    DuplicateMessageId,
    LogChanged,
    StandbyRefused,
    TooLarge,
    TransactionAborted,
    TransactionConflict,
    UnannouncedPosition,
    WatermarkRequired,
    WrongExpectedVersion,
)
from penstock.errors.outbox import (
    JoinAwaited,
    JoinFinished,
    JoinFull,
    JoinNotFound,
    JoinOfItsOwnWait,
    JoinRing,
    NotAJoinMember,
    OutboxMessageNotFound,
    StaleLease,
)
from penstock.errors.pipeline import ForeignErrorRow, StagingLost, StepSuperseded

_BY_CODE: Mapping[str, type[PenstockError]] = {
    "PS001": WrongExpectedVersion,
    "PS002": DuplicateMessageId,
    "PS004": CategoryBusy,
    "PS006": UnannouncedPosition,
    "PS009": LogChanged,
    "PS020": SessionFenced,
    "PS021": OffsetBeyondTail,
    "PS030": PositionConflict,
    "PS040": UndeclaredType,
    "PS041": IndexingUnfinished,
    "PS042": UndeclaredAttribute,
    "PS043": ConcurrentAppendError,
    "PS044": GroupNotFound,
    "PS045": StaleClaim,
    "PS046": PartitionByChanged,
    "PS047": InvalidAck,
    "PS048": DeclarationBlocked,
    "PS060": JoinNotFound,
    "PS061": JoinFinished,
    "PS062": OutboxMessageNotFound,
    "PS063": JoinFull,
    "PS064": NotAJoinMember,
    "PS065": JoinAwaited,
    "PS066": StaleLease,
    "PS067": JoinOfItsOwnWait,
    "PS068": JoinRing,
    "PS070": StagingLost,
    "PS071": StepSuperseded,
    "PS072": ForeignErrorRow,
}

# Genuine Message DB has no codes of its own for these, nor a detail: its text is all there is.
_MESSAGE_DB_CONDITION = "Retrieval with SQL condition is not activated"
_MESSAGE_DB_VERSION = re.compile(
    r"Wrong expected version: (?P<expected>-?\d+) "
    r"\(Stream: (?P<stream_name>.*), Stream Version: (?P<actual>-?\d+)\)$",
    re.DOTALL,
)

_TRANSACTION_CONFLICTS = {"40001", "40P01", "55P03"}
_PREPARED_FOR_ANOTHER_SESSION = {"26000", "42P05"}


def translate(error: psycopg.Error, where: str) -> Exception:
    """Return the Penstock error that the server's error stands for, or the error itself."""
    diag = error.diag
    code, facts = _code_and_facts(error)
    if error_class := _BY_CODE.get(code or ""):
        return _with_facts(error_class, facts) or error
    if code == "PS005":
        return StandbyRefused(where)
    if code == "PS003":
        return WatermarkRequired(diag.message_primary or str(error))
    if code == "PS008" or diag.message_primary == _MESSAGE_DB_CONDITION:
        return ConditionNotActivated("")
    if code == "23505" and diag.constraint_name == "messages_id":
        return DuplicateMessageId(_key_value(diag.message_detail))
    if code == "23505" and diag.constraint_name == "messages_stream":
        return TransactionConflict("another transaction wrote to the stream at the same time")
    if code == "P0001" and (match := _MESSAGE_DB_VERSION.match(diag.message_primary or "")):
        return WrongExpectedVersion(
            match["stream_name"], int(match["expected"]), int(match["actual"])
        )
    if code in _TRANSACTION_CONFLICTS:
        return TransactionConflict(diag.message_primary or str(error))
    if code == "25P02":
        return TransactionAborted()
    if code == "54000":
        return TooLarge(first_line(error))
    if code == "53200" and diag.source_file == "lock.c":  # else the server's memory is short
        return LockTableFull(where, first_line(error))
    if code == "57014":
        return CommandTimeout(where, diag.message_primary or str(error))
    if code in ("25P03", "25P04"):
        return TransactionTimeout(where, diag.message_primary or str(error))
    if _changed_since(code, diag.message_primary or ""):
        return IncompatibleVersion(
            f"{where} holds SQL of another version of Penstock than this client expects: upgrade "
            f"the Python package penstock-log, or run `penstock init` ({first_line(error)})"
        )
    if code in _PREPARED_FOR_ANOTHER_SESSION:
        return PreparedStatementLost(
            f"{where}: {first_line(error)}. A pooler that gives each transaction another session "
            "needs prepared_statements=False, or must pool by session"
        )
    if is_lost_connection(error):
        return DatabaseUnreachable(where, first_line(error))
    return error


def _changed_since(code: str | None, message: str) -> bool:
    """Whether a function or table of ours is not what it was when the client was written."""
    if code in ("42883", "42P01"):
        return "penstock." in message
    # a prepared call of a function that was replaced by one with another result
    return code == "0A000" and message == "cached plan must not change result type"


def is_lost_connection(error: psycopg.Error) -> bool:
    """Whether the error says that the connection, and not the statement, is at fault."""
    if error.sqlstate is None:
        mine = isinstance(error, psycopg.errors.PipelineAborted)  # by a statement before it
        return isinstance(error, psycopg.OperationalError) and not mine
    return error.sqlstate.startswith(("08", "57P"))


def _code_and_facts(error: psycopg.Error) -> tuple[str | None, dict[str, Any]]:
    try:
        facts = json.loads(error.diag.message_detail or "")
        return facts.pop("code", error.sqlstate), facts
    except (ValueError, AttributeError, TypeError):
        return error.sqlstate, {}


def _with_facts(error_class: type[PenstockError], facts: dict[str, Any]) -> PenstockError | None:
    """Return the error with those facts it knows; None if the server left some out."""
    known = {one.name for one in fields(error_class)}
    try:
        return error_class(**{name: value for name, value in facts.items() if name in known})
    except TypeError:
        return None


def _key_value(detail: str | None) -> str:
    """Return the value in PostgreSQL's text `Key (id)=(value) already exists`."""
    return (detail or "").partition("=(")[2].partition(")")[0]
