"""One step of a processor: read, run, publish; all of it once, or nothing.

1. `begin`: choose what to read and write it down as a Snapshot, whose hash names the delivery.
2. `perform`: run the function on frames of exactly that, and stage what it returns. Nothing is
   visible yet, and nothing is lost if everything dies here: the Snapshot is taken up again.
3. `commit`: in one transaction, and only if the Snapshot is still the last word and the tailers
   stand where it begins: publish, write the Attempt, move the tailers. See `52_pipelines.sql`.

A function need not give the same result when it is run again: only one attempt is ever published.

A step that fails for one of its messages is split until that message stands alone. `failures` says
when a message is to blame, `blame` gathers the evidence.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pyarrow as pa
from psycopg.types.json import Jsonb
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from penstock.database.server_errors import typed_errors
from penstock.errors import (
    DatabaseUnreachable,
    PenstockError,
    SparkStopped,
    StepFailed,
    ValidationError,
)
from penstock.pipeline import blame, state
from penstock.pipeline.checks import frame_schema, parse_schema
from penstock.pipeline.delivery import Delivery
from penstock.pipeline.failures import is_passing, may_be_data, reason_of
from penstock.pipeline.files import (
    Files,
    Naming,
    database_id,
    discard,
    move_into_place,
    remove_older,
)
from penstock.pipeline.frames import (
    DRIVER_ROWS,
    Slice,
    count_up_to,
    first_position,
    queue_target,
)
from penstock.pipeline.graph import Pipeline, Processor
from penstock.pipeline.invoke import call, frames_of
from penstock.pipeline.next_snapshot import Memory, beginning, choose
from penstock.pipeline.outputs import (
    ErrorsQueue,
    StagedErrors,
    is_known_to_be_small,
    output,
    stage_frame,
    without_repeated_errors,
)
from penstock.pipeline.projection import Projection, projection_of, switch
from penstock.pipeline.sharing import evaluated_once
from penstock.pipeline.snapshot import Snapshot
from penstock.spark.connections import DatabaseRef, run
from penstock.spark.read import planning
from penstock.spark.session import has_stopped
from penstock.spark.write.staging import Published, Staged, clean_up, is_beside, tokens_and_counts

log = logging.getLogger(__name__)
Connection = psycopg.Connection[Any]


@dataclass
class Bench:
    """What a processor works with: its graph, the database and Spark."""

    pipeline: Pipeline
    processor: Processor
    place: DatabaseRef
    connection: Connection
    spark: SparkSession
    memory: Memory = field(default_factory=Memory)
    #: whether those of the pipeline that feed it have caught up
    has_all: Callable[[], bool] = lambda: True
    #: up to here the driver reads and stages by itself, beyond it the executors do
    driver_rows: int = DRIVER_ROWS


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

    @property
    def failed(self) -> int:
        """How many messages go to the errors queue."""
        return sum(one.count for one in self.staged if isinstance(one, StagedErrors))


@dataclass(frozen=True)
class StepReport:
    """What a step has done."""

    processor: str
    messages_in: int
    messages_out: int
    seconds: float
    #: it failed for one of its messages, and smaller ones follow to find out which
    split: bool = False
    #: how many went to the errors queue, besides those that went out
    failed: int = 0


def run_step(bench: Bench) -> StepReport | None:
    """Run one step and return what it did; None if there was nothing to do."""
    started = time.monotonic()
    has_all = bench.has_all()  # asked first: what they publish later would not be in the step
    current = _open(bench)
    snapshot = begin(bench, current)
    if snapshot is None:
        if has_all:
            _switch_if_rebuilding(bench, current)
        return None
    inputs = _inputs(bench, snapshot)
    made = None
    try:
        made = perform(bench, current, snapshot, inputs)
        made.rebuilt = made.rebuilt and has_all
        if made.idle:
            return None
        published = _commit(bench, snapshot, inputs, made, started)
    except Exception as error:
        if has_stopped(bench.spark):  # no fault of the function's
            raise SparkStopped(bench.pipeline.name) from error
        bench.memory.settled = False  # it, or another run, may have committed all the same
        if not is_passing(error):
            _discard(bench, made)
        return _failed(bench, snapshot, inputs, error, started)
    if any(part.count for part in inputs.values()):
        bench.memory.alike, bench.memory.in_a_row = None, 0
    return _committed(bench, snapshot, inputs, made, published, started)


def finish_rebuilding(bench: Bench) -> None:
    """Put a rebuilt table in the live one's place if there is no more to come."""
    if bench.has_all():
        current = _open(bench)
        if choose(bench.connection, bench.processor, current, bench.memory) is None:
            _switch_if_rebuilding(bench, current)


