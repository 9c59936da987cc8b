"""A server that has no connection to spare is asked again, since other tasks will end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from penstock.database import pool
from penstock.errors import DatabaseUnreachable
from penstock.settings import Settings
from penstock.spark.connections import connect, find_database

FULL = "FATAL:  sorry, too many clients already"
RESERVED = "FATAL:  remaining connection slots are reserved for roles with SUPERUSER"

Connection = psycopg.Connection[Any]


def refusing(reasons: list[str]) -> Callable[[Settings], Connection]:
    """Open connections to a server that refuses first, once for each of the reasons."""

    def open_connection(settings: Settings) -> Connection:
        if reasons:
            raise DatabaseUnreachable(settings.where(), reasons.pop(0))
        return pool.connect(settings)

    return open_connection


def test_a_server_that_is_full_is_asked_again(database_url: str) -> None:
    left = [FULL, RESERVED]

    with connect(find_database(database_url), open_connection=refusing(left)) as connection:
        assert connection.execute("select 1").fetchone() == (1,)
    assert left == []


@pytest.mark.parametrize(("reason", "timeout"), [(FULL, -1.0), ("no route to host", 60.0)])
def test_one_that_stays_full_or_is_not_there_is_not(
    database_url: str, reason: str, timeout: float
) -> None:
    left = [reason, reason]

    with pytest.raises(DatabaseUnreachable, match=reason):
        connect(find_database(database_url), timeout=timeout, open_connection=refusing(left))
    assert left == [reason]
