"""What can go wrong, named by what happened.

    PenstockError
    ├── ValidationError            bad input: refused before anything was sent
    ├── ConcurrencyError           somebody else was first: decide again and retry
    │   ├── WrongExpectedVersion
    │   ├── TransactionConflict    a deadlock or serialization failure, seen by PostgreSQL
    │   ├── CategoryBusy           a bulk write needs a category to itself
    │   └── ConcurrentAppendError  what a guard watches has been written to
    ├── DuplicateMessageId         the id belongs to another message
    ├── DecodingError              a stored message cannot be read
    │   └── UndecodableRecord      and a session stands at it: skip it on purpose
    ├── ConditionNotActivated      SQL conditions are switched off
    ├── WatermarkRequired          a snapshot is too old to read many streams from
    ├── StandbyRefused             many streams cannot be read completely on a standby
    ├── UnannouncedPosition        a global position was made by hand
    ├── TransactionClosed          the transaction has ended already
    ├── TransactionAborted         an earlier failure keeps it from committing
    ├── StoreClosed                the store was closed
    ├── MessageTypeError
    │   ├── UnknownMessageType     no class of this process has the type
    │   ├── UndeclaredType         the type declares no attributes in this database
    │   ├── UndeclaredAttribute    the type does not declare this attribute
    │   ├── IndexingUnfinished     older messages of the type are still being indexed
    │   └── DeclarationBlocked     a type cannot be declared while transactions write
    ├── GroupError
    │   ├── GroupNotFound          no such consumer group was registered
    │   ├── PartitionByChanged     the group is partitioned by other attributes
    │   ├── StaleClaim             the claim lapsed, was given back, or the group was reset
    │   └── InvalidAck             the position is not one that this claim can acknowledge
    ├── OutboxError
    │   ├── StaleLease             messages are not held under this token any more
    │   ├── OutboxMessageNotFound
    │   ├── JoinNotFound
    │   ├── JoinFinished           the join is completed, failed or cancelled
    │   ├── JoinFull               the join has all the members it expects
    │   ├── NotAJoinMember
    │   ├── JoinAwaited            the join is waited for already
    │   └── PermanentFailure       raise it in a handler: do not try this message again
    ├── ConsumerError
    │   ├── HandlerFailed          a handler failed and its policy says stop
    │   ├── UnhandledMessageType   no handler takes this type, and the consumer refuses such
    │   ├── InvalidPosition        a position stream holds something else
    │   ├── PositionConflict       somebody else moved this consumer's position
    │   └── ParkedMessageNotFound  no such message is parked
    ├── SessionError
    │   ├── SessionFenced          a newer session has its consumer id
    │   ├── SessionClosed          the session was closed
    │   ├── SessionInUse           two callers use one session at once
    │   ├── NothingToCommit        nothing was polled since the last commit
    │   └── NothingToSkip          no record that cannot be decoded was polled
    ├── OffsetBeyondTail           a queue has no such record yet
    ├── UnavailableError           the database cannot be used at the moment
    │   ├── DatabaseUnreachable
    │   ├── AuthenticationFailed
    │   ├── PoolExhausted
    │   ├── CommandTimeout
    │   └── TransactionTimeout
    └── SetupError                 this database and this client do not fit
        ├── NotInstalled
        ├── IncompatibleVersion
        ├── UnsupportedEdition     only a database that Penstock set up can do this
        ├── UnsafeSequence         the log's sequence has a cache
        └── EmbeddedServerError

Each error carries its facts as attributes and says whether a retry may help (`retryable`). Errors
of the server that are not listed here reach the caller as psycopg raised them.
"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar
from uuid import UUID

import psycopg


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


@dataclass(eq=False)
class ConcurrencyError(PenstockError):
    """Somebody else was first. Read again, decide again, and retry."""

    retryable: ClassVar[bool] = True


@dataclass(eq=False)
class WrongExpectedVersion(ConcurrencyError):
    """The stream has moved on since it was read. Nothing was written."""

    stream_name: str
    expected: int
    actual: int

    def __str__(self) -> str:
        return f"stream {self.stream_name} is at version {self.actual}, not {self.expected}"


@dataclass(eq=False)
class TransactionConflict(ConcurrencyError):
    """PostgreSQL ended this transaction in favour of another. Run it again as a whole."""

    reason: str

    def __str__(self) -> str:
        return f"the transaction lost to another one and was rolled back: {self.reason}"


@dataclass(eq=False)
class CategoryBusy(ConcurrencyError):
    """A transaction that writes to very many streams needs the category, and others write to it."""

    category: str

    def __str__(self) -> str:
        return (
            f"this transaction writes to so many streams that it needs category {self.category} "
            "to itself, and others are writing to it: call lock_categories() first, or retry"
        )


@dataclass(eq=False)
class ConcurrentAppendError(ConcurrencyError):
    """A message that the guard watches was written since. Nothing was appended."""

    type: str
    position: int

    def __str__(self) -> str:
        return (
            f"a message of type {self.type} was written at {self.position} since the decision "
            "was made: read again and decide again"
        )


@dataclass(eq=False)
class DuplicateMessageId(PenstockError):
    """The id belongs to another message already. Nothing was written."""

    id: UUID | str
    stream_name: str | None = None

    def __str__(self) -> str:
        where = f" in stream {self.stream_name}" if self.stream_name else ""
        return f"message id {self.id} exists already{where}"


@dataclass(eq=False)
class DecodingError(PenstockError):
    """A stored message cannot be decoded. It is named, so that it can be looked at or skipped."""

    stream_name: str
    position: int
    global_position: int
    reason: str

    def __str__(self) -> str:
        return (
            f"message {self.global_position} (stream {self.stream_name}, position {self.position}) "
            f"cannot be decoded: {self.reason}"
        )


@dataclass(eq=False)
class UndecodableRecord(DecodingError):
    """A record of a queue cannot be decoded. `session.skip()` passes over it."""

    @property
    def offset(self) -> int:
        """The record's offset."""
        return self.position

    def __str__(self) -> str:
        return f"record {self.offset} of {self.stream_name} cannot be decoded: {self.reason}"


