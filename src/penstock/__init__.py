"""Penstock: one message log in PostgreSQL, and the data pipeline over it on Spark.

>>> import penstock
>>> store = penstock.connect()  # doctest: +SKIP
>>> store.write_message("account-123", "Opened", {"owner": "Ada"})  # doctest: +SKIP
0
"""

from penstock.connecting import connect, connect_async, install
from penstock.database.edition import Edition
from penstock.database.install import Plan
from penstock.database.transaction import IsolationLevel
from penstock.errors import (
    AuthenticationFailed,
    CategoryBusy,
    CommandTimeout,
    ConcurrencyError,
    ConditionNotActivated,
    DatabaseUnreachable,
    DecodingError,
    DuplicateMessageId,
    EmbeddedServerError,
    IncompatibleVersion,
    NotInstalled,
    PenstockError,
    PoolExhausted,
    SetupError,
    StoreClosed,
    TransactionAborted,
    TransactionClosed,
    TransactionConflict,
    TransactionTimeout,
    UnavailableError,
    UnsafeSequence,
    UnsupportedEdition,
    ValidationError,
    WatermarkRequired,
    WrongExpectedVersion,
)
from penstock.interceptor import Call, Interceptor
from penstock.message import Message, RecordedMessage, new_id
from penstock.retrying import retry
from penstock.serializer import JsonSerializer, Serializer, SerializerByType
from penstock.settings import Settings
from penstock.store import (
    AsyncBorrowedConnection,
    AsyncStore,
    AsyncTransaction,
    BorrowedConnection,
    Store,
    Transaction,
)

__version__ = "0.1.0"

__all__ = [
    "AsyncBorrowedConnection",
    "AsyncStore",
    "AsyncTransaction",
    "AuthenticationFailed",
    "BorrowedConnection",
    "Call",
    "CategoryBusy",
    "CommandTimeout",
    "ConcurrencyError",
    "ConditionNotActivated",
    "DatabaseUnreachable",
    "DecodingError",
    "DuplicateMessageId",
    "Edition",
    "EmbeddedServerError",
    "IncompatibleVersion",
    "Interceptor",
    "IsolationLevel",
    "JsonSerializer",
    "Message",
    "NotInstalled",
    "PenstockError",
    "Plan",
    "PoolExhausted",
    "RecordedMessage",
    "Serializer",
    "SerializerByType",
    "Settings",
    "SetupError",
    "Store",
    "StoreClosed",
    "Transaction",
    "TransactionAborted",
    "TransactionClosed",
    "TransactionConflict",
    "TransactionTimeout",
    "UnavailableError",
    "UnsafeSequence",
    "UnsupportedEdition",
    "ValidationError",
    "WatermarkRequired",
    "WrongExpectedVersion",
    "connect",
    "connect_async",
    "install",
    "new_id",
    "retry",
]
