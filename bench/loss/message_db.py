"""The genuine Message DB: `write_message` in transactions, and the log by global position.

Message DB has no function that reads the whole log; whoever does it selects from its table.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import psycopg

from bench.loss.race import PAGE, Write

#: Message DB's functions look for each other there
OPTIONS = "-c search_path=message_store,public"
_WRITE = "select message_store.write_message(%s, %s, 'Deposited', '{}', null, null)"
_READ = """
select global_position from message_store.messages
where global_position > %s order by global_position limit %s
"""


@contextmanager
def writer(url: str) -> Iterator[Write]:
    """Connect, to write."""
    with psycopg.connect(url, options=OPTIONS) as connection:

        def write(category: str, count: int) -> None:
            stream_name = f"{category}-{uuid4()}"
            with connection.transaction():
                for _ in range(count):
                    connection.execute(_WRITE, (str(uuid4()), stream_name))

        yield write


def tail(url: str) -> Iterator[list[int]]:
    """Yield the positions that are new since the last look, for ever."""
    with psycopg.connect(url, autocommit=True, options=OPTIONS) as connection:
        last = 0
        while True:
            page = [row[0] for row in connection.execute(_READ, (last, PAGE))]
            yield page
            last = page[-1] if page else last


def everything(url: str) -> set[int]:
    """Return all positions that hold a message."""
    with psycopg.connect(url) as connection:
        rows = connection.execute("select global_position from message_store.messages")
        return {position for (position,) in rows}
