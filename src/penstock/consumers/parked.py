"""Messages that a consumer could not handle. They are kept in a stream of their own.

`{category}:parked-{consumer_id}` holds these events. `Waiting` finds the messages that are still
parked:

    Parked          the message, its error and the number of attempts, written in one transaction
                    with the consumer's position, so a message is parked exactly once
    RetryRequested  an operator asked for a retry; the consumer does it when it is idle
    Handled         the retry succeeded
    Dropped         an operator dropped the message

The stream holds the whole message, so a retry works after retention has removed the original.
"""

from __future__ import annotations

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


class Waiting:
    """What still waits in a parked stream, by its entries from the last one backwards.

    What became of a message comes after the entry that parked it, so each entry is decided when it
    is read. Entries of any other shape are ignored.
    """

    def __init__(self) -> None:
        #: by global position, the last parked first
        self.messages: dict[int, ParkedMessage] = {}
        self._settled: set[int] = set()
        self._requested: set[int] = set()

    def add(self, entry: RecordedMessage) -> None:
        """Take the entry before those that were added."""
        position = entry.data.get("global_position")
        if entry.type == "Parked":
            self._park(_parked(entry))
        elif is_whole(position) and entry.type in ("Handled", "Dropped"):
            self._settled.add(position)
        elif is_whole(position) and entry.type == "RetryRequested":
            self._requested.add(position)

    def _park(self, one: ParkedMessage | None) -> None:
        if one is not None and (position := one.message.global_position) not in self._settled:
            requested = position in self._requested
            self.messages[position] = replace(one, retry_requested=requested)
            self._settled.add(position)  # an earlier entry was replaced by this one

    def decides(self, global_position: int) -> bool:
        """Whether the entries tell what became of a message."""
        return global_position in self._settled


def _parked(event: RecordedMessage) -> ParkedMessage | None:
    try:
        message = msgspec.convert(event.data["message"], RecordedMessage)
        error, attempts = event.data["error"], event.data["attempts"]
    except (KeyError, msgspec.ValidationError):
        return None
    if not is_whole(message.global_position) or not is_whole(attempts):
        return None
    return ParkedMessage(message, error, attempts, event.time)
