"""One step of a processor: read, run, publish; all of it once, or nothing.

1. `begin`: choose what to read and write it down as a Snapshot, whose hash names the delivery.
2. `perform`: run the function on frames of exactly that, and stage what it returns. Nothing is
   visible yet, and nothing is lost if everything dies here: the Snapshot is taken up again.
3. `commit`: in one transaction, and only if the Snapshot is still the last word and the tailers
   stand where it begins: publish, write the Attempt, move the tailers. See `52_pipelines.sql`.

A function need not give the same result when it is run again: only one attempt is ever published.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pyarrow as pa
from psycopg.types.json import Jsonb
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import PenstockError, StepFailed, WrongColumns, shown
from penstock.pipeline import planning, state
from penstock.pipeline.checks import OFFERED, frame_schema, parameter, parse_schema
from penstock.pipeline.choosing import Memory, choose
from penstock.pipeline.connections import Place
from penstock.pipeline.delivery import Delivery
from penstock.pipeline.failures import is_data_error, reason_of
from penstock.pipeline.frames import SMALL, Slice, count_up_to, latest_per_stream, queue_target
from penstock.pipeline.graph import Latest, Pipeline, Processor, table_name
from penstock.pipeline.outputs import output, stage_errors, stage_frame
from penstock.pipeline.projection import Projection, projection_of, switch
from penstock.pipeline.snapshot import Snapshot
from penstock.pipeline.staging import Published, Staged, clean_up, is_beside, tokens_and_counts

Connection = psycopg.Connection[Any]


@dataclass
class Bench:
    """What a processor works with: its graph, the database and Spark."""

    pipeline: Pipeline
    processor: Processor
    place: Place
    connection: Connection
    spark: SparkSession
    memory: Memory = field(default_factory=Memory)


@dataclass
class Made:
    """What a step has made, ready to be committed."""

    staged: list[Staged] = field(default_factory=list)
    delivery: Delivery | None = None
    projection: Projection | None = None
    rows: pa.Table | None = None
    rebuilt: bool = False
    #: a source that has nothing to bring
    idle: bool = False


@dataclass(frozen=True)
class StepReport:
    """What a step has done."""

    processor: str
    messages_in: int
    messages_out: int
    seconds: float
    #: it failed for one of its messages, and smaller ones follow to find out which
    split: bool = False
    #: the one that made it fail went to the errors queue
    failed: int = 0


def run_step(bench: Bench) -> StepReport | None:
    """Run one step and return what it did; None if there was nothing to do."""
    started = time.monotonic()
    current = state.open_processor(
        bench.connection, bench.pipeline.name, bench.processor.name, bench.processor.kind
    )
    snapshot = begin(bench, current)
    if snapshot is None:
        return None
    inputs = _inputs(bench, snapshot)
    try:
        made = perform(bench, current, snapshot, inputs)
    except Exception as error:
        return _failed(bench, snapshot, inputs, error, started)
    if made.idle:
        return None
    return _committed(bench, snapshot, inputs, made, started)


def begin(bench: Bench, current: state.State) -> Snapshot | None:
    """Choose what the step reads, and write it down unless it is written down already."""
    snapshot = choose(bench.connection, bench.processor, current, bench.memory)
    if snapshot is not None and snapshot != current.pending:
        state.write_snapshot(bench.connection, bench.pipeline.name, snapshot)
    return snapshot


def perform(
    bench: Bench, current: state.State, snapshot: Snapshot, inputs: Mapping[str, Slice]
) -> Made:
    """Run the function and stage what it returns."""
    one = bench.processor
    if inputs and not any(part.count for part in inputs.values()):
        return Made()  # all of it is of types that it does not take
    if one.kind == "projection":
        return _project(bench, current, snapshot, inputs[one.inputs[0]])
    delivery = Delivery(bench.pipeline.name, snapshot, next(iter(inputs), None))
    frames = {queue: part.frame(bench.spark) for queue, part in inputs.items()}
    returned = one.function(**_arguments(bench, snapshot, frames, delivery))
    if one.kind == "source" and returned is None:
        return Made(idle=True)
    on_driver = bool(inputs) and all(part.is_small for part in inputs.values())
    staged = [
        each
        for queue, frame in _frames_of(one, returned).items()
        for each in stage_frame(
            bench.place, frame, output(queue, frame.schema, one.errors), on_driver=on_driver
        )
    ]
    return Made(staged, delivery)


def commit(bench: Bench, snapshot: Snapshot, made: Made, report: Mapping[str, Any]) -> Published:
    """Make the step's results and its tailers visible, in one transaction, or nothing of it."""
    connection = bench.connection
    with connection.transaction():
        row = connection.execute(
            "select * from penstock.commit_step(%s, %s, %s, %s, %s, %s, %s)",
            (
                bench.pipeline.name,
                snapshot.processor,
                Jsonb(snapshot.as_data()),
                *tokens_and_counts(made.staged),
                Jsonb(report),
                is_beside(connection),
            ),
        ).fetchone()
        assert row is not None
        for upsert in made.delivery.upserts if made.delivery else ():
            upsert.apply(connection)
        if made.projection is not None and made.rows is not None:
            made.projection.apply(connection, made.rows)
            if made.rebuilt and bench.processor.keeps:
                switch(connection, bench.processor.keeps.table)
    return Published(*row)


