"""Penstock: one message log in PostgreSQL, and the data pipeline over it on Spark.

>>> import penstock
>>> store = penstock.connect()  # doctest: +SKIP
>>> store.write_message("account-123", "Opened", {"owner": "Ada"})  # doctest: +SKIP
0
"""

from penstock.async_store import AsyncBorrowedConnection, AsyncStore, AsyncTransaction
from penstock.connecting import connect, connect_async, install
from penstock.consumers.awaiting import AsyncConsumer
from penstock.consumers.blocking import Consumer
from penstock.consumers.claims import Claim
from penstock.consumers.decider import Decider
from penstock.consumers.groups import GroupStatus, ParkedPartition
from penstock.consumers.handlers import handles
from penstock.consumers.health import HealthFigure
from penstock.consumers.overview import ConsumerStatus
from penstock.consumers.parked import ParkedMessage
from penstock.consumers.queue import Queue
from penstock.consumers.queue_awaiting import AsyncQueue
from penstock.consumers.record import ConsumedRecord, Record
from penstock.consumers.retention import Retained
from penstock.consumers.session import ConsumerSession
from penstock.consumers.session_awaiting import AsyncConsumerSession
from penstock.consumers.session_state import CommitMode
from penstock.consumers.worker import Worker
from penstock.database.edition import Edition
from penstock.database.install import Plan
from penstock.database.transaction import IsolationLevel
from penstock.errors import (
    AuthenticationFailed,
    CategoryBusy,
    CommandTimeout,
    ConcurrencyError,
    ConcurrentAppendError,
    ConditionNotActivated,
    ConsumerError,
    DatabaseUnreachable,
    DeclarationBlocked,
    DecodingError,
    DuplicateMessageId,
    EmbeddedServerError,
    GraphError,
    GroupError,
    GroupNotFound,
    HandlerFailed,
    IncompatibleVersion,
    IndexingUnfinished,
    InvalidAck,
    InvalidPosition,
    JavaNotFound,
    JoinAwaited,
    JoinFinished,
    JoinFull,
    JoinNotFound,
    JoinOfItsOwnWait,
    MessagesRemoved,
    MessageTypeError,
    NotAJoinMember,
    NothingToCommit,
    NothingToSkip,
    NotInstalled,
    OffsetBeyondTail,
    OutboxError,
    OutboxMessageNotFound,
    ParkedMessageNotFound,
    PartitionByChanged,
    PenstockError,
    PermanentFailure,
    PipelineError,
    PipelineNotFound,
    PipelineRunning,
    PoolExhausted,
    PositionConflict,
    PreparedStatementLost,
    SessionClosed,
    SessionError,
    SessionFenced,
    SessionInUse,
    SetupError,
    StagingLost,
    StaleClaim,
    StaleLease,
    StandbyRefused,
    StepFailed,
    StepSuperseded,
    StoreClosed,
    TransactionAborted,
    TransactionClosed,
    TransactionConflict,
    TransactionTimeout,
    UnannouncedPosition,
    UnavailableError,
    UndeclaredAttribute,
    UndeclaredType,
    UndecodableRecord,
    UnhandledMessageType,
    UnknownMessageType,
    UnsafeSequence,
    UnsupportedEdition,
    ValidationError,
    WatermarkRequired,
    WrongColumns,
    WrongExpectedVersion,
    WrongValue,
)
from penstock.failure import FailurePolicy
from penstock.guard import Guard, QueryCondition
from penstock.interceptor import Call, Interceptor
from penstock.log.append import Appended
from penstock.log.overview import CategorySummary, OpenWriter, Status, StreamSummary
from penstock.message import Message, RecordedMessage, new_id
from penstock.outbox.awaiting import AsyncJoins, AsyncOutbox
from penstock.outbox.blocking import Joins, Outbox
from penstock.outbox.dispatcher import Dispatcher
from penstock.outbox.joins import Join, JoinMember
from penstock.outbox.messages import (
    ClaimedMessage,
    JoinId,
    NewMessage,
    OutboxMessage,
    OutboxMessageId,
    TopicState,
)
from penstock.outbox.provider import MappedStores, StoreProvider
from penstock.retrying import retry
from penstock.serializer import JsonSerializer, Serializer, SerializerByType
from penstock.settings import Settings
from penstock.store import BorrowedConnection, Store, Transaction
from penstock.typed import TypedMessage, class_of, typed

