"""Is a message to blame for a failed step? The evidence that the rule in `failures` asks for.

Each function returns what speaks against it, in words for the person who has to fix it; None if
nothing does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from penstock.pipeline.attempt import Step, rehearse
from penstock.pipeline.failures import is_passing, kind_of, named_values, reason_of, shared_reason
from penstock.pipeline.frames import Slice, first_message
from penstock.spark.read import planning

# With these Spark evaluates a table though there is no message to join it with.
_EVALUATE_ALL = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
}


def find_doubt(step: Step, part: Slice, error: Exception) -> str | None:
    """Return what speaks against the fault of one of these messages; None if one is to blame."""
    remembered, tables = step.context.remembered, step.snapshot.tables
    searching = remembered.suspect is not None and part.until <= remembered.suspect
    if not searching or remembered.cleared != tables:
        if doubt := _fails_without_messages(step, part, error):
            return doubt
        remembered.cleared = tables
    if part.count > 1:
        return None
    return _names_another_value(step, part, error) or _fails_like_others(step, part, error)


def _fails_without_messages(step: Step, part: Slice, error: Exception) -> str | None:
    """Whether a table cannot be read, or the function fails in the same way on an empty input."""
    spark = step.context.spark
    for queue, table in step.context.tables(step.snapshot).items():
        if found := _failure(table.check, spark):
            return f"table {queue} cannot be read: {reason_of(found)}"
    with _settings(spark, _EVALUATE_ALL):
        found = _failure(rehearse, step.on(part.empty()))
    if found is not None and kind_of(found) == kind_of(error):
        return "it fails without any message, too"
    return None


def _names_another_value(step: Step, part: Slice, error: Exception) -> str | None:
    """Whether Spark names a value that the message does not have: then a table has it."""
    tables = step.context.processor.looks_up
    if not tables or not (values := named_values(error)):
        return None
    _, text = step.context.connection.run(first_message(part.target, part.after, part.until))
    if any(value in text or json.dumps(value)[1:-1] in text for value in values):
        return None
    return f"the message has no such value: it is in a table, {', '.join(tables)}"


def _fails_like_others(step: Step, part: Slice, error: Exception) -> str | None:
    """Whether messages fail one after the other for one reason, whatever is in them."""
    remembered, one = step.context.remembered, step.context.processor
    reason, most = shared_reason(error), one.max_consecutive_errors
    remembered.in_a_row = remembered.in_a_row + 1 if remembered.last_reason == reason else 1
    remembered.last_reason = reason
    count = remembered.in_a_row
    if one.kind != "sink":
        count += _following_failures(step, part, reason, most - count)
    if count < most:
        return None
    return f"{most} messages in a row failed for this reason, so it may be no message's fault"


def _following_failures(step: Step, part: Slice, reason: str, most: int) -> int:
    """Count the messages that follow and fail for the same reason, up to `most`."""
    (queue,) = step.inputs
    context, run, after = step.context, step.context.connection.run, part.until
    until = context.remembered.end_of(queue, run(planning.head(part.target)))
    end = run(planning.end_after(part.target, after, until, context.processor.limit))
    following = run(planning.positions_after(part.target, after, end, most))
    for count, position in enumerate(following):
        alone = step.on(replace(part, after=after, until=position, count=1))
        found = _failure(rehearse, alone)
        if found is None or shared_reason(found) != reason:
            return count
        after = position
    return len(following)


def _failure(function: Callable[..., None], *arguments: Any) -> Exception | None:
    """Return what a call raises, unless it is passing: that proves nothing, and is raised."""
    try:
        function(*arguments)
    except Exception as error:
        if is_passing(error):
            raise
        return error
    return None


@contextmanager
def _settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of a session for the length of the block."""
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
