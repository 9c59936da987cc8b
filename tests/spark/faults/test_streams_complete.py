"""A streaming query, stopped and restarted at random while many write: every message once.

The writers' transactions have any length, linger, and are undone now and then, so that they commit
in another order than they began. The query copies what it reads to another database, through our
sink; what counts is what stands there in the end.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.conftest import Server
from tests.log.writers import EVERY_WAY, Connection, Writer, by_function
from tests.spark.faults.jobs import numbers_in, start_copying
from tests.spark.faults.waiting import EndedEarly, wait_until

WRITERS = 8
ENOUGH = 500  # messages to copy
INTERRUPTIONS = 1  # of a query that has copied something, with more still to copy
ENOUGH_WRITTEN = (
    "select count(*) >= %s from message_store.messages"
    " where %s in ('$all', message_store.category(stream_name))"
)


def lingering(connection: Connection, stream_name: str, ids: Sequence[UUID]) -> None:
    """Write, and hold the transaction open for a while."""
    by_function(connection, stream_name, ids)
    connection.execute("select pg_sleep(random() * 0.1)")


@contextmanager
def writing(url: str, seed: int) -> Iterator[None]:
    """Let many write meanwhile."""
    ended = threading.Event()
    ways = (*EVERY_WAY, *[lingering] * len(EVERY_WAY))
    writers = [Writer(url, number, seed, ways) for number in range(WRITERS)]
    with ThreadPoolExecutor(WRITERS) as threads:
        running = [threads.submit(one.run, ended.is_set, lambda: None) for one in writers]
        try:
            yield
        finally:
            ended.set()
    for one in running:
        one.result()


class Copy:
    """A query that copies messages to another database, run after run."""

    def __init__(self, spark: SparkSession, url: str, to: str, category: str, folder: Path) -> None:
        self._spark = spark
        self._url = url
        self._to = to
        self._category = category
        #: how many runs, and how many of them copied something and left something
        self.runs = self.interruptions = 0
        self._options: dict[str, Any] = {
            "url": url,
            "to": to,
            "source": category,
            "checkpoint": str(folder / "checkpoint"),
        }

    def run_a_while(self, chance: random.Random) -> None:
        """Run, mostly until something was copied and then some; stop, whatever it is doing."""
        before = len(numbers_in(self._to, "copy"))
        most = chance.choice([10, 300, 1_000_000])
        query = start_copying(self._spark, **self._options, maxRowsPerBatch=most)
        with unless_starved():
            if chance.random() < 0.75:
                copied = "select count(*) > %s from message_store.messages"
                wait_until(self._to, copied, (before,), query)
            query.awaitTermination(chance.uniform(0.01, 1.5))  # type: ignore[arg-type]
        query.stop()
        after = len(numbers_in(self._to, "copy"))
        self.runs += 1
        self.interruptions += before < after < len(positions_in(self._url, self._category))

    def finish(self) -> None:
        """Copy what is left."""
        ended = False
        while not ended:
            with unless_starved():
                query = start_copying(self._spark, **self._options, available_now=True)
                ended = bool(query.awaitTermination(600))


@contextmanager
def unless_starved() -> Iterator[None]:
    """Take it for one more stop if a machine that is too busy ends a query: Spark gives 10 s."""
    try:
        yield
    except (EndedEarly, StreamingQueryException) as error:
        if "Python worker failed to connect back" not in str(error):
            raise


def positions_in(url: str, category: str) -> list[int]:
    with psycopg.connect(url, autocommit=True) as connection:
        rows = connection.execute(
            "select global_position from message_store.messages"
            " where %s in ('$all', message_store.category(stream_name)) order by 1",
            (category,),
        )
        return [position for (position,) in rows]


@pytest.fixture
def databases(server: Server) -> Iterator[list[str]]:
    names = [server.create_database(server.template("penstock")) for _ in range(2)]
    yield [server.url(name) for name in names]
    for name in names:
        server.drop_database(name)


@pytest.mark.chaos
@pytest.mark.parametrize("category", ["order", "$all"])
def test_a_query_restarted_at_random_copies_every_message_once(
    spark: SparkSession,
    databases: list[str],
    category: str,
    tmp_path: Path,
    chaos_seconds: float,
    request: pytest.FixtureRequest,
) -> None:
    seed = request.config.getoption("--chaos-seed") or random.randrange(10**6)
    url, to = databases
    copy, chance = Copy(spark, url, to, category, tmp_path), random.Random(seed)

    runs = 20 if chaos_seconds >= 60 else 3
    with writing(url, seed):
        while copy.runs < runs or copy.interruptions < INTERRUPTIONS:
            copy.run_a_while(chance)
        wait_until(url, ENOUGH_WRITTEN, (ENOUGH, category))
    copy.finish()

    written = positions_in(url, category)
    assert numbers_in(to, "copy") == written, f"--chaos-seed={seed}"
    assert len(written) >= ENOUGH