@dataclass(eq=False)
class ConditionNotActivated(PenstockError):
    """A SQL condition was given, and they are switched off."""

    condition: str

    def __str__(self) -> str:
        if not self.condition:  # the server refused it, in a session that is not the store's
            return (
                "SQL conditions are switched off in this session: "
                "`set message_store.sql_condition = 'on'` allows them"
            )
        return (
            f"the SQL condition {shown(self.condition)} was refused: conditions run as SQL on the "
            "server; connect with sql_condition=True to allow them"
        )


@dataclass(eq=False)
class WatermarkRequired(PenstockError):
    """Many streams were read in a snapshot that is older than the watermark."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclass(eq=False)
class StandbyRefused(PenstockError):
    """Many streams were read on a standby, which does not know which writers are open."""

    where: str

    def __str__(self) -> str:
        return (
            f"{self.where} is a standby, which does not know which writers are open: read "
            "categories on the primary"
        )


@dataclass(eq=False)
class UnannouncedPosition(PenstockError):
    """A message was inserted with a global position made by hand, below where it may write."""

    global_position: int

    def __str__(self) -> str:
        return (
            f"global position {self.global_position} was made by hand: let the sequence of "
            "message_store.messages number the messages"
        )


@dataclass(eq=False)
class TransactionClosed(PenstockError):
    """The transaction was committed, rolled back or lost already."""

    def __str__(self) -> str:
        return "this transaction has ended already: begin another one"


@dataclass(eq=False)
class TransactionAborted(PenstockError):
    """A statement failed, so the transaction was rolled back when it should have been committed."""

    def __str__(self) -> str:
        return (
            "an earlier statement of this transaction failed, so all of it was rolled back: "
            "use a savepoint around a statement that may fail"
        )


@dataclass(eq=False)
class StoreClosed(PenstockError):
    """The store was closed and cannot be used again."""

    where: str

    def __str__(self) -> str:
        return f"this store ({self.where}) was closed: connect again"


@dataclass(eq=False)
class MessageTypeError(PenstockError):
    """A message type, or an attribute of one, is not what the call takes it for."""

    type: str


@dataclass(eq=False)
class UnknownMessageType(MessageTypeError):
    """No TypedMessage class of this process has the type."""

    known: tuple[str, ...] = ()

    def __str__(self) -> str:
        return (
            f"no class is defined for message type {self.type}; known are "
            f"{', '.join(self.known) or 'none'}: is the module that defines it imported?"
        )


@dataclass(eq=False)
class UndeclaredType(MessageTypeError):
    """The type declares no attributes in this database."""

    def __str__(self) -> str:
        return (
            f"message type {self.type} declares no attributes in this database: "
            "call store.declare() with its class"
        )


@dataclass(eq=False)
class UndeclaredAttribute(MessageTypeError):
    """The type does not declare these attributes."""

    attributes: list[str]

    def __str__(self) -> str:
        return f"message type {self.type} does not declare {', '.join(self.attributes)}"


@dataclass(eq=False)
class IndexingUnfinished(MessageTypeError):
    """Older messages of the type are still being indexed, so a condition might miss some."""

    def __str__(self) -> str:
        return (
            f"older messages of type {self.type} are not indexed yet: call store.declare() with "
            "its class and let it finish"
        )


@dataclass(eq=False)
class DeclarationBlocked(MessageTypeError):
    """A type that is used for the first time could not be declared: a transaction is writing."""

    retryable: ClassVar[bool] = True

    def __str__(self) -> str:
        return (
            f"message type {self.type} is new to this database and could not be declared, since a "
            "transaction is writing (maybe this one): call store.declare() with its class first"
        )


@dataclass(eq=False)
class GroupError(PenstockError):
    """A consumer group cannot do this."""

    group_id: str


@dataclass(eq=False)
class GroupNotFound(GroupError):
    """No such consumer group was registered."""

    def __str__(self) -> str:
        return f"no consumer group {self.group_id}: call register_consumer_group() first"


@dataclass(eq=False)
class PartitionByChanged(GroupError):
    """The group is partitioned by other attributes."""

    partition_by: list[str]
    given: list[str]

    def __str__(self) -> str:
        return (
            f"group {self.group_id} is partitioned by {', '.join(self.partition_by)}, not by "
            f"{', '.join(self.given)}: reset the group to change that"
        )


@dataclass(eq=False)
class StaleClaim(GroupError):
    """The claim is not yours any more: it lapsed, was given back, or the group was reset."""

    offset_id: int

    def __str__(self) -> str:
        return (
            f"the claim on partition {self.offset_id} of group {self.group_id} is not yours any "
            "more: its lease lapsed, it was given back, or the group was reset"
        )


@dataclass(eq=False)
class InvalidAck(GroupError):
    """The position is not one that this claim can acknowledge."""

    position: int
    last_position: int

    def __str__(self) -> str:
        return (
            f"position {self.position} cannot be acknowledged in group {self.group_id}: it is not "
            f"after {self.last_position}, or the group has not come so far"
        )


@dataclass(eq=False)
class OutboxError(PenstockError):
    """The outbox or a join cannot do this."""


@dataclass(eq=False)
class StaleLease(OutboxError):
    """These messages are not yours any more: their lease ended and somebody else has them."""

    message_ids: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"not held any more, and left as they are: {', '.join(self.message_ids)}; "
            "their lease ended, or they were finished already"
        )


@dataclass(eq=False)
class OutboxMessageNotFound(OutboxError):
    """There is no such message in the outbox."""

    message_id: str

    def __str__(self) -> str:
        return f"there is no outbox message {self.message_id}: was it cleaned up?"


@dataclass(eq=False)
class JoinNotFound(OutboxError):
    """There is no such join."""

    join_id: str

    def __str__(self) -> str:
        return f"there is no join {self.join_id}"


@dataclass(eq=False)
class JoinFinished(OutboxError):
    """The join is completed, failed or cancelled already, and that is final."""

    join_id: str
    status: str

    def __str__(self) -> str:
        return f"join {self.join_id} is {self.status}, and that is final"


@dataclass(eq=False)
class JoinFull(OutboxError):
    """The join has all the members it expects."""

    join_id: str
    expected_steps: int

    def __str__(self) -> str:
        return f"join {self.join_id} expects {self.expected_steps} steps and has them all"


@dataclass(eq=False)
class NotAJoinMember(OutboxError):
    """The message was never attached to the join."""

    join_id: str
    message_id: str

    def __str__(self) -> str:
        return f"message {self.message_id} is not attached to join {self.join_id}"


@dataclass(eq=False)
class JoinAwaited(OutboxError):
    """The join is waited for already: it has one wait and one follow-up."""

    join_id: str
    wait_id: str

    def __str__(self) -> str:
        return f"join {self.join_id} is waited for already, by message {self.wait_id}"


@dataclass(eq=False)
class PermanentFailure(OutboxError):
    """Raise it in a handler: this message will never succeed, do not try it again."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclass(eq=False)
