"""What can go wrong, named by what happened.

    PenstockError
    ├── ValidationError            bad input: refused before anything was sent
    ├── ConcurrencyError           somebody else was first: decide again and retry
    │   ├── WrongExpectedVersion
    │   ├── TransactionConflict    a deadlock or serialization failure, seen by PostgreSQL
    │   ├── CategoryBusy           a bulk write needs a category to itself
    │   └── ConcurrentAppendError  what a guard watches has been written to
    ├── DuplicateMessageId         the id belongs to another message
    ├── LogChanged                 restored or truncated since a reader read it
    ├── TooLarge                   a name or a message that PostgreSQL cannot hold
    ├── DecodingError              a stored message cannot be read
    │   └── UndecodableRecord      and a session stands at it: skip it on purpose
    ├── ConditionNotActivated      SQL conditions are switched off
    ├── WatermarkRequired          a snapshot is too old to read many streams from
    ├── StandbyRefused             many streams cannot be read completely on a standby
    ├── UnannouncedPosition        a global position was made by hand
    ├── TransactionClosed          the transaction has ended already
    ├── TransactionAborted         an earlier failure keeps it from committing
    ├── StoreClosed                the store was closed, or is the parent process's
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
    │   ├── JoinOfItsOwnWait
    │   ├── JoinRing
    │   ├── JoinAwaited            the join is waited for already
    │   └── PermanentFailure       raise it in a handler: do not try this message again
    ├── PipelineError
    │   ├── JavaNotFound           Spark needs Java, and there is none
    │   ├── UnsupportedBySpark     a store's serializer or interceptor cannot be applied
    │   ├── WrongColumns           a frame does not have the columns of messages
    │   ├── WrongValue             a value in a message is not of the type the schema says
    │   ├── StagingLost            a crash of the server emptied the staging: write again
    │   ├── MessagesRemoved        retention removed what a reader had not read
    │   ├── OffsetBeyondEnd        a query has read further than the log goes
    │   ├── GraphError             a pipeline is declared in a way that cannot run
    │   ├── PipelineNotFound       a file has no such pipeline
    │   ├── SparkNotRunning        a file uses Spark while it is loaded, and none runs
    │   ├── SparkLost              Spark has stopped in the middle of a run
    │   ├── RunFailed              a run has ended, and processors had to stop
    │   ├── PipelineRunning        the pipeline runs already
    │   ├── RunLockLost            another run has the lock that this one lost
    │   ├── StepFailed             a processor's function failed
    │   ├── ForeignErrorRow        an error was returned for no message of the step
    │   └── StepSuperseded         somebody else finished the step
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
    │   ├── TransactionTimeout
    │   └── LockTableFull          too many locks for PostgreSQL's settings
    └── SetupError                 this database and this client do not fit
        ├── NotInstalled
        ├── IncompatibleVersion
        ├── UnsupportedEdition     only a database that Penstock set up can do this
        ├── PreparedStatementLost  behind a pooler of transactions
        ├── UnsafeSequence         the log's sequence has a cache
        └── EmbeddedServerError

Each error carries its facts as attributes and says whether a retry may help (`retryable`). Errors
of the server that are not listed here reach the caller as psycopg raised them.
"""

