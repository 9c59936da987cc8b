"""A driver killed outright, before and after it publishes: each delivery comes once, and whole.

The test stops the driver exactly there by holding a table: `deliveries`, which the transaction that
publishes writes to first, or `stagings`, which is cleaned up when that has committed. Each driver
runs a batch job and a streaming query; another driver does the same jobs again.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from penstock import Store
from tests.spark.faults.drivers import Driver
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
    STAGINGS,
    category_held,
    end_blocked,
    held,
    wait_until_blocked,
    wait_until_delivered,
)

BOTH = 2  # the batch job's connection, and the streaming query's


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")


@pytest.fixture
def orders(store: Store) -> list[int]:
    """The positions of some orders, to be copied."""
    return write_orders(store)


def begin(driver: Driver, url: str, checkpoint: str) -> None:
    """Give a driver both jobs, and return when both are about to publish."""
    driver.order("start_copying", url=url, checkpoint=checkpoint)
    assert driver.answer() == "done"
    driver.order("write_numbers", url=url, delivery="numbers")
    wait_until_blocked(url, BOTH)


def do_again(spark: SparkSession, url: str, checkpoint: str) -> None:
    """Do both jobs again, by another driver."""
    query = start_copying(spark, url, checkpoint, available_now=True)
    write_numbers(spark, url, delivery="numbers")
    query.awaitTermination()


def test_killed_before_it_commits_nothing_is_published_until_it_is_done_again(
    driver: Driver, spark: SparkSession, database_url: str, orders: list[int], checkpoint: str
) -> None:
    with held(database_url, DELIVERIES):
        begin(driver, database_url, checkpoint)
        driver.kill()
        end_blocked(database_url)
    meanwhile = numbers_in(database_url, "number") + numbers_in(database_url, "copy")

    do_again(spark, database_url, checkpoint)

    assert meanwhile == []
    assert numbers_in(database_url, "number") == list(range(NUMBERS))
    assert numbers_in(database_url, "copy") == orders


def test_killed_while_the_server_commits_it_races_with_who_does_it_again(
    driver: Driver,
    spark: SparkSession,
    thread: ThreadPoolExecutor,
    database_url: str,
    orders: list[int],
    checkpoint: str,
) -> None:
    with held(database_url, DELIVERIES):
        begin(driver, database_url, checkpoint)
        driver.kill()  # its connections wait on, since the server does not notice
        query = start_copying(spark, database_url, checkpoint, available_now=True)
        writing = thread.submit(write_numbers, spark, database_url, delivery="numbers")
        wait_until_blocked(database_url, 2 * BOTH, query, writing)

    writing.result()
    query.awaitTermination()

    assert numbers_in(database_url, "number") == list(range(NUMBERS))
    assert numbers_in(database_url, "copy") == orders


def test_killed_after_it_committed_nothing_is_published_again(
    driver: Driver, spark: SparkSession, database_url: str, orders: list[int], checkpoint: str
) -> None:
    with ExitStack() as held_later:
        with held(database_url, DELIVERIES):
            begin(driver, database_url, checkpoint)
            held_later.enter_context(held(database_url, STAGINGS))
        wait_until_delivered(database_url, BOTH)
        driver.kill()
    meanwhile = numbers_in(database_url, "number") + numbers_in(database_url, "copy")

    do_again(spark, database_url, checkpoint)

    assert meanwhile == [*range(NUMBERS), *orders]
    assert numbers_in(database_url, "number") == list(range(NUMBERS))
    assert numbers_in(database_url, "copy") == orders


def test_killed_between_two_slices_the_rest_comes_from_the_first_attempt(
    driver: Driver, spark: SparkSession, database_url: str
) -> None:
    with category_held(database_url, "late"):
        driver.order("write_attempt", url=database_url, attempt="First")
        wait_until_blocked(database_url, 1)
        driver.kill()
        end_blocked(database_url)
    meanwhile = numbers_in(database_url, "early"), numbers_in(database_url, "late")

    write_attempt(spark, database_url, "Second")

    assert meanwhile == (list(range(20)), [])
    assert numbers_in(database_url, "early") == list(range(20))
    assert numbers_in(database_url, "late") == list(range(20, 40))
    assert types_in(database_url, "early", "late") == {"First"}


def test_killed_in_one_transaction_nothing_of_it_is_there(
    driver: Driver, spark: SparkSession, database_url: str
) -> None:
    with category_held(database_url, "late"):
        driver.order("write_attempt", url=database_url, attempt="First", atomic=True)
        wait_until_blocked(database_url, 1)
        driver.kill()
        end_blocked(database_url)
    meanwhile = numbers_in(database_url, "early"), numbers_in(database_url, "late")

    write_attempt(spark, database_url, "Second", atomic=True)

    assert meanwhile == ([], [])
    assert types_in(database_url, "early", "late") == {"Second"}


def test_a_query_that_lost_its_connection_between_two_slices_goes_on_with_them(
    spark: SparkSession, store: Store, database_url: str, checkpoint: str
) -> None:
    orders = write_orders(store, 30)
    with category_held(database_url, "copy"):
        query = start_copying(
            spark, database_url, checkpoint, available_now=True, rows_per_transaction=4
        )
        wait_until_blocked(database_url, 1, query)
        end_blocked(database_url)
    with pytest.raises(StreamingQueryException):
        query.awaitTermination()
    with psycopg.connect(database_url) as connection:  # as an operator may
        connection.execute("select penstock.publish_slice(source) from penstock.deliveries")
    meanwhile = numbers_in(database_url, "copy")

    start_copying(
        spark, database_url, checkpoint, available_now=True, rows_per_transaction=4
    ).awaitTermination()

    assert meanwhile == orders[:4]
    assert numbers_in(database_url, "copy") == orders