def _open(bench: Bench) -> state.State:
    one = bench.processor
    current = state.open_processor(bench.connection, bench.pipeline.name, one.name, one.kind)
    new = {q: beginning(q, current) for q in one.reads if q not in current.tailers}
    if new:  # lag and retention count from here, also if its first step never ends
        state.place_tailers(bench.connection, bench.pipeline.name, one.name, new)
    _settle_files(bench, current)
    bench.memory.tailers = {**new, **{q: current.tailers[q] for q in one.reads if q not in new}}
    return current


def _settle_files(bench: Bench, current: state.State) -> None:
    """Once in a run: move files of the last step into place, if it was killed before it did."""
    if bench.memory.settled:
        return
    one, spark = bench.processor, bench.spark
    folders = state.folders(bench.connection, bench.pipeline.name, one.name)
    if folders:
        naming = Naming(bench.pipeline.name, one.name, database_id(bench.connection))
        try:
            move_into_place(spark, [Files(**each) for each in current.files])
            remove_older(spark, folders, naming, current.generation)
        except (Py4JError, OSError) as error:
            reason = f"its files could not be put in place: {reason_of(error)}"
            raise StepFailed(one.name, reason, one.location) from error
    bench.memory.settled = True


def begin(bench: Bench, current: state.State) -> Snapshot | None:
    """Choose what the step reads, and write it down unless it is written down already."""
    snapshot = choose(bench.connection, bench.processor, current, bench.memory)
    if snapshot is not None and snapshot != current.pending:
        _tell_what_is_missing(bench, current, snapshot)
        state.write_snapshot(bench.connection, bench.pipeline.name, snapshot)
    return snapshot


def _tell_what_is_missing(bench: Bench, current: state.State, snapshot: Snapshot) -> None:
    """Say so if retention took what it had not read: it was told to, or thought it retired."""
    for queue, (start, end) in snapshot.ranges.items():
        if start == beginning(queue, current):  # what was removed before it came it does not miss
            continue
        count = run(bench.connection, planning.count_removed(queue_target(queue), start, end))
        if count:
            log.warning(
                "%s fell behind retention: up to %d messages of %s after position %d were removed "
                "before it could read them",
                snapshot.processor,
                count,
                queue,
                start,
            )


def perform(
    bench: Bench, current: state.State, snapshot: Snapshot, inputs: Mapping[str, Slice]
) -> Made:
    """Run the function and stage what it returns."""
    one = bench.processor
    if one.kind == "projection":
        return _project(bench, current, inputs[one.inputs[0]])
    if inputs and not any(part.count for part in inputs.values()):
        return Made()  # all of it is of types that it does not take
    delivery = Delivery(
        bench.pipeline.name,
        snapshot,
        next(iter(inputs), None),
        database=lambda: database_id(bench.connection),
    )
    return _run_function(bench, snapshot, inputs, delivery)


def _run_function(
    bench: Bench, snapshot: Snapshot, inputs: Mapping[str, Slice], delivery: Delivery
) -> Made:
    one = bench.processor
    returned = call(one, bench.spark, inputs, _tables(bench, snapshot), delivery)
    if one.kind == "source" and returned is None:
        return Made(idle=True)
    if snapshot.cursor is not None and not delivery.advanced:
        expected = "handed to delivery.advance() with every frame, or the same would be asked again"
        raise ValidationError("cursor", None, expected)
    frames = frames_of(one, returned)
    errors = _errors_queue(bench, inputs)
    outputs = {
        queue: output(queue, frame.schema, errors, inputs) for queue, frame in frames.items()
    }
    most = bench.driver_rows
    small = {queue: is_known_to_be_small(frame, most) for queue, frame in frames.items()}
    staged: list[Staged] = []
    with evaluated_once([*frames.values(), *(each.frame for each in delivery.upserts)]) as all_of:
        for frame, (queue, made) in zip(all_of, outputs.items(), strict=False):
            staged += stage_frame(bench.place, frame, made, most, is_small=small[queue])
        delivery.upserts = [
            each.evaluated(frame)
            for each, frame in zip(delivery.upserts, all_of[len(outputs) :], strict=True)
        ]
    return Made(without_repeated_errors(bench.connection, staged), delivery)


