"""Penstock: one message log in PostgreSQL, and the data pipeline over it on Spark.

>>> import penstock
>>> store = penstock.connect()  # doctest: +SKIP
>>> store.write_message("account-123", "Opened", {"owner": "Ada"})  # doctest: +SKIP
0
"""

from penstock.consumers.consumer import Consumer
from penstock.consumers.consumer_async import AsyncConsumer
from penstock.consumers.handlers import handles
from penstock.database.edition import Edition
from penstock.database.install import Plan, install
from penstock.database.interceptor import Call, Interceptor
from penstock.database.isolation import IsolationLevel
from penstock.errors import (
    ConcurrencyError,
    ConcurrentAppendError,
    PenstockError,
    UnavailableError,
    WrongExpectedVersion,
)
from penstock.groups.claims import Claim
from penstock.groups.groups import Groups
from penstock.groups.groups_async import AsyncGroups
from penstock.groups.worker import Worker
from penstock.groups.worker_async import AsyncWorker
from penstock.log.append import Appended
from penstock.log.decider import Decider
from penstock.log.guard import Guard
from penstock.loops.failure_policy import FailurePolicy
from penstock.loops.retry import retry
from penstock.message import Message, RecordedMessage, new_id
from penstock.message.conditions import QueryCondition
from penstock.message.serializer import JsonSerializer, Serializer, SerializerByType
from penstock.message.typed import TypedMessage, class_of, typed
from penstock.outbox.dispatcher import Dispatcher
from penstock.outbox.dispatcher_async import AsyncDispatcher
from penstock.outbox.join_operations import Join, JoinMember
from penstock.outbox.joins import Joins
from penstock.outbox.joins_async import AsyncJoins
from penstock.outbox.messages import (
    ClaimedMessage,
    JoinId,
    NewMessage,
    OutboxMessage,
    OutboxMessageId,
    TopicState,
    UndecodablePayload,
)
from penstock.outbox.outbox import Outbox
from penstock.outbox.outbox_async import AsyncOutbox
from penstock.outbox.provider import MappedStores, StoreProvider
from penstock.queues.queue import Queue
from penstock.queues.queue_async import AsyncQueue
from penstock.queues.record import ConsumedRecord, Record
from penstock.queues.session import ConsumerSession
from penstock.queues.session_async import AsyncConsumerSession
from penstock.queues.session_state import CommitMode
from penstock.settings import Settings
from penstock.store import Store, connect
from penstock.store_async import AsyncStore, connect_async
from penstock.transaction import BorrowedConnection, Transaction
from penstock.transaction_async import AsyncBorrowedConnection, AsyncTransaction

__version__ = "0.2.0"

__all__ = [
    "Appended",
    "AsyncBorrowedConnection",
    "AsyncConsumer",
    "AsyncConsumerSession",
    "AsyncDispatcher",
    "AsyncGroups",
    "AsyncJoins",
    "AsyncOutbox",
    "AsyncQueue",
    "AsyncStore",
    "AsyncTransaction",
    "AsyncWorker",
    "BorrowedConnection",
    "Call",
    "Claim",
    "ClaimedMessage",
    "CommitMode",
    "ConcurrencyError",
    "ConcurrentAppendError",
    "ConsumedRecord",
    "Consumer",
    "ConsumerSession",
    "Decider",
    "Dispatcher",
    "Edition",
    "FailurePolicy",
    "Groups",
    "Guard",
    "Interceptor",
    "IsolationLevel",
    "Join",
    "JoinId",
    "JoinMember",
    "Joins",
    "JsonSerializer",
    "MappedStores",
    "Message",
    "NewMessage",
    "Outbox",
    "OutboxMessage",
    "OutboxMessageId",
    "PenstockError",
    "Plan",
    "QueryCondition",
    "Queue",
    "Record",
    "RecordedMessage",
    "Serializer",
    "SerializerByType",
    "Settings",
    "Store",
    "StoreProvider",
    "TopicState",
    "Transaction",
    "TypedMessage",
    "UnavailableError",
    "UndecodablePayload",
    "Worker",
    "WrongExpectedVersion",
    "class_of",
    "connect",
    "connect_async",
    "handles",
    "install",
    "new_id",
    "retry",
    "typed",
]
