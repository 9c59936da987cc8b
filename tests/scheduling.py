"""Which worker of xdist runs which tests.

The tests on Spark come first, and the first worker takes files from the front. The others take
them from the back, where the long tests without Spark are, and meet it among the short ones. So one
worker starts Spark, the others fill the time in which it waits, and all end together. If the first
worker crashes, the next one takes its place.

A file whose tests are in both parts, some on Spark and others not, is dealt as two.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from xdist.scheduler.load import LoadScheduling
from xdist.workermanage import WorkerController

MOST_ON_SPARK = 40  # tests of a file at once: they take long


class FromBothEnds(LoadScheduling):  # type: ignore[misc]
    """Deals whole files: to the first worker from the front, to the others from the back."""

    pending: list[int]
    collection: list[str] | None

    def schedule(self) -> None:
        if self.collection is None and self._check_nodes_have_same_collection():
            names = self.collection = next(iter(self.node2collection.values()))
            self.pending = list(range(len(names)))
        for node in self.nodes:
            self.check_schedule(node)

    def check_schedule(self, node: WorkerController, duration: float = 0) -> None:
        if node.shutting_down:
            return
        while self.pending and len(self.node2pending[node]) < 2:  # a worker runs all but its last
            self._deal(node)
        if not self.pending:
            node.shutdown()

    def _deal(self, node: WorkerController) -> None:
        names = self.collection or []
        pending = sorted(self.pending)  # those of a worker that crashed were put at the end
        if node is self.nodes[0]:
            tests = first_file(names, pending)[:MOST_ON_SPARK]
        else:
            tests = first_file(names, pending[::-1])[::-1]
        tests = tests[: max(len(pending) // 20, 1)]  # at the end, no worker is left with many
        self.pending = sorted(set(pending) - set(tests))
        self.node2pending[node].extend(tests)
        node.send_runtest_some(tests)


def first_file(names: Sequence[str], tests: Sequence[int]) -> list[int]:
    """Return the tests that are of the same file as the first, up to one of another file."""
    return list(takewhile(lambda test: _file(names[test]) == _file(names[tests[0]]), tests))


def _file(name: str) -> str:
    return name.partition("::")[0]
