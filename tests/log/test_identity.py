"""The log has an identity, and a truncated log is another incarnation of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

import penstock
from tests.operations.test_backup import dump_and_restore


def identity(url: str) -> tuple[Any, ...]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("set role penstock_reader")
        row = connection.execute("select id, incarnation from penstock.log_identity()").fetchone()
        assert row is not None
        return row


def test_each_database_has_its_own_for_good(new_database: Callable[[str], str]) -> None:
    empty, other = new_database("empty"), new_database("empty")
    penstock.install(empty)
    penstock.install(other)
    first = identity(empty)

    with psycopg.connect(empty) as connection:  # so that it is installed again
        connection.execute("drop function penstock.log_identity()")
    assert penstock.install(empty).needed

    assert identity(empty) == first
    assert not set(first) & set(identity(other))


def test_a_restored_copy_is_the_same_log(
    new_database: Callable[[str], str], tmp_path: Path
) -> None:
    source, target = new_database("penstock"), new_database("empty")

    dump_and_restore(source, target, tmp_path / "dump")

    assert identity(target) == identity(source)


@pytest.mark.parametrize("edition", ["penstock", "beside"])
def test_a_truncated_log_is_another_incarnation(
    new_database: Callable[[str], str], edition: str
) -> None:
    url = new_database(edition)
    before = identity(url)

    with psycopg.connect(url) as connection:
        connection.execute("truncate message_store.messages")

    after = identity(url)
    assert after[0] == before[0]
    assert after[1] != before[1]
