"""One step of a processor: read, run, publish; all of it once, or nothing.

1. `begin`: choose what to read and record it as a Snapshot, whose hash names the delivery.
2. `perform`: run the function on frames of exactly that, and stage what it returns. Nothing is
   visible yet. If the process dies here, the Snapshot is run again.
3. `commit`: in one transaction, and only if the Snapshot is still the last record of the backing
   stream and the tailers are where it begins: publish, write the Attempt, move the tailers. See
   `52_pipelines.sql`.

A step that fails for one of its messages is split until that message is alone in a step. `failures`
says when a message is to blame, and `blame` collects the evidence.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import psycopg
from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from penstock.errors import DatabaseUnreachable, PenstockError, SparkStopped, StepFailed
from penstock.lake.catalog_rows import replace_table
from penstock.pipeline import state
from penstock.pipeline.attempt import Step, StepContext, StepResult, abandon, perform
from penstock.pipeline.blame import find_doubt
from penstock.pipeline.delivery import Files, file_prefix, move_into_place, remove_older
from penstock.pipeline.failures import is_passing, may_be_data, reason_of
from penstock.pipeline.frames import Slice, first_message, queue_target
from penstock.pipeline.outputs import ErrorsQueue
from penstock.pipeline.projection import projection_of, switch
from penstock.pipeline.snapshot import Snapshot, State, next_snapshot
from penstock.spark.read import planning
from penstock.spark.session import has_stopped
from penstock.spark.write.staging import Published, is_beside, unstage

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StepReport:
    """What a step has done."""

    processor: str
    messages_in: int
    messages_out: int
    seconds: float
    #: it failed for one of its messages, and smaller steps follow to find out which
    split: bool = False
    #: how many messages went to the errors queue, besides `messages_out`
    failed: int = 0


def run_step(context: StepContext) -> StepReport | None:
    """Run one step and return what it did; None if there was nothing to do."""
    started = time.monotonic()
    is_fed = context.is_fed()  # asked first: what is published later would not be in the step
    current = open_processor(context)
    snapshot = begin(context, current)
    if snapshot is None:
        if is_fed:
            _switch_rebuilt_table(context, current)
        return None
    step = Step(context, snapshot, context.inputs(snapshot), started, current.rebuilding)
    result = None
    try:
        result = perform(step, current)
        result.rebuilt = result.rebuilt and is_fed
        if result.idle:
            return None
        published = commit(step, result)
    except Exception as error:
        return _failed(step, result, error)
    if step.count:
        context.remembered.last_reason, context.remembered.in_a_row = None, 0
    return _committed(step, result, published)


def finish_rebuilding(context: StepContext) -> None:
    """Replace the live table by the rebuilt one if no more messages can come."""
    if context.is_fed():
        current = open_processor(context)
        remembered = context.remembered
        if next_snapshot(context.connection, context.processor, current, remembered) is None:
            _switch_rebuilt_table(context, current)


# 1. Begin


def open_processor(context: StepContext) -> State:
    """Return the state of the processor, with its tailers placed and its files settled."""
    one, pipeline, run = context.processor, context.pipeline.name, context.connection.run
    current = run(state.open_processor(pipeline, one.name, one.kind))
    new = {queue: current.start_of(queue) for queue in one.reads if queue not in current.tailers}
    if new:  # lag and retention count from here, also if its first step never ends
        run(state.place_tailers(pipeline, one.name, new))
    _settle_files(context, current)
    context.remembered.tailers = {queue: current.tailer(queue) for queue in one.reads}
    return current


def begin(context: StepContext, current: State) -> Snapshot | None:
    """Choose what the step reads, and record it unless it is recorded already."""
    connection, remembered = context.connection, context.remembered
    snapshot = next_snapshot(connection, context.processor, current, remembered)
    if snapshot is not None and snapshot != current.pending:
        _log_removed_messages(context, current, snapshot)
        connection.run(state.write_snapshot(context.pipeline.name, snapshot))
    return snapshot


def _log_removed_messages(context: StepContext, current: State, snapshot: Snapshot) -> None:
    """Warn if retention removed messages that the processor had not read."""
    for queue, (start, end) in snapshot.ranges.items():
        if start == current.start_of(queue):  # what was removed before its first step is not missed
            continue
        if count := context.connection.run(planning.count_removed(queue_target(queue), start, end)):
            removed = f"up to {count} messages of {queue} after position {start} were removed"
            name = snapshot.processor
            log.warning("%s fell behind retention: %s before it could read them", name, removed)


def _settle_files(context: StepContext, current: State) -> None:
    """Once in a run: move files of the last step into place, if its run was killed before."""
    if context.remembered.files_settled:
        return
    one, pipeline, run = context.processor, context.pipeline.name, context.connection.run
    folders = run(state.folders(pipeline, one.name))
    if folders:
        prefix = file_prefix(pipeline, one.name, run(state.database_id()))
        try:
            move_into_place(context.spark, [Files(**each) for each in current.files])
            remove_older(context.spark, folders, prefix, current.generation)
        except (Py4JError, OSError) as error:
            reason = f"its files could not be moved into place: {reason_of(error)}"
            raise StepFailed(one.name, reason, one.location) from error
    context.remembered.files_settled = True


# 3. Commit


def commit(step: Step, result: StepResult) -> Published:
    """Make the step's results and its tailers visible, in one transaction; or nothing of it."""
    context, snapshot, report = step.context, step.snapshot, _report(step, result)
    connection, pipeline = context.connection, context.pipeline.name
    with connection.transaction():
        if result.lake is not None:
            result.lake.commit()  # first: nothing that readers of the log wait for is written yet
        beside = is_beside(connection.raw)
        published = connection.run(
            state.commit_step(pipeline, snapshot, result.staged, report, whole_categories=beside)
        )
        for upsert in result.delivery.upserts if result.delivery else ():
            upsert.apply(connection.raw)
        if result.projection is not None and result.rows is not None:
            result.projection.apply(connection.raw, result.rows)
        if result.rebuilt:
            _switch(context)
        connection.run(state.write_seconds(pipeline, snapshot.processor, step.seconds))
    return published


