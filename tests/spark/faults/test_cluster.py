"""On a real cluster: tasks that fail, tasks that run twice, an executor lost, a worker lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest
from pyspark.sql import SparkSession

from tests.spark.faults.clusters import Cluster, executor_of, worker_of
from tests.spark.faults.drivers import Driver, kill_trees
from tests.spark.faults.gates import Gate
from tests.spark.faults.jobs import NUMBERS, numbers_in, run_pipeline
from tests.spark.faults.waiting import wait_until_staged

SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.python.daemon.module": "tests.spark.preloaded_daemon",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.minTaskRuntime": "100ms",
}
ALL = list(range(NUMBERS))
MANY = 20_001  # enough for two tasks to read, and for a pipeline to let them


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.stop()


@pytest.fixture(scope="module")
def cluster_driver(cluster: Cluster) -> Iterator[Driver]:
    driver = Driver(cluster.url, SETTINGS)
    driver.wait_until_ready()
    yield driver
    driver.kill()


@pytest.fixture
def driver(cluster: Cluster, cluster_driver: Driver) -> Driver:
    """A driver whose tasks run on a cluster that has all its workers."""
    cluster.replace_lost_workers()
    return cluster_driver


def test_a_task_that_fails_is_tried_again_and_counts_once(
    driver: Driver, database_url: str
) -> None:
    driver.order("write_numbers", url=database_url, fails=True)

    assert driver.answer() == "done"
    assert numbers_in(database_url, "number") == ALL


def test_a_task_that_runs_twice_at_once_counts_once(
    driver: Driver, database_url: str, gate: Gate
) -> None:
    driver.order("write_numbers", url=database_url, gate=(gate.url, gate.key))

    gate.wait_for(2)
    gate.open()

    assert driver.answer() == "done"
    assert numbers_in(database_url, "number") == ALL


def test_what_a_killed_executor_had_in_hand_is_done_elsewhere(
    driver: Driver, database_url: str, gate: Gate
) -> None:
    driver.order("write_numbers", url=database_url, partitions=4, gate=(gate.url, gate.key))
    wait_until_staged(database_url, 3)

    executor_of(gate.wait_for()[0]).kill()
    gate.open()

    assert driver.answer() == "done"
    assert numbers_in(database_url, "number") == ALL


def test_a_worker_lost_in_the_middle_of_reading_and_writing_does_no_harm(
    driver: Driver, database_url: str, gate: Gate
) -> None:
    orders = write_many(database_url)
    job = {"source": "order", "target": "copy", "gate": (gate.url, gate.key)}
    driver.order("copy_messages", url=database_url, **job)
    wait_until_staged(database_url, 1)

    kill_trees([worker_of(gate.wait_for()[0])])
    gate.open()

    assert driver.answer() == "done"
    assert numbers_in(database_url, "copy") == orders


def test_a_pipeline_that_loses_a_worker_comes_to_what_it_does_on_one_machine(
    driver: Driver, spark: SparkSession, new_database: Callable[[str], str], gate: Gate
) -> None:
    here, there = new_database("penstock"), new_database("penstock")
    orders = write_many(here)
    assert write_many(there) == orders

    driver.order("run_pipeline", url=there, gate=(gate.url, gate.key))
    kill_trees([worker_of(gate.wait_for()[0])])
    gate.open()
    answer = driver.answer()
    run_pipeline(spark, here)

    assert answer == "done"
    assert numbers_in(there, "bill") == numbers_in(here, "bill") == orders
    assert totals_in(there) == totals_in(here)
    assert sum(total for _, total in totals_in(here)) == sum(orders)


def totals_in(url: str) -> list[tuple[int, int]]:
    with psycopg.connect(url, autocommit=True) as connection:
        rows = connection.execute("select digit, n from totals order by digit")
        return [(digit, int(total)) for digit, total in rows]


def write_many(url: str) -> list[int]:
    """Write enough orders for several tasks, and return their global positions."""
    with psycopg.connect(url, autocommit=True) as connection:
        rows = connection.execute(
            "insert into message_store.messages (stream_name, type, position, data)"
            " select 'order-' || n, 'Placed', 0, '{}' from generate_series(1, %s) n"
            " returning global_position",
            (MANY,),
        )
        return sorted(position for (position,) in rows)