def _committed(
    bench: Bench,
    snapshot: Snapshot,
    inputs: Mapping[str, Slice],
    made: Made,
    started: float,
    failed: int = 0,
) -> StepReport:
    count = sum(part.count for part in inputs.values())
    seconds = time.monotonic() - started
    report: dict[str, Any] = {
        "messages_in": count,
        "seconds": round(seconds, 3),
        "rebuilt": made.rebuilt,
        "tables": [one.table for one in made.delivery.upserts] if made.delivery else [],
    }
    if made.delivery is not None and made.delivery.advanced:
        report["cursor"] = made.delivery.next_cursor
    published = commit(bench, snapshot, made, report)
    if made.staged:
        clean_up(bench.connection, made.staged)
    return StepReport(snapshot.processor, count, published.count, seconds, failed=failed)


def _failed(
    bench: Bench,
    snapshot: Snapshot,
    inputs: Mapping[str, Slice],
    error: Exception,
    started: float,
) -> StepReport:
    """Set the poisonous message aside, or look for it in half of the step; else stop."""
    one = bench.processor
    if one.errors is None or len(inputs) != 1 or not is_data_error(error):
        if isinstance(error, PenstockError) and error.retryable:
            raise error
        state.fail_step(bench.connection, bench.pipeline.name, snapshot, reason_of(error))
        raise StepFailed(one.name, reason_of(error), one.location) from error
    (part,) = inputs.values()
    if part.count == 1:
        position = part.table.column("global_position")[0].as_py()
        staged = stage_errors(bench.connection, one.errors, [(position, reason_of(error))])
        return _committed(bench, snapshot, inputs, Made([staged]), started, failed=1)
    bench.memory.failed = snapshot.hash
    bench.memory.suspect = part.until
    return StepReport(one.name, 0, 0, time.monotonic() - started, split=True)


def _inputs(bench: Bench, snapshot: Snapshot) -> dict[str, Slice]:
    """Return the messages that the step reads."""
    return {
        queue: _slice(bench, queue, after, until, bench.processor.types.get(queue, ()))
        for queue, (after, until) in snapshot.ranges.items()
    }


def _slice(bench: Bench, queue: str, after: int, until: int, types: tuple[str, ...] = ()) -> Slice:
    target = queue_target(queue, types)
    most = max(SMALL + 1, bench.processor.limit)  # a table may be of any size
    count = count_up_to(bench.connection, target, after, until, most)
    schema = frame_schema(bench.pipeline, queue)
    return Slice(bench.place, target, schema, after, until, count)


def _arguments(
    bench: Bench,
    snapshot: Snapshot,
    frames: Mapping[str, DataFrame],
    delivery: Delivery,
) -> dict[str, Any]:
    """Return what the function is called with, by the names of its parameters."""
    one = bench.processor
    wanted = inspect.signature(one.function).parameters
    arguments: dict[str, Any] = {}
    for table in one.tables:
        queue = table_name(table)
        frame = _slice(bench, queue, *snapshot.tables[queue]).frame(bench.spark)
        latest = latest_per_stream(frame) if isinstance(table, Latest) else frame
        arguments[parameter(queue)] = latest
    if one.alts:
        name = next(n for n in wanted if n not in arguments and n not in OFFERED)
        arguments[name] = next(iter(frames.values()))
    else:
        arguments |= {parameter(queue): frame for queue, frame in frames.items()}
    offered = {"delivery": delivery, "spark": bench.spark}
    return arguments | {name: offered[name] for name in OFFERED if name in wanted}


def _frames_of(one: Processor, returned: Any) -> dict[str, DataFrame]:
    """Return the frames that a function returned, by queue, or say what is wrong with them."""
    if one.kind == "sink" or returned is None:
        return {}
    if isinstance(returned, DataFrame):
        returned = {one.outputs[0]: returned} if len(one.outputs) == 1 else {"": returned}
    if not isinstance(returned, Mapping) or not set(returned) <= set(one.outputs):
        names = ", ".join(one.outputs)
        expected = "a DataFrame" if len(one.outputs) == 1 else f"DataFrames by queue: {names}"
        raise WrongColumns(f"{one.name} returned {shown(returned)}", f"it must return {expected}")
    for queue, frame in returned.items():
        if frame is not None and not isinstance(frame, DataFrame):
            problem = f"{one.name} returned {shown(frame)} for {queue}"
            raise WrongColumns(problem, "it must return a DataFrame")
    return {queue: frame for queue, frame in returned.items() if frame is not None}


def _project(bench: Bench, current: state.State, snapshot: Snapshot, events: Slice) -> Made:
    """Fold the events into rows of the projection's table."""
    one = bench.processor
    assert one.keeps is not None
    columns = parse_schema(one.keeps.columns)
    folding = projection_of(one, columns, rebuilding=current.rebuilding)
    if events.is_small:
        rows = folding.fold_table(bench.connection, events.table)
    else:
        rows = folding.fold_frame(bench.place, events.frame(bench.spark))
    caught_up = planning.head(bench.connection, events.target) <= events.until
    return Made(projection=folding, rows=rows, rebuilt=current.rebuilding and caught_up)
