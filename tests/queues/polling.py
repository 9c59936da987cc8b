"""What tests of queues and sessions share."""

from __future__ import annotations

from typing import Any

import psycopg


def retain_from(url: str, queue: Any, offset: int) -> None:
    """Remove the records below an offset, as retention does."""
    with psycopg.connect(url) as connection:
        connection.execute(
            "delete from message_store.messages where stream_name = %s and position < %s",
            (queue.stream_name, offset),
        )


def offsets(session: Any) -> list[int]:
    """Poll until there are no more records."""
    found = []
    while (record := session.poll()) is not None:
        found.append(record.offset)
    return found