def _tables(bench: Bench, snapshot: Snapshot) -> dict[str, Slice]:
    return {queue: _slice(bench, queue, *ends) for queue, ends in snapshot.tables.items()}


def _errors_queue(bench: Bench, inputs: Mapping[str, Slice]) -> ErrorsQueue | None:
    if bench.processor.errors is None or len(inputs) != 1:
        return None
    ((queue, part),) = inputs.items()
    return ErrorsQueue.of(bench.processor.errors, queue, part)


def _attempt(bench: Bench, snapshot: Snapshot, inputs: Mapping[str, Slice]) -> None:
    """Run the function on these messages, up to the commit, and keep nothing; or raise."""
    delivery = Delivery(bench.pipeline.name, snapshot, next(iter(inputs)))
    made, connection = _run_function(bench, snapshot, inputs, delivery), bench.connection
    with typed_errors(bench.place.where), connection.transaction(force_rollback=True):
        connection.execute(
            "select penstock.publish_staged(%s, %s, null, %s)",
            (*tokens_and_counts(made.staged), is_beside(connection)),
        )
        for upsert in delivery.upserts:
            upsert.apply(connection)
    _discard(bench, made)


def _discard(bench: Bench, made: Made | None) -> None:
    """Forget what an attempt has staged and written; what is left behind is swept some day."""
    if made is not None and not bench.connection.closed:
        with suppress(Exception):
            clean_up(bench.connection, made.staged)
            discard(bench.spark, made.delivery.files if made.delivery else ())


def commit(
    bench: Bench, snapshot: Snapshot, made: Made, report: Mapping[str, Any], started: float
) -> Published:
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
        seconds = time.monotonic() - started
        state.write_seconds(connection, bench.pipeline.name, snapshot.processor, seconds)
    return Published(*row)


def _commit(
    bench: Bench,
    snapshot: Snapshot,
    inputs: Mapping[str, Slice],
    made: Made,
    started: float,
) -> Published:
    report: dict[str, Any] = {
        "messages_in": sum(part.count for part in inputs.values()),
        "rebuilt": made.rebuilt,
    }
    if delivery := made.delivery:
        report["tables"] = [one.table for one in delivery.upserts]
        if delivery.advanced:
            report["cursor"] = delivery.next_cursor
        if delivery.files:
            report["files"] = [one.as_data() for one in delivery.files]
            report["folders"] = [one.folder for one in delivery.files]
    with typed_errors(bench.place.where):
        return commit(bench, snapshot, made, report, started)


def _committed(
    bench: Bench,
    snapshot: Snapshot,
    inputs: Mapping[str, Slice],
    made: Made,
    published: Published,
    started: float,
) -> StepReport:
    """Do what is left to do once a step is committed, and return what it did."""
    if made.staged:
        with suppress(psycopg.Error):  # it is committed: what is left behind is swept some day
            clean_up(bench.connection, made.staged)
    if made.delivery is not None and made.delivery.files:
        try:
            move_into_place(bench.spark, made.delivery.files)
        except Exception as error:
            bench.memory.settled = False
            raise _stopped(bench, snapshot, error) from error
    seconds = time.monotonic() - started
    count, out = sum(part.count for part in inputs.values()), published.count - made.failed
    return StepReport(snapshot.processor, count, out, seconds, failed=made.failed)


def _stopped(
    bench: Bench, snapshot: Snapshot, error: Exception, doubt: str | None = None
) -> PenstockError:
    """Return what to raise for a step that failed: to be tried again, or remembered as failed."""
    if is_passing(error):
        if isinstance(error, PenstockError):
            return error
        return DatabaseUnreachable(bench.place.where, reason_of(error))
    one, reason = bench.processor, reason_of(error)
    if doubt:
        reason = f"{reason} ({doubt})"
    state.fail_step(bench.connection, bench.pipeline.name, snapshot, reason)
    return StepFailed(one.name, reason, one.location)


