"""Messages, typed message classes, serializers and stream names. No I/O."""

from penstock.message.message import (
    Message,
    RecordedMessage,
    as_uuid,
    check_text,
    checked_message,
    new_id,
)

__all__ = ["Message", "RecordedMessage", "as_uuid", "check_text", "checked_message", "new_id"]
