"""Penstock: transactions of a `Store`, and `$all`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import psycopg

import penstock
from bench.loss.race import PAGE, Write


@contextmanager
def writer(url: str) -> Iterator[Write]:
    """Connect, to write."""
    with penstock.connect(url, pool_max_size=1) as store:

        def write(category: str, count: int) -> None:
            stream_name = f"{category}-{uuid4()}"
            with store.transaction() as transaction:
                for number in range(count):
                    transaction.write_message(stream_name, "Deposited", {"number": number})

        yield write


def tail(url: str) -> Iterator[list[int]]:
    """Yield the positions that are new since the last look, for ever."""
    with penstock.connect(url, pool_max_size=1) as store:
        position = 1
        for _ in itertools.count():
            page = store.get_category_messages("$all", position, PAGE)
            yield [message.global_position for message in page]
            position = page[-1].global_position + 1 if page else position


def everything(url: str) -> set[int]:
    """Return all positions that hold a message."""
    with psycopg.connect(url) as connection:
        rows = connection.execute("select global_position from message_store.messages")
        return {position for (position,) in rows}
