"""Messages: written and read ones, typed classes, names of streams, serializers. Does no I/O."""

from penstock.message.message import (
    Message,
    RecordedMessage,
    as_uuid,
    check_text,
    checked_message,
    new_id,
)

__all__ = ["Message", "RecordedMessage", "as_uuid", "check_text", "checked_message", "new_id"]
