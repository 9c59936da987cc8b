"""The genuine Message DB, read as it is meant to be: a category at a time, with its own function.

Its writers lock the category, so that positions within a category are committed in order.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg

from bench.loss.message_db import OPTIONS, everything, writer
from bench.loss.race import CATEGORIES, PAGE

__all__ = ["everything", "tail", "writer"]

_READ = "select global_position from message_store.get_category_messages(%s, %s, %s)"


def tail(url: str) -> Iterator[list[int]]:
    """Yield the positions that are new since the last look, for ever."""
    with psycopg.connect(url, autocommit=True, options=OPTIONS) as connection:
        next_positions = dict.fromkeys(CATEGORIES, 1)
        while True:
            found: list[int] = []
            for category, position in next_positions.items():
                page = [row[0] for row in connection.execute(_READ, (category, position, PAGE))]
                next_positions[category] = page[-1] + 1 if page else position
                found += page
            yield found
