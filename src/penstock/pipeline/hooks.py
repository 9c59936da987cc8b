"""A store's serializer and interceptors, in a pipeline.

The messages of a step go from PostgreSQL to Spark as rows, and back, through Arrow. They are no
`Message` objects on the way, so no serializer and no `on_read` or `on_write` can be applied to
them: a pipeline that would need them is refused before anything runs. A projection's function gets
each message as an object, so `decode` and `on_read` apply there: on the driver, since they may not
be able to travel to an executor. `around` sees every operation of a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.database.interceptor import Interceptor, overrides
from penstock.errors import UnsupportedBySpark
from penstock.log.context import LogContext
from penstock.message import RecordedMessage
from penstock.message.serializer import JsonSerializer, Serializer
from penstock.pipeline.graph import Pipeline, Processor

_JSON = msgspec.json.Decoder()


@dataclass(frozen=True)
class ReadHooks:
    """What a store does to a message that is read."""

    #: None: the default, which needs nothing of the store
    serializer: Serializer | None = None
    interceptors: tuple[Interceptor, ...] = ()

    @property
    def need_the_driver(self) -> bool:
        """Whether they are the application's own objects, and not only JSON."""
        return self.serializer is not None or bool(self.interceptors)

    def decode(self, type: str, value: Any) -> Any:
        """Return the data or metadata of a message: from JSON text, or as Spark has typed it."""
        if not isinstance(value, str):
            return value
        return self.serializer.decode(type, value) if self.serializer else _JSON.decode(value)

    def on_read(self, message: RecordedMessage) -> RecordedMessage:
        """Return the message as the interceptors hand it to a caller."""
        for interceptor in reversed(self.interceptors):
            message = interceptor.on_read(message)
        return message


def read_hooks(context: LogContext) -> ReadHooks:
    """Return the hooks of a store that apply to a message that is read."""
    return ReadHooks(_own_serializer(context), tuple(_overriding(context, "on_read")))


def check_hooks(pipeline: Pipeline, context: LogContext) -> None:
    """Raise for the first processor whose messages would not pass a hook of the store."""
    for one in pipeline.processors.values():
        for hook in _not_applied(pipeline, one, context):
            raise UnsupportedBySpark(f"{hook} in {one.name} ({one.location})")


def _not_applied(pipeline: Pipeline, one: Processor, context: LogContext) -> Iterator[str]:
    if one.archives is not None:
        return  # rows move as they are
    is_projection = one.kind == "projection"
    declared = pipeline.schemas.get(one.inputs[0]) if is_projection else None
    # messages of a queue with a schema are decoded by PostgreSQL, not from JSON text
    is_typed = declared is not None and bool(declared.data or declared.metadata)
    serializer = _own_serializer(context)
    if serializer is not None and (is_typed or not is_projection):
        yield f"serializer {type(serializer).__name__}"
    if one.reads and not is_projection:
        for interceptor in _overriding(context, "on_read"):
            yield f"interceptor {type(interceptor).__name__}.on_read"
    if one.publishes:
        for interceptor in _overriding(context, "on_write"):
            yield f"interceptor {type(interceptor).__name__}.on_write"


def _own_serializer(context: LogContext) -> Serializer | None:
    return None if type(context.serializer) is JsonSerializer else context.serializer


def _overriding(context: LogContext, hook: str) -> list[Interceptor]:
    return [one for one in context.interceptors if overrides(one, hook)]