class ConsumerError(PenstockError):
    """A consumer cannot go on."""


@dataclass(eq=False)
class HandlerFailed(ConsumerError):
    """A handler failed for good. The consumer stopped, and will resume with this message."""

    type: str
    stream_name: str
    global_position: int
    attempts: int
    reason: str

    def __str__(self) -> str:
        return (
            f"the handler of {self.type} failed on message {self.global_position} "
            f"(stream {self.stream_name}) after {self.attempts} attempts: "
            f"{self.reason}"
        )


@dataclass(eq=False)
class UnhandledMessageType(ConsumerError):
    """A message of a type that no handler takes, in a consumer that refuses such."""

    type: str
    stream_name: str
    global_position: int

    def __str__(self) -> str:
        return (
            f"no handler takes type {self.type}, of message {self.global_position} "
            f"(stream {self.stream_name}): add one, or construct the consumer with unknown='ignore'"
        )


@dataclass(eq=False)
class InvalidPosition(ConsumerError):
    """A position stream ends with a message that holds no position."""

    stream_name: str
    position: int
    data: object

    def __str__(self) -> str:
        return (
            f"message {self.position} of {self.stream_name} should hold a position, such as "
            f"{{'position': 12}}; it holds {shown(self.data)}"
        )


@dataclass(eq=False)
class PositionConflict(ConsumerError):
    """The consumer's position was moved by somebody else: a second process, or an operator."""

    consumer_id: str
    expected: int | None
    actual: int | None

    def __str__(self) -> str:
        return (
            f"the position of consumer {self.consumer_id} was moved by somebody else: does another "
            "process run under this id, or was it moved with `penstock seek`?"
        )


