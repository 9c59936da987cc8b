"""One connection to the log, for tests that force a race by hand."""

from __future__ import annotations

from typing import Any

import psycopg

#: of the advisory locks by which writers announce themselves
ANNOUNCEMENTS = 1_885_693_285


class Client:
    """A psycopg connection, each statement its own transaction, and the few calls a race needs."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self.pid = connection.info.backend_pid

    def execute(self, statement: str, *arguments: object) -> psycopg.Cursor[Any]:
        return self.connection.execute(statement.encode(), arguments or None)

    def value(self, query: str, *arguments: object) -> Any:
        """Return the only column of the only row."""
        ((value,),) = self.execute(query, *arguments).fetchall()
        return value

    def values(self, query: str, *arguments: object) -> list[Any]:
        """Return the only column of all rows."""
        return [value for (value,) in self.execute(query, *arguments)]

    def write(self, stream_name: str = "account-1") -> Any:
        """Write a message and return its global position."""
        self.execute(
            "select message_store.write_message(gen_random_uuid()::varchar, %s, 'Opened', '{}')",
            stream_name,
        )
        return self.value("select lastval()")

    def read(self, category: str = "$all", position: int = 1) -> list[int]:
        """Return the global positions that a reader is shown."""
        return self.values(
            "select global_position from penstock.get_category_messages(%s, %s)",
            category,
            position,
        )

    def watermark(self) -> Any:
        return self.value("select penstock.watermark()")

    def watermark_after(self, position: int) -> Any:
        return self.value("select penstock.watermark_after(%s)", position)

    def head(self, category: str = "$all") -> Any:
        return self.value("select penstock.category_head(%s)", category)

    def announcements(self) -> Any:
        """Count those who have announced to write in this database."""
        return self.value(
            "select count(*) from pg_locks where classid = %s and objsubid = 2"
            " and database = (select oid from pg_database where datname = current_database())",
            ANNOUNCEMENTS,
        )

    def advisory_locks(self, pid: int) -> Any:
        """Count the locks on streams and categories that a backend holds."""
        return self.value(
            "select count(*) from pg_locks where pid = %s and locktype = 'advisory'"
            " and objsubid = 1 and granted",
            pid,
        )