__version__ = "0.1.0"

__all__ = [
    "Appended",
    "AsyncBorrowedConnection",
    "AsyncConsumer",
    "AsyncConsumerSession",
    "AsyncJoins",
    "AsyncOutbox",
    "AsyncQueue",
    "AsyncStore",
    "AsyncTransaction",
    "AuthenticationFailed",
    "BorrowedConnection",
    "Call",
    "CategoryBusy",
    "CategorySummary",
    "Claim",
    "ClaimedMessage",
    "CommandTimeout",
    "CommitMode",
    "ConcurrencyError",
    "ConcurrentAppendError",
    "ConditionNotActivated",
    "ConsumedRecord",
    "Consumer",
    "ConsumerError",
    "ConsumerSession",
    "ConsumerStatus",
    "DatabaseUnreachable",
    "Decider",
    "DeclarationBlocked",
    "DecodingError",
    "Dispatcher",
    "DuplicateMessageId",
    "Edition",
    "EmbeddedServerError",
    "FailurePolicy",
    "GraphError",
    "GroupError",
    "GroupNotFound",
    "GroupStatus",
    "Guard",
    "HandlerFailed",
    "HealthFigure",
    "IncompatibleVersion",
    "IndexingUnfinished",
    "Interceptor",
    "InvalidAck",
    "InvalidPosition",
    "IsolationLevel",
    "JavaNotFound",
    "Join",
    "JoinAwaited",
    "JoinFinished",
    "JoinFull",
    "JoinId",
    "JoinMember",
    "JoinNotFound",
    "JoinOfItsOwnWait",
    "Joins",
    "JsonSerializer",
    "MappedStores",
    "Message",
    "MessageTypeError",
    "MessagesRemoved",
    "NewMessage",
    "NotAJoinMember",
    "NotInstalled",
    "NothingToCommit",
    "NothingToSkip",
    "OffsetBeyondTail",
    "OpenWriter",
    "Outbox",
    "OutboxError",
    "OutboxMessage",
    "OutboxMessageId",
    "OutboxMessageNotFound",
    "ParkedMessage",
    "ParkedMessageNotFound",
    "ParkedPartition",
    "PartitionByChanged",
    "PenstockError",
    "PermanentFailure",
    "PipelineError",
    "PipelineNotFound",
    "PipelineRunning",
    "Plan",
    "PoolExhausted",
    "PositionConflict",
    "PreparedStatementLost",
    "QueryCondition",
    "Queue",
    "Record",
    "RecordedMessage",
    "Retained",
    "Serializer",
    "SerializerByType",
    "SessionClosed",
    "SessionError",
    "SessionFenced",
    "SessionInUse",
    "Settings",
    "SetupError",
    "StagingLost",
    "StaleClaim",
    "StaleLease",
    "StandbyRefused",
    "Status",
    "StepFailed",
    "StepSuperseded",
    "Store",
    "StoreClosed",
    "StoreProvider",
    "StreamSummary",
    "TopicState",
    "Transaction",
    "TransactionAborted",
    "TransactionClosed",
    "TransactionConflict",
    "TransactionTimeout",
    "TypedMessage",
    "UnannouncedPosition",
    "UnavailableError",
    "UndeclaredAttribute",
    "UndeclaredType",
    "UndecodableRecord",
    "UnhandledMessageType",
    "UnknownMessageType",
    "UnsafeSequence",
    "UnsupportedEdition",
    "ValidationError",
    "WatermarkRequired",
    "Worker",
    "WrongColumns",
    "WrongExpectedVersion",
    "WrongValue",
    "class_of",
    "connect",
    "connect_async",
    "handles",
    "install",
    "new_id",
    "retry",
    "typed",
]
