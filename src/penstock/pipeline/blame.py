"""Is it the message's fault? The evidence that the rule in `failures` asks for, gathered.

Each function returns what speaks against it, in words for who has to look; None if nothing does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from psycopg import sql
from pyspark.sql import SparkSession

from penstock.pipeline.failures import is_passing, kind_of, named_values, reason_of, sameness
from penstock.pipeline.frames import Slice, numbers_after
from penstock.pipeline.snapshot import Snapshot
from penstock.spark.connections import run
from penstock.spark.read import planning

if TYPE_CHECKING:
    from penstock.pipeline.step import Bench

#: run the function on the messages of a snapshot and keep nothing of it, or raise
Attempt = Callable[[Snapshot, Mapping[str, Slice]], None]

# So that Spark evaluates a table though there is no message to join it with.
_EVALUATE_ALL = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
}


def fails_without_messages(
    bench: Bench,
    snapshot: Snapshot,
    tables: Mapping[str, Slice],
    part: Slice,
    error: Exception,
    attempt: Attempt,
) -> str | None:
    """Look whether the tables cannot be read, or the function fails in this way on no message."""
    for queue, table in tables.items():
        if wrong := _failure(table.check, bench.spark):
            return f"table {queue} cannot be read: {reason_of(wrong)}"
    (queue,) = snapshot.ranges
    nothing = part.nothing()
    empty = replace(snapshot, ranges={queue: (nothing.after, nothing.until)})
    with _settings(bench.spark, _EVALUATE_ALL):
        wrong = _failure(attempt, empty, {queue: nothing})
    if wrong is not None and kind_of(wrong) == kind_of(error):
        return "it fails without any message, too"
    return None


def names_another_value(bench: Bench, part: Slice, error: Exception) -> str | None:
    """Look whether Spark names a value that the message does not have: it is a table's, then."""
    if not bench.processor.looks_up or not (values := named_values(error)):
        return None
    query = sql.SQL("select concat_ws(' ', m.stream_name, m.type, m.data, m.metadata) {}").format(
        part.target.rows(part.after, part.until)
    )
    row = bench.connection.execute(query).fetchone()
    text = row[0] if row else ""
    if any(value in text or json.dumps(value)[1:-1] in text for value in values):
        return None
    return f"the message has no such value: it is in a table, {', '.join(bench.processor.looks_up)}"


def fails_like_others(
    bench: Bench, snapshot: Snapshot, part: Slice, error: Exception, attempt: Attempt
) -> str | None:
    """Look whether messages fail one after the other for one reason, whatever is in them."""
    memory, most = bench.memory, bench.processor.max_consecutive_errors
    reason = sameness(error)
    memory.in_a_row = memory.in_a_row + 1 if memory.alike == reason else 1
    memory.alike = reason
    count = memory.in_a_row
    if bench.processor.kind != "sink":
        count += _tried(bench, snapshot, part, reason, most - count, attempt)
    if count < most:
        return None
    return f"{most} messages in a row failed for this reason, so it may be none's fault"


def _tried(
    bench: Bench, snapshot: Snapshot, part: Slice, reason: str, most: int, attempt: Attempt
) -> int:
    """Return how many of the messages that follow fail for the same reason, at most so many."""
    (queue,) = snapshot.ranges
    until = min(
        run(bench.connection, planning.head(part.target)), bench.memory.ends.get(queue, 2**63 - 1)
    )
    end = run(
        bench.connection, planning.end_after(part.target, part.until, until, bench.processor.limit)
    )
    after = part.until
    following = numbers_after(bench.connection, part.target, after, end, most)
    for count, number in enumerate(following):
        single = replace(part, after=after, until=number, count=1)
        alone = replace(snapshot, ranges={queue: (after, number)})
        wrong = _failure(attempt, alone, {queue: single})
        if wrong is None or sameness(wrong) != reason:
            return count
        after = number
    return len(following)


def _failure(function: Callable[..., None], *arguments: Any) -> Exception | None:
    """Return what a call raises, unless that will pass: then it proves nothing."""
    try:
        function(*arguments)
    except Exception as error:
        if is_passing(error):
            raise
        return error
    return None


@contextmanager
def _settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of a session for a while."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)
