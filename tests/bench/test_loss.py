"""The loss test, with its race forced: a transaction that began first is committed last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg

from bench.loss import message_db, message_db_categories, ours, race
from bench.loss.race import CATEGORIES, Side

NewDatabase = Callable[[str], str]
WRITE = (
    "select message_store.write_message("
    "gen_random_uuid()::varchar, %s, 'Deposited', '{}', null, null)"
)


def connected(url: str) -> psycopg.Connection[Any]:
    return psycopg.connect(url, options=message_db.OPTIONS)


def missed_when_the_first_commits_last(side: Side, url: str) -> int:
    """Write to two categories in two transactions, look in between, and count what was missed."""
    pages = side.tail(url)
    seen = set(next(pages))
    with connected(url) as first, connected(url) as second:
        first.execute(WRITE, (f"{CATEGORIES[0]}-1",))
        second.execute(WRITE, (f"{CATEGORIES[1]}-1",))
        second.commit()
        seen |= set(next(pages))
        first.commit()
    seen |= set(next(pages))
    return len(side.everything(url) - seen)


def test_a_reader_of_all_of_penstock_misses_nothing(new_database: NewDatabase) -> None:
    assert missed_when_the_first_commits_last(ours, new_database("penstock")) == 0


def test_a_reader_of_message_dbs_whole_log_misses_the_late_one(new_database: NewDatabase) -> None:
    assert missed_when_the_first_commits_last(message_db, new_database("genuine")) == 1


def test_a_reader_of_message_dbs_categories_misses_nothing(new_database: NewDatabase) -> None:
    assert missed_when_the_first_commits_last(message_db_categories, new_database("genuine")) == 0


def test_many_writers_and_two_readers_on_penstock_miss_nothing(database_url: str) -> None:
    raced = race.race("ours", database_url, seconds=0.3)

    assert raced.written >= race.WRITERS
    assert raced.missed == [0, 0]