from penstock.errors.base import PenstockError, ValidationError, first_line, shown
from penstock.errors.consumers import (
    ConsumerError,
    HandlerFailed,
    InvalidPosition,
    NothingToCommit,
    NothingToSkip,
    OffsetBeyondTail,
    ParkedMessageNotFound,
    PositionConflict,
    SessionClosed,
    SessionError,
    SessionFenced,
    SessionInUse,
    UnhandledMessageType,
)
from penstock.errors.database import (
    AuthenticationFailed,
    CommandTimeout,
    DatabaseUnreachable,
    EmbeddedServerError,
    IncompatibleVersion,
    LockTableFull,
    NotInstalled,
    PoolExhausted,
    PreparedStatementLost,
    SetupError,
    TransactionTimeout,
    UnavailableError,
    UnsafeSequence,
    UnsupportedEdition,
)
from penstock.errors.groups import (
    DeclarationBlocked,
    GroupError,
    GroupNotFound,
    IndexingUnfinished,
    InvalidAck,
    MessageTypeError,
    PartitionByChanged,
    StaleClaim,
    UndeclaredAttribute,
    UndeclaredType,
    UnknownMessageType,
)
from penstock.errors.log import (
    CategoryBusy,
    ConcurrencyError,
    ConcurrentAppendError,
    ConditionNotActivated,
    DecodingError,
    DuplicateMessageId,
    LogChanged,
    StandbyRefused,
    StoreClosed,
    TooLarge,
    TransactionAborted,
    TransactionClosed,
    TransactionConflict,
    UnannouncedPosition,
    UndecodableRecord,
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
    OutboxError,
    OutboxMessageNotFound,
    PermanentFailure,
    StaleLease,
)
from penstock.errors.pipeline import (
    ForeignErrorRow,
    GraphError,
    JavaNotFound,
    MessagesRemoved,
    OffsetBeyondEnd,
    PipelineError,
    PipelineNotFound,
    PipelineRunning,
    RunFailed,
    RunLockLost,
    SparkLost,
    SparkNotRunning,
    StagingLost,
    StepFailed,
    StepSuperseded,
    UnsupportedBySpark,
    WrongColumns,
    WrongValue,
)
from penstock.errors.translation import is_lost_connection, translate

__all__ = [
    "AuthenticationFailed",
    "CategoryBusy",
    "CommandTimeout",
    "ConcurrencyError",
    "ConcurrentAppendError",
    "ConditionNotActivated",
    "ConsumerError",
    "DatabaseUnreachable",
    "DeclarationBlocked",
    "DecodingError",
    "DuplicateMessageId",
    "EmbeddedServerError",
    "ForeignErrorRow",
    "GraphError",
    "GroupError",
    "GroupNotFound",
    "HandlerFailed",
    "IncompatibleVersion",
    "IndexingUnfinished",
    "InvalidAck",
    "InvalidPosition",
    "JavaNotFound",
    "JoinAwaited",
    "JoinFinished",
    "JoinFull",
    "JoinNotFound",
    "JoinOfItsOwnWait",
    "JoinRing",
    "LockTableFull",
    "LogChanged",
    "MessageTypeError",
    "MessagesRemoved",
    "NotAJoinMember",
    "NotInstalled",
    "NothingToCommit",
    "NothingToSkip",
    "OffsetBeyondEnd",
    "OffsetBeyondTail",
    "OutboxError",
    "OutboxMessageNotFound",
    "ParkedMessageNotFound",
    "PartitionByChanged",
    "PenstockError",
    "PermanentFailure",
    "PipelineError",
    "PipelineNotFound",
    "PipelineRunning",
    "PoolExhausted",
    "PositionConflict",
    "PreparedStatementLost",
    "RunFailed",
    "RunLockLost",
    "SessionClosed",
    "SessionError",
    "SessionFenced",
    "SessionInUse",
    "SetupError",
    "SparkLost",
    "SparkNotRunning",
    "StagingLost",
    "StaleClaim",
    "StaleLease",
    "StandbyRefused",
    "StepFailed",
    "StepSuperseded",
    "StoreClosed",
    "TooLarge",
    "TransactionAborted",
    "TransactionClosed",
    "TransactionConflict",
    "TransactionTimeout",
    "UnannouncedPosition",
    "UnavailableError",
    "UndeclaredAttribute",
    "UndeclaredType",
    "UndecodableRecord",
    "UnhandledMessageType",
    "UnknownMessageType",
    "UnsafeSequence",
    "UnsupportedBySpark",
    "UnsupportedEdition",
    "ValidationError",
    "WatermarkRequired",
    "WrongColumns",
    "WrongExpectedVersion",
    "WrongValue",
    "first_line",
    "is_lost_connection",
    "shown",
    "translate",
]
