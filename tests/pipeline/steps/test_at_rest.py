"""A run that follows the log and finds nothing new: what that costs the database."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import psycopg
import pytest

from penstock.pipeline import Pipeline
from tests.pipeline.steps.following import Follow
from tests.pipeline.steps.following import follow as follow  # a fixture
from tests.pipeline.steps.running import Harness, numbers_in
from tests.spark.faults.waiting import wait_until

CALLS = (
    "select coalesce(sum(calls), 0)::bigint from pg_stat_user_functions"
    " where schemaname = 'penstock' and funcname = %s"
)
LOOKED = f"select ({CALLS}) >= %s"
LOOKS = 20
ROUNDS = 30


@pytest.mark.parametrize("processors", [1, 20])
def test_processors_at_rest_ask_the_database_nothing(
    harness: Harness, database_url: str, follow: Follow, processors: int
) -> None:
    harness.execute(f"alter database {database(harness)} set track_functions = 'pl'")
    pipe = Pipeline("shop")
    pipe.schema("number")
    for number in range(processors):
        pipe.sink(inputs="number", name=f"sink_{number}")(lambda number: None)

    follow(pipe)

    with closing(psycopg.connect(database_url, autocommit=True)) as connection:
        asked = [questions_during_looks(connection, database_url)]
        while asked[-1] and len(asked) < ROUNDS:
            asked.append(questions_during_looks(connection, database_url))
    assert asked[-1] == 0, asked


def test_one_that_rests_is_woken_by_what_is_written_to_its_queue(
    harness: Harness, follow: Follow
) -> None:
    pipe, seen = Pipeline("shop"), list[Any]()
    pipe.schema("number")
    pipe.schema("word-1")
    pipe.schema("other")

    @pipe.sink(alts=["other", "word-1"])
    def words(messages: Any) -> None:
        seen.extend(numbers_in(messages))

    @pipe.sink(inputs=["number", "other"])
    def both(number: Any, other: Any) -> None:
        seen.append((numbers_in(number), numbers_in(other)))

    following = follow(pipe)
    harness.write("number", 1)
    harness.write("word-1", 2)
    wait_for_steps(harness, pipe, words=1)
    harness.write("other", 3)
    last = harness.store.category_head("other")
    for processor in ("words", "both"):
        harness.store.wait_until(processor=("shop", processor), position=last, timeout=60)
    wait_for_steps(harness, pipe, words=2, both=1)

    following.stop()
    assert sorted(seen, key=str) == [([1], [3]), 2, 3]


def questions_during_looks(connection: psycopg.Connection[Any], url: str) -> int:
    """Return how often processors asked where they stand, while the log was looked at so often."""
    asked = calls(connection, "open_processor")
    wait_until(url, LOOKED, ("watermark", calls(connection, "watermark") + LOOKS))
    return calls(connection, "open_processor") - asked


def calls(connection: psycopg.Connection[Any], function: str) -> int:
    row = connection.execute(CALLS, (function,)).fetchone()
    assert row is not None
    return int(row[0])


def wait_for_steps(harness: Harness, pipe: Pipeline, **steps: int) -> None:
    for processor, count in steps.items():
        wait_until(
            harness.store.settings.conninfo(),
            "select exists (select from penstock.latest_processor_progress(%s, %s)"
            " where steps >= %s)",
            (pipe.name, processor, count),
        )


def database(harness: Harness) -> str:
    ((name,),) = harness.rows("select quote_ident(current_database())")
    return str(name)
