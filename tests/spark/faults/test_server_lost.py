"""PostgreSQL stopped or crashed between staging and publishing: a write comes whole, or not at all.

Staging is unlogged: a clean stop keeps it, a crash empties it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

import penstock
from penstock.errors import StagingLost
from tests.servers import OwnServer, own_server
from tests.spark.faults.gates import Gate
from tests.spark.faults.jobs import (
    NUMBERS,
    numbers_in,
    start_copying,
    types_in,
    write_attempt,
    write_numbers,
    write_orders,
)
from tests.spark.faults.waiting import (
    DELIVERIES,
    category_held,
    held,
    wait_until_blocked,
    wait_until_staged,
)
from tests.spark.writing import MESSAGE, Writer


@pytest.fixture
def machine() -> Iterator[OwnServer]:
    with own_server() as machine:
        yield machine


class TestWithoutSpark:
    """What a crash of the server takes, and what it leaves."""

    ROWS = tuple((f"a-{number}", "T", f'{{"n": {number}}}') for number in range(25))

    def test_what_was_staged_is_gone_and_nothing_is_published(self, machine: OwnServer) -> None:
        with psycopg.connect(machine.url, autocommit=True) as connection:
            staged = Writer(connection).stage(MESSAGE, *self.ROWS)

        machine.crash()

        with psycopg.connect(machine.url, autocommit=True) as connection:
            with pytest.raises(StagingLost):
                Writer(connection).publish(staged, source="job")
            assert numbers_in(machine.url, "a") == []
            again = Writer(connection).stage(MESSAGE, *self.ROWS)
            Writer(connection).publish(again, source="job")
        assert numbers_in(machine.url, "a") == list(range(25))

    def test_slices_that_are_not_published_yet_are_still_there(self, machine: OwnServer) -> None:
        with psycopg.connect(machine.url, autocommit=True) as connection:
            staged = Writer(connection).stage(MESSAGE, *self.ROWS)
            connection.execute(
                "select penstock.publish_delivery('job', 0, %s, %s, false, 10, false)",
                ([staged.token], [staged.count]),
            )
            connection.execute("select penstock.publish_slice('job')")

        machine.crash()

        meanwhile = numbers_in(machine.url, "a")
        with psycopg.connect(machine.url, autocommit=True) as connection:
            Writer(connection).publish(source="job", rows_per_transaction=10)
        assert meanwhile == list(range(10))
        assert numbers_in(machine.url, "a") == list(range(25))


def stage_half(
    spark: SparkSession, machine: OwnServer, gate: Gate, thread: ThreadPoolExecutor
) -> Future[None]:
    """Begin a write, and return when one task of two has staged its rows and is done."""
    writing = thread.submit(
        write_numbers, spark, machine.url, delivery="numbers", gate=(gate.url, gate.key)
    )
    gate.wait_for(1, writing)
    wait_until_staged(machine.url, 1, writing)
    return writing


def test_a_clean_stop_between_staging_and_commit_does_no_harm(
    spark: SparkSession, machine: OwnServer, gate: Gate, thread: ThreadPoolExecutor
) -> None:
    writing = stage_half(spark, machine, gate, thread)

    machine.restart()
    gate.open()

    writing.result()
    assert numbers_in(machine.url, "number") == list(range(NUMBERS))


def test_after_a_crash_between_staging_and_commit_nothing_is_published_until_it_is_done_again(
    spark: SparkSession, machine: OwnServer, gate: Gate, thread: ThreadPoolExecutor
) -> None:
    writing = stage_half(spark, machine, gate, thread)

    machine.crash()
    gate.open()

    with pytest.raises(PySparkException, match="4 rows were staged and 0 are there"):
        writing.result()
    assert numbers_in(machine.url, "number") == []
    write_numbers(spark, machine.url, delivery="numbers")
    assert numbers_in(machine.url, "number") == list(range(NUMBERS))


@pytest.mark.parametrize("lose", [OwnServer.restart, OwnServer.crash], ids=["stopped", "crashed"])
def test_lost_while_it_commits_each_is_published_once_when_it_is_done_again(
    spark: SparkSession,
    machine: OwnServer,
    thread: ThreadPoolExecutor,
    tmp_path: Path,
    lose: Callable[[OwnServer], Any],
) -> None:
    with penstock.connect(machine.url) as store:
        orders = write_orders(store)
    checkpoint = str(tmp_path / "checkpoint")
    with suppress(psycopg.OperationalError), held(machine.url, DELIVERIES):
        query = start_copying(spark, machine.url, checkpoint, available_now=True)
        writing = thread.submit(write_numbers, spark, machine.url, delivery="numbers")
        wait_until_blocked(machine.url, 2, query, writing)
        lose(machine)
    with pytest.raises(PySparkException):
        writing.result()
    with pytest.raises(StreamingQueryException):
        query.awaitTermination()
    meanwhile = numbers_in(machine.url, "number") + numbers_in(machine.url, "copy")

    write_numbers(spark, machine.url, delivery="numbers")
    start_copying(spark, machine.url, checkpoint, available_now=True).awaitTermination()

    assert meanwhile == []
    assert numbers_in(machine.url, "number") == list(range(NUMBERS))
    assert numbers_in(machine.url, "copy") == orders


def test_crashed_between_two_slices_the_rest_is_still_there(
    spark: SparkSession, machine: OwnServer, thread: ThreadPoolExecutor
) -> None:
    with suppress(psycopg.OperationalError), category_held(machine.url, "late"):
        writing = thread.submit(write_attempt, spark, machine.url, "First")
        wait_until_blocked(machine.url, 1, writing)
        machine.crash()
    with pytest.raises(PySparkException):
        writing.result()
    meanwhile = numbers_in(machine.url, "early"), numbers_in(machine.url, "late")

    write_attempt(spark, machine.url, "Second")

    assert meanwhile == (list(range(20)), [])
    assert numbers_in(machine.url, "early") == list(range(20))
    assert numbers_in(machine.url, "late") == list(range(20, 40))
    assert types_in(machine.url, "early", "late") == {"First"}
