"""Messages that a consumer could not handle. They are kept in a stream of their own.

`{category}:parked-{consumer_id}` holds these events. Folding them gives the messages that are still
parked:

    Parked          the message, its error and the number of attempts, written in one transaction
                    with the consumer's position, so a message is parked exactly once
    RetryRequested  an operator asked for a retry; the consumer does it when it is idle
    Handled         the retry succeeded
    Dropped         an operator dropped the message

The stream holds the whole message, so a retry works after retention has removed the original.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec

from penstock.database.operation import Operation
from penstock.errors import first_line
from penstock.log import write
from penstock.log.context import LogContext, is_whole
from penstock.loops.failure_policy import kept_error
from penstock.message import RecordedMessage, check_text


@dataclass(frozen=True, slots=True)
class ParkedMessage:
    """A message that a consumer could not handle, with its error."""

    message: RecordedMessage
    error: str
    attempts: int
    parked_at: datetime
    retry_requested: bool = False


def parked_stream(category: str, consumer_id: str) -> str:
    """Return the name of a consumer's parked stream."""
    write.check_category(category)
    check_text("consumer_id", consumer_id)
    return f"{category}:parked-{consumer_id}"


def park(
    context: LogContext,
    stream_name: str,
    message: RecordedMessage,
    error: BaseException,
    attempts: int,
) -> Operation[int]:
    """Park a message with its error."""
    return write.write_message(
        context,
        stream_name,
        "Parked",
        {
            "message": message.to_dict(),
            "error": kept_error(f"{type(error).__name__}: {first_line(error)}"),
            "attempts": attempts,
        },
    )


def mark(
    context: LogContext, stream_name: str, what: str, message: RecordedMessage
) -> Operation[int]:
    """Write the next event of a parked message: RetryRequested, Handled or Dropped."""
    return write.write_message(
        context, stream_name, what, {"global_position": message.global_position}
    )


def fold(events: Iterable[RecordedMessage]) -> dict[int, ParkedMessage]:
    """Return the messages that are still parked, by global position, in the order of parking.

    Events of any other shape are ignored.
    """
    waiting: dict[int, ParkedMessage] = {}
    for event in events:
        position = event.data.get("global_position")
        if event.type == "Parked":
            if (parked := _parked(event)) is not None:
                waiting[parked.message.global_position] = parked
        elif is_whole(position) and position in waiting:
            if event.type in ("Handled", "Dropped"):
                del waiting[position]
            elif event.type == "RetryRequested":
                waiting[position] = replace(waiting[position], retry_requested=True)
    return waiting


def _parked(event: RecordedMessage) -> ParkedMessage | None:
    try:
        message = msgspec.convert(event.data["message"], RecordedMessage)
        error, attempts = event.data["error"], event.data["attempts"]
    except (KeyError, msgspec.ValidationError):
        return None
    if not is_whole(message.global_position) or not is_whole(attempts):
        return None
    return ParkedMessage(message, error, attempts, event.time)
