"""All parts of a run, by the name that `python -m bench NAME` takes, in the order they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bench.comparisons import (
    archive,
    category_read,
    claims,
    coalescing,
    console,
    consumer,
    decisions,
    growth,
    guarded_append,
    lake,
    loss,
    outbox,
    pipeline,
    spark,
    waking,
    write_message,
    write_messages,
)
from bench.measuring import Effort
from bench.results import Comparison
from bench.server import Server

#: yields each comparison as soon as it is measured, so that a failure loses none of them
Compare = Callable[[Server, Effort], Iterator[Comparison]]

COMPARISONS: dict[str, Compare] = {
    "write-message": write_message.compare,
    "write-messages": write_messages.compare,
    "category-read": category_read.compare,
    "consumer": consumer.compare,
    "growth": growth.compare,
    "decisions": decisions.compare,
    "guarded-append": guarded_append.compare,
    "coalescing": coalescing.compare,
    "claims": claims.compare,
    "outbox": outbox.compare,
    "archive": archive.compare,
    "waking": waking.compare,
    "console": console.compare,
    "loss": loss.compare,
    "spark": spark.compare,
    "pipeline": pipeline.compare,
    "lake": lake.compare,
}
