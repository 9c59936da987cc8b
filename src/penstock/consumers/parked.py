"""Messages that a consumer could not handle, set aside in a stream of their own.

`{category}:parked-{consumer_id}` tells the story of each such message, and folding it gives those
that still wait:

    Parked          the message, its error and the number of attempts, written in one transaction
                    with the consumer's position, so it is parked exactly once
    RetryRequested  an operator wants it handled again; the consumer does so when it is idle
    Handled         the retry succeeded
    Dropped         an operator gave it up

The whole message is in the stream, so a retry works after retention has removed the original.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from penstock.database.operation import Operation
from penstock.errors import first_line
from penstock.log import write
from penstock.log.context import LogContext, is_whole
from penstock.loops.failure_policy import kept_error
from penstock.message import RecordedMessage, check_text


@dataclass(frozen=True, slots=True)
class ParkedMessage:
    """A message that waits in a consumer's parked stream."""

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
    """Set a message aside, with its error."""
    return write.write_message(
        context,
        stream_name,
        "Parked",
        {
            "message": _as_data(message),
            "error": kept_error(f"{type(error).__name__}: {first_line(error)}"),
            "attempts": attempts,
        },
    )


def mark(
    context: LogContext, stream_name: str, what: str, message: RecordedMessage
) -> Operation[int]:
    """Write the next event of a parked message's story: RetryRequested, Handled or Dropped."""
    return write.write_message(
        context, stream_name, what, {"global_position": message.global_position}
    )


def fold(story: Iterable[RecordedMessage]) -> dict[int, ParkedMessage]:
    """Return the messages that still wait, by global position, in the order they were parked.

    What somebody else wrote to the stream, and tells of no parked message, is passed over.
    """
    waiting: dict[int, ParkedMessage] = {}
    for event in story:
        if event.type == "Parked":
            if (parked := _parked(event)) is not None:
                waiting[parked.message.global_position] = parked
            continue
        position = event.data.get("global_position")
        if not is_whole(position):
            continue
        if event.type in ("Handled", "Dropped"):
            waiting.pop(position, None)
        elif event.type == "RetryRequested" and position in waiting:
            waiting[position] = _requested(waiting[position])
    return waiting


def next_position(story: Sequence[RecordedMessage]) -> int:
    """Return where to read on in the stream, whose beginning retention may have removed."""
    return story[-1].position + 1 if story else 0


def _requested(parked: ParkedMessage) -> ParkedMessage:
    return ParkedMessage(parked.message, parked.error, parked.attempts, parked.parked_at, True)


def _as_data(message: RecordedMessage) -> dict[str, Any]:
    return {
        "id": str(message.id),
        "stream_name": message.stream_name,
        "type": message.type,
        "position": message.position,
        "global_position": message.global_position,
        "data": message.data,
        "metadata": message.metadata,
        "time": message.time.isoformat(),
    }


def _parked(event: RecordedMessage) -> ParkedMessage | None:
    try:
        fields = event.data["message"]
        message = RecordedMessage(
            UUID(fields["id"]),
            fields["stream_name"],
            fields["type"],
            fields["position"],
            fields["global_position"],
            fields["data"],
            fields["metadata"],
            datetime.fromisoformat(fields["time"]),
        )
        error, attempts = event.data["error"], event.data["attempts"]
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    if not is_whole(message.global_position) or not is_whole(attempts):
        return None
    return ParkedMessage(message, error, attempts, event.time)