def _report(step: Step, result: StepResult) -> dict[str, Any]:
    """Return what the database records of a step, besides what it publishes."""
    report: dict[str, Any] = {"messages_in": step.count, "rebuilt": result.rebuilt}
    if delivery := result.delivery:
        report["tables"] = [one.table for one in delivery.upserts]
        if delivery.advanced:
            report["cursor"] = delivery.next_cursor
        if delivery.files:
            report["files"] = [asdict(one) for one in delivery.files]
            report["folders"] = [one.folder for one in delivery.files]
    return report


def _committed(step: Step, result: StepResult, published: Published) -> StepReport:
    """Clean up after the commit, and return what the step did."""
    context = step.context
    if result.staged:
        with suppress(PenstockError, psycopg.Error):  # what remains is swept later
            context.connection.run(unstage(result.staged))
    if result.delivery is not None and result.delivery.files:
        try:
            move_into_place(context.spark, result.delivery.files)
        except Exception as error:
            context.remembered.files_settled = False
            raise _stopped(step, error) from error
    out = published.count - result.failed
    if result.lake is not None:
        result.lake.committed()
        out += result.lake.rows
    return StepReport(step.snapshot.processor, step.count, out, step.seconds, failed=result.failed)


def _switch_rebuilt_table(context: StepContext, current: State) -> None:
    one, connection = context.processor, context.connection
    if not current.rebuilding:
        return
    ended = state.end_rebuilding(context.pipeline.name, one.name, current.generation)
    with connection.transaction():
        if not connection.run(ended):
            return
        if one.keeps is not None:
            projection_of(one, context.hooks, rebuilding=True).create(connection.raw)
        _switch(context)


def _switch(context: StepContext) -> None:
    """Replace the live table by the rebuilt one, in the open transaction."""
    one, raw = context.processor, context.connection.raw
    if one.keeps is not None:
        switch(raw, one.keeps.table)
    elif one.lake is not None:
        replace_table(raw, one.lake.name, one.lake.next_name)


# What happens when a step fails


def _failed(step: Step, result: StepResult | None, error: Exception) -> StepReport:
    """Send the message to blame to the errors queue, or search for it; otherwise stop."""
    context, remembered = step.context, step.context.remembered
    if has_stopped(context.spark):  # not the function's fault
        raise SparkStopped(context.pipeline.name) from error
    remembered.files_settled = False  # this run, or another one, may have committed all the same
    if not is_passing(error):
        abandon(context, result)
    errors = step.errors_queue
    if errors is None or not may_be_data(error):
        raise _stopped(step, error) from error
    (part,) = step.inputs.values()
    try:
        doubt = find_doubt(step, part, error)
    except Exception as other:  # it could not be found out
        raise _stopped(step, other) from error
    if doubt:
        raise _stopped(step, error, doubt) from error
    if part.count > 1:
        remembered.failed = step.snapshot.hash
        remembered.suspect, remembered.found = part.until, False
        return StepReport(context.processor.name, 0, 0, step.seconds, split=True)
    return _set_aside(step, part, errors, error)


def _set_aside(step: Step, part: Slice, errors: ErrorsQueue, error: Exception) -> StepReport:
    """Commit a step whose only message goes to the errors queue."""
    connection = step.context.connection
    try:
        position, _ = connection.run(first_message(part.target, part.after, part.until))
        result = StepResult([errors.stage(connection, {position: reason_of(error)})])
        published = commit(step, result)
    except Exception as other:
        raise _stopped(step, other) from other
    step.context.remembered.found = True
    return _committed(step, result, published)


def _stopped(step: Step, error: Exception, doubt: str | None = None) -> PenstockError:
    """Return what to raise for a failed step, and record its reason unless it is tried again."""
    context, one = step.context, step.context.processor
    if is_passing(error):
        if isinstance(error, PenstockError):
            return error
        return DatabaseUnreachable(context.database.where, reason_of(error))
    reason = f"{reason_of(error)} ({doubt})" if doubt else reason_of(error)
    context.connection.run(state.fail_step(context.pipeline.name, step.snapshot, reason))
    return StepFailed(one.name, reason, one.location)
