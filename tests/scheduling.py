"""Which worker of xdist runs which tests.

The tests on Spark come first, and the first worker takes files from the front. The others take
them from the back, where the long tests without Spark are, and meet it among the short ones. So one
worker starts Spark, the others fill the time in which it waits, and all end together.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdist.scheduler.load import LoadScheduling
from xdist.workermanage import WorkerController

MOST_AT_ONCE = 40  # tests of one file; at the end fewer, so that no worker is left with many


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
        end = 0 if node.gateway.id == "gw0" else -1
        tests = tests_of_file(names, self.pending, _file(names[self.pending[end]]))
        self.pending = [test for test in self.pending if test not in tests]
        self.node2pending[node].extend(tests)
        node.send_runtest_some(tests)


def tests_of_file(names: Sequence[str], pending: Sequence[int], file: str) -> list[int]:
    """Return the first pending tests of a file: they stay in their order, whoever runs them."""
    most = min(max(len(pending) // 20, 1), MOST_AT_ONCE)
    return [test for test in pending if _file(names[test]) == file][:most]


def _file(name: str) -> str:
    return name.partition("::")[0]
