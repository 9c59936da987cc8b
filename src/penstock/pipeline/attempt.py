"""One attempt at a step: call the processor's function with its frames, and stage what it returns.

Nothing of an attempt is visible before the step is committed, and nothing is lost if everything
dies here. The function need not return the same result when the step is run again: only one attempt
is ever committed.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import ValidationError, WrongColumns, shown
from penstock.lake.declaration import LakeTable
from penstock.log.context import LogContext
from penstock.pipeline import state
from penstock.pipeline.checks import OFFERED, frame_schema, parameter
from penstock.pipeline.connection import RunConnection
from penstock.pipeline.delivery import Delivery, discard
from penstock.pipeline.evaluation import evaluated_once
from penstock.pipeline.frames import DRIVER_ROWS, Slice, queue_target
from penstock.pipeline.graph import Latest, Pipeline, Processor
from penstock.pipeline.hooks import ReadHooks
from penstock.pipeline.outputs import (
    ErrorsQueue,
    StagedErrors,
    is_known_to_be_small,
    output,
    stage_frame,
    without_repeated_errors,
)
from penstock.pipeline.projection import Projection, projection_of
from penstock.pipeline.snapshot import Remembered, Snapshot, State
from penstock.spark.connections import DatabaseRef
from penstock.spark.read import planning
from penstock.spark.write.staging import Staged, is_beside, unstage

if TYPE_CHECKING:  # needs the extra `lake`
    from penstock.lake.changes import TableChange
    from penstock.lake.store_catalog import StoreCatalog


@dataclass
class StepContext:
    """What the steps of a processor work with: its declaration, the database and Spark."""

    pipeline: Pipeline
    processor: Processor
    database: DatabaseRef
    connection: RunConnection
    spark: SparkSession
    hooks: ReadHooks = field(default_factory=ReadHooks)
    remembered: Remembered = field(default_factory=Remembered)
    #: returns whether the processors that feed this one have caught up
    is_fed: Callable[[], bool] = lambda: True
    #: up to so many rows the driver reads and stages, beyond that the executors do
    driver_rows: int = DRIVER_ROWS
    #: of the store that the pipeline runs on, for an archive
    log: LogContext | None = None
    #: returns whether the run is to end
    is_over: Callable[[], bool] = lambda: False
    #: the catalog of Iceberg tables, if the run has opened it
    catalog: StoreCatalog | None = None

    @cached_property
    def lake(self) -> StoreCatalog:
        """The catalog of Iceberg tables, on the connection that commits the steps."""
        from penstock.lake.store_catalog import open_catalog  # needs the extra `lake`

        catalog = self.catalog or open_catalog(self.database.settings)
        return catalog.on(self.connection.raw)

    def inputs(self, snapshot: Snapshot) -> dict[str, Slice]:
        """Return the messages that a step reads."""
        types = self.processor.types
        return {
            queue: self._slice(queue, after, until, types.get(queue, ()))
            for queue, (after, until) in snapshot.ranges.items()
        }

    def tables(self, snapshot: Snapshot) -> dict[str, Slice]:
        """Return the messages that a step looks up."""
        return {queue: self._slice(queue, *ends) for queue, ends in snapshot.tables.items()}

    def _slice(self, queue: str, after: int, until: int, types: tuple[str, ...] = ()) -> Slice:
        target = queue_target(queue, types, self.connection.lake_options)
        most = max(self.driver_rows + 1, self.processor.limit)  # a table may be of any size
        count = None if types else self.remembered.count_of(queue, (after, until))
        if count is None:
            count = self.connection.run(planning.count_up_to(target, after, until, most))
        return Slice(
            self.database, self.connection, target, frame_schema(self.pipeline, queue),
            after, until, count, self.driver_rows, latest=Latest(queue) in self.processor.tables,
        )  # fmt: skip


@dataclass(frozen=True)
class Step:
    """A step that is under way: what it reads, and when it began."""

    context: StepContext
    snapshot: Snapshot
    inputs: Mapping[str, Slice]
    started: float
    #: whether its table is being built anew, beside the live one
    rebuilding: bool = False

    @property
    def count(self) -> int:
        """How many messages it reads."""
        return sum(part.count for part in self.inputs.values())

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return time.monotonic() - self.started

    @property
    def errors_queue(self) -> ErrorsQueue | None:
        """Where its failed messages go."""
        errors = self.context.processor.errors
        if errors is None or len(self.inputs) != 1:
            return None
        ((queue, part),) = self.inputs.items()
        return ErrorsQueue(errors, queue, part.after, part.until, part.target.types)

    def on(self, part: Slice) -> Step:
        """Return the same step on other messages of its only input."""
        (queue,) = self.inputs
        snapshot = replace(self.snapshot, ranges={queue: (part.after, part.until)})
        return replace(self, snapshot=snapshot, inputs={queue: part})


@dataclass
class StepResult:
    """What an attempt has staged, ready to be committed."""

    staged: list[Staged] = field(default_factory=list)
    delivery: Delivery | None = None
    projection: Projection | None = None
    rows: pa.Table | None = None
    lake: TableChange | None = None
    rebuilt: bool = False
    #: a source that had nothing to return
    idle: bool = False

    @property
    def failed(self) -> int:
        """How many messages go to the errors queue."""
        return sum(one.count for one in self.staged if isinstance(one, StagedErrors))


def perform(step: Step, current: State) -> StepResult:
    """Run the function and stage what it returns."""
    context, one = step.context, step.context.processor
    if one.kind == "projection":
        return _project(context, current, step.inputs[one.inputs[0]])
    if step.inputs and not step.count:
        return StepResult()  # it takes none of their types
    result = _run_function(step, lambda: context.connection.run(state.database_id()))
    if one.lake is not None and current.rebuilding and set(step.inputs) == set(one.reads):
        result.rebuilt = all(_reaches_the_end(context, *each) for each in step.inputs.items())
    return result


def rehearse(step: Step) -> None:
    """Run the function on these messages, up to the commit, and keep nothing; or raise."""
    result, connection = _run_function(step), step.context.connection
    with connection.transaction(roll_back=True):
        beside = is_beside(connection.raw)
        connection.run(state.publish_staged(result.staged, whole_categories=beside))
        for upsert in result.delivery.upserts if result.delivery else ():
            upsert.apply(connection.raw)
        if result.lake is not None:
            result.lake.commit()
    abandon(step.context, result)


def abandon(context: StepContext, result: StepResult | None) -> None:
    """Remove what an attempt has staged and written; what remains is swept later."""
    if result is not None and not context.connection.raw.closed:
        with suppress(Exception):
            context.connection.run(unstage(result.staged))
            discard(context.spark, result.delivery.files if result.delivery else ())
            if result.lake is not None:
                result.lake.discard()


def _run_function(step: Step, database: Callable[[], str] | None = None) -> StepResult:
    context, snapshot, one = step.context, step.snapshot, step.context.processor
    input = next(iter(step.inputs), None)
    delivery = Delivery(context.pipeline.name, snapshot, input, database=database)
    returned = _invoke(step, delivery)
    if one.kind == "source" and returned is None:
        return StepResult(idle=True)
    if snapshot.cursor is not None and not delivery.advanced:
        expected = "passed to delivery.advance() with every frame, or the step would repeat itself"
        raise ValidationError("cursor", None, expected)
    lake = None
    if one.lake is not None:
        lake, returned = _write_to_lake(step, one.lake, returned), None
    staged = _stage(step, _returned_frames(one, returned), delivery)
    return StepResult(without_repeated_errors(context.connection, staged), delivery, lake=lake)


def _invoke(step: Step, delivery: Delivery) -> Any:
    """Call the function with its frames, by the names of its parameters."""
    one, spark = step.context.processor, step.context.spark
    tables = step.context.tables(step.snapshot)
    frames = {parameter(queue): part.frame(spark) for queue, part in tables.items()}
    wanted = inspect.signature(one.function).parameters
    if one.alts:
        name = next(n for n in wanted if n not in frames and n not in OFFERED)
        (part,) = step.inputs.values()
        frames[name] = part.frame(spark)
    else:
        frames |= {parameter(queue): part.frame(spark) for queue, part in step.inputs.items()}
    if one.from_table is not None:
        from penstock.pipeline.lake_input import rows_added  # needs the extra `lake`

        settings, driver_rows = step.context.database.settings, step.context.driver_rows
        rows = rows_added(settings, spark, one.from_table, delivery, driver_rows)
        if rows is None:
            return None
        frames["rows"] = rows
    offered = {"delivery": delivery, "spark": spark}
    return one.function(**frames, **{name: offered[name] for name in OFFERED if name in wanted})


def _returned_frames(one: Processor, returned: Any) -> dict[str, DataFrame]:
    """Return the frames that a function returned, by queue, or raise what is wrong with them."""
    if returned is None or (one.kind == "sink" and not isinstance(returned, DataFrame)):
        return {}
    if isinstance(returned, DataFrame):
        returned = {one.outputs[0]: returned} if len(one.outputs) == 1 else {"": returned}
    if not isinstance(returned, Mapping) or not set(returned) <= set(one.outputs):
        expected = f"it must return DataFrames by queue: {', '.join(one.outputs)}"
        if not one.outputs:
            expected = "it has no output, so it must return None"
        elif len(one.outputs) == 1:
            expected = "it must return a DataFrame"
        raise WrongColumns(f"{one.name} returned {shown(returned)}", expected)
    for queue, frame in returned.items():
        if frame is not None and not isinstance(frame, DataFrame):
            problem = f"{one.name} returned {shown(frame)} for {queue}"
            raise WrongColumns(problem, "it must return a DataFrame")
    return {queue: frame for queue, frame in returned.items() if frame is not None}


def _stage(step: Step, frames: Mapping[str, DataFrame], delivery: Delivery) -> list[Staged]:
    """Evaluate the frames of outputs and upserts, each part of them once, and stage the outputs."""
    context, errors, most = step.context, step.errors_queue, step.context.driver_rows
    outputs = [output(queue, frame.schema, errors, step.inputs) for queue, frame in frames.items()]
    small = [is_known_to_be_small(frame, most) for frame in frames.values()]
    staged: list[Staged] = []
    with evaluated_once([*frames.values(), *(one.frame for one in delivery.upserts)]) as evaluated:
        for frame, into, is_small in zip(evaluated, outputs, small, strict=False):
            staged += stage_frame(context.database, frame, into, most, is_small=is_small)
        rest = evaluated[len(outputs) :]
        delivery.upserts = [
            one.evaluated(frame) for one, frame in zip(delivery.upserts, rest, strict=True)
        ]
    return staged


def _write_to_lake(step: Step, table: LakeTable, returned: Any) -> TableChange | None:
    """Write what the function returned to data files of its table."""
    from penstock.pipeline.lake_output import write_to_table  # needs the extra `lake`

    context, one = step.context, step.context.processor
    if returned is None:
        return None
    if not isinstance(returned, DataFrame):
        raise WrongColumns(f"{one.name} returned {shown(returned)}", "it must return a DataFrame")
    origin = {"pipeline": context.pipeline.name, "processor": one.name}
    origin["delivery"] = step.snapshot.hash
    return write_to_table(
        context.lake, table, returned, context.driver_rows, origin, rebuilding=step.rebuilding
    )


def _project(context: StepContext, current: State, events: Slice) -> StepResult:
    """Fold the events into rows of the projection's table."""
    one, hooks = context.processor, context.hooks
    projection = projection_of(one, hooks, rebuilding=current.rebuilding)
    if events.is_small or hooks.need_the_driver:
        rows = projection.fold_table(context.connection, events.table)
    else:
        rows = projection.fold_frame(context.database, events.frame(context.spark))
    rebuilt = current.rebuilding and _reaches_the_end(context, one.inputs[0], events)
    return StepResult(projection=projection, rows=rows, rebuilt=rebuilt)


def _reaches_the_end(context: StepContext, queue: str, events: Slice) -> bool:
    """Whether the step read all messages of a queue that were there when it began."""
    run, limit = context.connection.run, context.processor.limit
    target = queue_target(queue, (), context.connection.lake_options)
    if run(planning.count_up_to(target, events.after, events.until, limit)) < limit:
        return True
    head = run(planning.head(target))
    return events.until >= context.remembered.end_of(queue, head)