@dataclass(eq=False)
class ParkedMessageNotFound(ConsumerError):
    """No such message waits in the consumer's parked stream."""

    category: str
    consumer_id: str
    global_position: int

    def __str__(self) -> str:
        return (
            f"consumer {self.consumer_id} of {self.category} has no parked message "
            f"{self.global_position}: it was handled or dropped, or never parked"
        )


@dataclass(eq=False)
class SessionError(PenstockError, RuntimeError):
    """A session refuses what was asked of it."""

    stream_name: str
    consumer_id: str


@dataclass(eq=False)
class SessionFenced(SessionError):
    """A newer session was opened with the same consumer id, and this one changes nothing more."""

    def __str__(self) -> str:
        return (
            f"another session of {self.stream_name} was opened with consumer id "
            f"{shown(self.consumer_id)}, and only the newest works: give each consumer its own id"
        )


@dataclass(eq=False)
class SessionClosed(SessionError):
    """The session was closed and cannot be used again."""

    def __str__(self) -> str:
        return (
            f"this session of {self.stream_name} (consumer id {shown(self.consumer_id)}) was "
            "closed: create another"
        )


@dataclass(eq=False)
class SessionInUse(SessionError):
    """Two threads or tasks use one session at the same time."""

    def __str__(self) -> str:
        return (
            f"this session of {self.stream_name} (consumer id {shown(self.consumer_id)}) is in use "
            "by another thread or task: a session is for one at a time"
        )


