"""A server that has no connection to spare is asked again, since other tasks will end."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from penstock.database import pool
from penstock.errors import DatabaseUnreachable
from penstock.settings import Settings
from penstock.spark import connections
from penstock.spark.connections import connect, find_place

FULL = "FATAL:  sorry, too many clients already"
RESERVED = "FATAL:  remaining connection slots are reserved for roles with SUPERUSER"


def refusing(monkeypatch: pytest.MonkeyPatch, *reasons: str) -> list[str]:
    """Let a server refuse so many times, and return what is left of that."""
    left, really = list(reasons), pool.connect

    def refuse(settings: Settings) -> psycopg.Connection[Any]:
        if left:
            raise DatabaseUnreachable(settings.where(), left.pop(0))
        return really(settings)

    monkeypatch.setattr(pool, "connect", refuse)
    return left


def test_a_server_that_is_full_is_asked_again(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = refusing(monkeypatch, FULL, RESERVED)

    with connect(find_place(database_url)) as connection:
        assert connection.execute("select 1").fetchone() == (1,)
    assert left == []


@pytest.mark.parametrize(("reason", "patience"), [(FULL, -1.0), ("no route to host", 60.0)])
def test_one_that_stays_full_or_is_not_there_is_not(
    database_url: str, monkeypatch: pytest.MonkeyPatch, reason: str, patience: float
) -> None:
    monkeypatch.setattr(connections, "PATIENCE", patience)
    left = refusing(monkeypatch, reason, reason)

    with pytest.raises(DatabaseUnreachable, match=reason):
        connect(find_place(database_url))
    assert left == [reason]
