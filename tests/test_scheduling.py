"""The first worker that lives takes tests from the front, where Spark is; others from the back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.scheduling import FromBothEnds

#: in the order in which they are collected: those on Spark first, of which file f has some, too
TESTS = [f"tests/test_{file}.py::test_{n}" for file in "abcfdef" for n in range(40)]


class Worker:
    """What the scheduler sees of a worker of xdist."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.shutting_down = False
        self.dealt: list[int] = []

    def send_runtest_some(self, tests: list[int]) -> None:
        self.dealt += tests

    def shutdown(self) -> None:
        self.shutting_down = True

    @property
    def files(self) -> list[str]:
        return sorted({TESTS[test].partition("::")[0][len("tests/test_")] for test in self.dealt})


@pytest.fixture
def workers() -> list[Worker]:
    return [Worker("gw0"), Worker("gw1"), Worker("gw2")]


@pytest.fixture
def scheduler(workers: list[Worker]) -> FromBothEnds:
    options: Any = SimpleNamespace(
        getvalue=lambda name: ["popen"] * len(workers), getoption=lambda name: None
    )
    scheduler = FromBothEnds(options)
    for worker in workers:
        scheduler.add_node(worker)
    for worker in workers:
        scheduler.add_node_collection(worker, TESTS)
    scheduler.schedule()
    return scheduler


def finish(scheduler: FromBothEnds, worker: Worker) -> None:
    """Let a worker run all that it has been dealt."""
    for test in list(scheduler.node2pending[worker]):
        scheduler.mark_test_complete(worker, test)


def test_the_first_worker_takes_files_from_the_front_and_the_others_from_the_back(
    scheduler: FromBothEnds, workers: list[Worker]
) -> None:
    assert [worker.files for worker in workers] == [["a"], ["f"], ["f"]]


def test_the_tests_of_a_file_that_start_spark_stay_in_front(
    scheduler: FromBothEnds, workers: list[Worker]
) -> None:
    _, second, third = workers
    for _ in range(3):
        finish(scheduler, second)
        finish(scheduler, third)

    assert second.files == third.files == ["e", "f"]
    assert min(second.dealt + third.dealt) >= 4 * 40


def test_the_next_worker_goes_on_from_the_front_when_the_first_one_crashed(
    scheduler: FromBothEnds, workers: list[Worker]
) -> None:
    _, second, third = workers

    crashed = scheduler.remove_node(workers[0])
    new = Worker("gw3")
    scheduler.add_node(new)
    scheduler.add_node_collection(new, TESTS)
    scheduler.schedule()
    finish(scheduler, second)

    assert crashed == TESTS[0]
    assert second.files == ["a", "f"]
    assert "a" not in third.files + new.files
    assert 1 in second.dealt  # the first one had taken it, and did not come to it
