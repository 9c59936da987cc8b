"""The space of messages that moved to the archive, for messages that are new.

A deleted row takes its space until the table is vacuumed. By itself PostgreSQL does that when a
fifth of the table is dead, and the table would grow meanwhile. So a run of the archive vacuums the
table as it goes: after its first batch, unless that is a small one, and then after each twentieth
of the table. In a large table the first one is quick, since for few dead rows PostgreSQL leaves the
indexes alone.

The pages of indexes that stay mostly empty are the business of `bloated_indexes`.
"""

from __future__ import annotations

from typing import Any

import psycopg

#: the share of the table's messages that move from one vacuum to the next
SHARE = 0.05
_VACUUM = "vacuum (skip_locked, truncate false) message_store.messages"
_ROWS = "select reltuples from pg_class where oid = 'message_store.messages'::regclass"


class FreedSpace:
    """Vacuums the table when enough messages have moved.

    To a role that may not, the server only sends a warning, and autovacuum does it later.
    """

    def __init__(self, connection: psycopg.Connection[Any], batch_size: int) -> None:
        self._connection = connection
        self._due_after = batch_size / 2  # of a batch, the last message of each stream stays
        self._moved = 0
        # as gentle as autovacuum is by default
        connection.execute("select set_config('vacuum_cost_delay', '2ms', false)")

    def moved(self, count: int) -> None:
        """Note that so many messages have moved, and vacuum if it is due."""
        self._moved += count
        if self._moved >= self._due_after:
            self.vacuum()

    def vacuum(self) -> None:
        """Vacuum the table now."""
        self._connection.execute(_VACUUM)
        row = self._connection.execute(_ROWS).fetchone()
        assert row is not None
        self._moved, self._due_after = 0, max(1.0, SHARE * row[0])