def _failed(
    bench: Bench,
    snapshot: Snapshot,
    inputs: Mapping[str, Slice],
    error: Exception,
    started: float,
) -> StepReport:
    """Set the poisonous message aside, or look for it in half of the step; else stop."""
    errors, memory = _errors_queue(bench, inputs), bench.memory
    if errors is None or not may_be_data(error):
        raise _stopped(bench, snapshot, error) from error
    (part,) = inputs.values()
    try:
        doubt = _doubt(bench, snapshot, part, error)
    except Exception as other:  # it could not be found out
        raise _stopped(bench, snapshot, other) from error
    if doubt:
        raise _stopped(bench, snapshot, error, doubt) from error
    if part.count > 1:
        memory.failed = snapshot.hash
        memory.suspect, memory.found = part.until, False
        seconds = time.monotonic() - started
        return StepReport(bench.processor.name, 0, 0, seconds, split=True)
    try:
        position = first_position(bench.connection, part.target, part.after, part.until)
        made = Made([errors.stage(bench.connection, {position: reason_of(error)})])
        published = _commit(bench, snapshot, inputs, made, started)
    except Exception as other:
        raise _stopped(bench, snapshot, other) from other
    memory.found = True
    return _committed(bench, snapshot, inputs, made, published, started)


def _doubt(bench: Bench, snapshot: Snapshot, part: Slice, error: Exception) -> str | None:
    """Return what speaks against a message's fault; None if one is to blame. See `failures`."""
    memory = bench.memory

    def attempt(other: Snapshot, inputs: Mapping[str, Slice]) -> None:
        _attempt(bench, other, inputs)

    searching = memory.suspect is not None and part.until <= memory.suspect
    if not searching or memory.cleared != snapshot.tables:
        tables = _tables(bench, snapshot)
        doubt = blame.fails_without_messages(bench, snapshot, tables, part, error, attempt)
        if doubt:
            return doubt
        memory.cleared = snapshot.tables
    if part.count > 1:
        return None
    return blame.names_another_value(bench, part, error) or blame.fails_like_others(
        bench, snapshot, part, error, attempt
    )


def _inputs(bench: Bench, snapshot: Snapshot) -> dict[str, Slice]:
    """Return the messages that the step reads."""
    return {
        queue: _slice(bench, queue, after, until, bench.processor.types.get(queue, ()))
        for queue, (after, until) in snapshot.ranges.items()
    }


def _slice(bench: Bench, queue: str, after: int, until: int, types: tuple[str, ...] = ()) -> Slice:
    target = queue_target(queue, types)
    most = max(bench.driver_rows + 1, bench.processor.limit)  # a table may be of any size
    count = count_up_to(bench.connection, target, after, until, most)
    schema = frame_schema(bench.pipeline, queue)
    return Slice(
        bench.place, bench.connection, target, schema, after, until, count, bench.driver_rows
    )


def _project(bench: Bench, current: state.State, events: Slice) -> Made:
    """Fold the events into rows of the projection's table."""
    one = bench.processor
    assert one.keeps is not None
    columns = parse_schema(one.keeps.columns)
    folding = projection_of(one, columns, rebuilding=current.rebuilding)
    if events.is_small:
        rows = folding.fold_table(bench.connection, events.table)
    else:
        rows = folding.fold_frame(bench.place, events.frame(bench.spark))
    rebuilt = current.rebuilding and _reaches_the_end(bench, events)
    return Made(projection=folding, rows=rows, rebuilt=rebuilt)


def _switch_if_rebuilding(bench: Bench, current: state.State) -> None:
    one, connection = bench.processor, bench.connection
    if one.keeps is None or not current.rebuilding:
        return
    with connection.transaction():
        if state.end_rebuilding(connection, bench.pipeline.name, one.name, current.generation):
            columns = parse_schema(one.keeps.columns)
            projection_of(one, columns, rebuilding=True).create(connection)
            switch(connection, one.keeps.table)


def _reaches_the_end(bench: Bench, events: Slice) -> bool:
    """Whether the step read all that there was when it began, whatever has come since."""
    (queue,) = bench.processor.inputs
    target, limit = queue_target(queue), bench.processor.limit
    if count_up_to(bench.connection, target, events.after, events.until, limit) < limit:
        return True
    head = run(bench.connection, planning.head(target))
    return events.until >= min(head, bench.memory.ends.get(queue, head))
