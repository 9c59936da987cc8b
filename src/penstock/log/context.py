"""Turn messages into arguments and rows into messages, for one store or one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeGuard
from uuid import UUID

import msgspec

from penstock.database.edition import Edition
from penstock.database.interceptor import Interceptor, overrides
from penstock.database.operation import Row
from penstock.database.wake_ups import WakeUps
from penstock.errors import (
    ConditionNotActivated,
    DecodingError,
    UnsupportedEdition,
    ValidationError,
    first_line,
)
from penstock.log.state_cache import StateCache
from penstock.message import Message, RecordedMessage, check_text
from penstock.message.serializer import Serializer, encode_object
from penstock.message.typed import TypedMessage
from penstock.settings import Settings

#: id, type, data and metadata of a message, as they are sent
SentMessage = tuple[UUID, str, str, str | None]

# Each message of a page is decoded in Python, so this code is optimized: msgspec creates a UUID in
# a third of the time of UUID(text), and adding the time since an epoch to the same epoch in UTC is
# ten times as fast as datetime.replace(tzinfo=UTC).
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - as the database sends times: UTC, without a zone
_EPOCH_IN_UTC = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class LogContext:
    """What operations on the log need from their store."""

    edition: Edition
    serializer: Serializer
    settings: Settings
    interceptors: tuple[Interceptor, ...] = ()
    default_batch_size: int = 1000
    sql_condition: bool = False
    #: read before the transaction began, if it has a fixed snapshot
    watermark: int | None = None
    #: the wake-ups of the store; None if waiters poll
    wake_ups: WakeUps | None = field(default=None, compare=False)
    #: the typed message classes that this store has declared, so that they can be written. They are
    #: classes, not names: a class may be redefined with more attributes
    declared: set[type[TypedMessage]] = field(default_factory=set, compare=False)
    #: and those whose older messages are indexed, so that a read or a guard finds them. That may
    #: have to wait for older transactions
    indexed: set[type[TypedMessage]] = field(default_factory=set, compare=False)
    #: the states of the boundaries that this store decided on last
    states: StateCache = field(default_factory=StateCache, compare=False)

    def require_penstock(self, what: str) -> None:
        """Raise `UnsupportedEdition` on a genuine Message DB."""
        if not self.edition.has_watermark:
            raise UnsupportedEdition(
                f"{what}: not available on a genuine Message DB; "
                "run `penstock init` to add Penstock beside it"
            )

    @property
    def lake_options(self) -> Mapping[str, str]:
        """How to sign in to the warehouse of the archive."""
        return self.settings.lake_options

    def until(self, watermark: int | None) -> LogContext:
        """Return the context for a read that ends at this watermark, if there is one."""
        return self if watermark is None else replace(self, watermark=watermark)

    def notify(self, names: Iterable[str]) -> None:
        """Wake what waits for one of these names, after the commit of what was written."""
        if self.wake_ups is not None:
            self.wake_ups.notify(names)

    def encode(self, stream_name: str, message: Message) -> SentMessage:
        """Return the id, type, data and metadata to send."""
        for interceptor in self.interceptors:
            result: object = interceptor.on_write(stream_name, message)
            if not isinstance(result, Message):
                name = f"the result of {type(interceptor).__name__}.on_write"
                raise ValidationError(name, result, "a Message")
            message = result
        data = encode_object(self.serializer, message.type, "data", message.data or {})
        if message.metadata is None:
            return message.id, message.type, data, None
        metadata = encode_object(self.serializer, message.type, "metadata", message.metadata)
        return message.id, message.type, data, metadata

    def decode(self, rows: list[Row]) -> list[RecordedMessage]:
        """Return the messages of rows of the type `message_store.message`."""
        decode = self.serializer.decode
        messages = [_message(row, decode) for row in rows]
        for interceptor in reversed(self.interceptors):
            if overrides(interceptor, "on_read"):
                messages = [_intercept_read(interceptor, message) for message in messages]
        return messages

    def batch_size(self, batch_size: int | None) -> int:
        """Return a checked batch size: at least 1, or -1 for everything."""
        if batch_size is None:
            return self.default_batch_size
        if not is_whole(batch_size) or (batch_size < 1 and batch_size != -1):
            raise ValidationError("batch_size", batch_size, "at least 1, or -1 for everything")
        return batch_size

    def condition(self, condition: str | None) -> str | None:
        """Return the SQL condition; refuse it if conditions are not enabled."""
        if condition is not None:
            check_text("condition", condition)
            if not self.sql_condition:
                raise ConditionNotActivated(condition)
        return condition


def _message(row: Row, decode: Callable[[str, str], dict[str, Any]]) -> RecordedMessage:
    id, stream_name, type, position, global_position, data, metadata, time = row
    try:
        return RecordedMessage(
            msgspec.convert(id, UUID),
            stream_name,
            type,
            position,
            global_position,
            {} if data is None else decode(type, data),
            None if metadata is None else decode(type, metadata),
            _EPOCH_IN_UTC + (time - _EPOCH),
        )
    except Exception as error:  # any error of a serializer, or a RecursionError
        reason = first_line(error)
        raise DecodingError(stream_name, position, global_position, reason) from error


def _intercept_read(interceptor: Interceptor, message: RecordedMessage) -> RecordedMessage:
    result: object = interceptor.on_read(message)
    if not isinstance(result, RecordedMessage):
        name = f"the result of {type(interceptor).__name__}.on_read"
        raise ValidationError(name, result, "a RecordedMessage")
    return result


def is_whole(value: object) -> TypeGuard[int]:
    """Whether the value is an integer that PostgreSQL's bigint can hold."""
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def check_position(name: str, value: int, lowest: int = 0) -> int:
    """Return a checked position."""
    if not is_whole(value) or value < lowest:
        raise ValidationError(name, value, f"a whole number of {lowest} or more")
    return value
