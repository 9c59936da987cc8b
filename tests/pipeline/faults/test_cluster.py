"""On a real cluster: tasks that fail, tasks that run twice, an executor lost, a worker lost."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.pipeline.faults.clusters import Cluster, executor_of, worker_of
from tests.pipeline.faults.drivers import Driver, kill_trees
from tests.pipeline.faults.gates import Gate
from tests.pipeline.faults.jobs import NUMBERS, numbers_in
from tests.pipeline.faults.waiting import wait_until_staged

SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.minTaskRuntime": "100ms",
}
ALL = list(range(NUMBERS))
MANY = 20_000  # enough for two tasks to read


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A driver whose tasks run on a cluster."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    driver = Driver(cluster.url, SETTINGS)
    driver.wait_until_ready()
    yield driver
    driver.kill()
    cluster.stop()


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
