"""Several frames are evaluated one by one, and what they have in common only once.

Spark evaluates each frame anew. A function whose result differs from one evaluation to the next
would put a row into several of its outputs, or into none. So the largest plans that two frames
share are persisted until all frames are evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame


@contextmanager
def evaluated_once(frames: Sequence[DataFrame]) -> Iterator[list[DataFrame]]:
    """Lend the same frames, with the plans that they share persisted."""
    if len(frames) < 2:
        yield list(frames)
        return
    parts = [_persisted(frames[0], plan) for plan in _common_plans(frames)]
    try:
        # a frame that was planned before would not use what is persisted now
        yield [frame.select("*") for frame in frames]
    finally:
        for part in parts:
            part.unpersist()


def _common_plans(frames: Sequence[DataFrame]) -> list[Any]:
    """Return the largest plans that are part of more than one frame."""
    roots = [frame._jdf.queryExecution().analyzed() for frame in frames]
    nodes = [list(_nodes(root)) for root in roots]
    common: list[Any] = []
    for number, root in enumerate(roots):
        others = [one for other, found in enumerate(nodes) if other != number for one in found]
        _add_common(root, others, common)
    return common


def _add_common(plan: Any, others: Sequence[tuple[int, Any]], common: list[Any]) -> None:
    children, number = _children(plan), plan.semanticHash()
    if not children:
        return  # a relation as it is read: there is nothing to compute
    if not any(number == other and plan.sameResult(one) for other, one in others):
        for child in children:
            _add_common(child, others, common)
    elif not any(plan.sameResult(one) for one in common):
        common.append(plan)


def _nodes(plan: Any) -> Iterator[tuple[int, Any]]:
    """Yield all nodes of a plan, each with a hash that equal ones share."""
    yield int(plan.semanticHash()), plan
    for child in _children(plan):
        yield from _nodes(child)


def _children(plan: Any) -> list[Any]:
    children = plan.children()
    return [children.apply(number) for number in range(children.size())]


def _persisted(frame: DataFrame, plan: Any) -> DataFrame:
    spark = frame.sparkSession
    assert spark._jvm is not None
    datasets = spark._jvm.org.apache.spark.sql.classic.Dataset
    part = DataFrame(datasets.ofRows(spark._jsparkSession, plan), spark)
    return part.persist(StorageLevel.MEMORY_AND_DISK)