@dataclass(eq=False)
class NothingToCommit(SessionError):
    """`commit()` was called, and nothing was polled since the last commit."""

    def __str__(self) -> str:
        return (
            f"nothing to commit: consumer {shown(self.consumer_id)} polled no record of "
            f"{self.stream_name} since its last commit"
        )


@dataclass(eq=False)
class NothingToSkip(SessionError):
    """`skip()` was called, and the last poll met no record that cannot be decoded."""

    def __str__(self) -> str:
        return (
            f"nothing to skip: consumer {shown(self.consumer_id)} does not stand at a record of "
            f"{self.stream_name} that cannot be decoded"
        )


@dataclass(eq=False)
class OffsetBeyondTail(PenstockError, ValueError):
    """The offset is higher than any that a record has. Nothing was changed."""

    stream_name: str
    offset: int
    tail: int

    def __str__(self) -> str:
        return (
            f"offset {self.offset} of {self.stream_name} does not exist yet: "
            f"the next record will get offset {self.tail}"
        )


@dataclass(eq=False)
class UnavailableError(PenstockError):
    """The database cannot be used at the moment."""

    retryable: ClassVar[bool] = True

    where: str
    reason: str

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


@dataclass(eq=False)
class DatabaseUnreachable(UnavailableError):
    """No connection could be made, or the one in use was lost."""

    def __str__(self) -> str:
        return f"PostgreSQL at {self.where} cannot be reached: {self.reason}"


@dataclass(eq=False)
class AuthenticationFailed(UnavailableError):
    """The server refused this user or password."""

    retryable: ClassVar[bool] = False

    def __str__(self) -> str:
        return f"PostgreSQL at {self.where} refused the login: {self.reason}"


@dataclass(eq=False)
class PoolExhausted(UnavailableError):
    """The server answers, but all connections of the pool stayed in use."""


@dataclass(eq=False)
class CommandTimeout(UnavailableError):
    """One statement took longer than `command_timeout_ms` and was cancelled on the server."""


@dataclass(eq=False)
class TransactionTimeout(UnavailableError):
    """The transaction took longer than its timeout and was rolled back."""


@dataclass(eq=False)
class SetupError(PenstockError):
    """This database and this client do not fit together."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclass(eq=False)
class NotInstalled(SetupError):
    """The database holds no message store."""


@dataclass(eq=False)
class IncompatibleVersion(SetupError):
    """The database holds a message store of a version this client does not speak."""


@dataclass(eq=False)
class UnsupportedEdition(SetupError):
    """A genuine Message DB cannot do this until `penstock init` has added to it."""


@dataclass(eq=False)
class UnsafeSequence(SetupError):
    """The log's sequence hands out positions in blocks, so the watermark could not be kept."""


@dataclass(eq=False)
class EmbeddedServerError(SetupError):
    """The embedded PostgreSQL could not be set up or started."""


_BY_CODE: Mapping[str, type[PenstockError]] = {
    "PS001": WrongExpectedVersion,
    "PS002": DuplicateMessageId,
    "PS004": CategoryBusy,
    "PS006": UnannouncedPosition,
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
}

# Genuine Message DB has no codes of its own for these, nor a detail: its text is all there is.
_MESSAGE_DB_CONDITION = "Retrieval with SQL condition is not activated"
_MESSAGE_DB_VERSION = re.compile(
    r"Wrong expected version: (?P<expected>-?\d+) "
    r"\(Stream: (?P<stream_name>.*), Stream Version: (?P<actual>-?\d+)\)$",
    re.DOTALL,
)

_TRANSACTION_CONFLICTS = {"40001", "40P01", "55P03"}


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
    if code == "57014":
        return CommandTimeout(where, diag.message_primary or str(error))
    if code in ("25P03", "25P04"):
        return TransactionTimeout(where, diag.message_primary or str(error))
    if is_lost_connection(error):
        return DatabaseUnreachable(where, first_line(error))
    return error


def is_lost_connection(error: psycopg.Error) -> bool:
    """Whether the error says that the connection, and not the statement, is at fault."""
    if error.sqlstate is None:
        return isinstance(error, psycopg.OperationalError)
    return error.sqlstate.startswith(("08", "57P"))


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, or its name if it has none."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


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
