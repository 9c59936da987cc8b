"""The state of pipelines, from the database alone: positions, lag, last step, errors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from penstock.database.operation import Operation, Row, call, only_value
from penstock.errors import ValidationError
from penstock.message import check_text
from penstock.pipeline.frames import count_up_to, queue_target
from penstock.pipeline.connection import hold_off
from penstock.spark.read import planning
from penstock.store import Store

MOST = 100_000  # lag is counted no further


@dataclass(frozen=True)
class TailerStatus:
    """How far a processor has read a queue, and how many messages it has not read."""

    queue: str
    position: int
    lag: int


@dataclass(frozen=True)
class ProcessorStatus:
    """The state of a processor."""

    pipeline: str
    processor: str
    kind: str
    generation: int
    rebuilding: bool
    steps: int
    messages_in: int
    messages_out: int
    last_step_at: datetime | None
    last_step_seconds: float | None
    error: str | None
    error_at: datetime | None
    #: when it was retired: retention and alarms ignore it
    retired_at: datetime | None
    tailers: tuple[TailerStatus, ...]

    @property
    def lag(self) -> int:
        """How many messages it has not read, counted up to a hundred thousand for each queue."""
        return sum(one.lag for one in self.tailers)


def processors(store: Store) -> list[ProcessorStatus]:
    """Return the state of every processor that has run on this database."""
    return [
        replace(one, tailers=tuple(_with_lag(store, tailer) for tailer in one.tailers))
        for one in store.run(listed_processors())
    ]


def retire(store: Store, pipeline: str, processor: str) -> None:
    """Retire a processor that was removed from its pipeline: retention and alarms ignore it.

    If it comes back, it goes on from where it was. A processor that runs is refused.
    """
    check_text("pipeline", pipeline)
    check_text("processor", processor)
    expected = None
    with store.transaction() as transaction:
        if not transaction.run(hold_off(pipeline, processor)):
            expected = "one that does not run: remove it from its pipeline, and start that again"
        elif not transaction.run(retire_processor(pipeline, processor)):
            expected = "a pipeline and a processor that `penstock pipelines` lists"
    if expected:
        raise ValidationError("processor", f"{pipeline}.{processor}", expected)


def listed_processors() -> Operation[list[ProcessorStatus]]:
    """Return the processors of all pipelines, with their tailers and no lag."""
    return call(
        "processors",
        """
        select p.pipeline, p.processor, p.kind, p.generation, p.rebuilding, s.steps, s.messages_in,
          s.messages_out, s.last_step_at, s.last_step_seconds, p.error, p.error_at, p.retired_at,
          s.tailers
        from penstock.processors p
        cross join lateral penstock.latest_processor_progress(p.pipeline, p.processor) s
        order by p.pipeline, p.processor
        """,
        (),
        lambda rows: [_status(row) for row in rows],
    )


def retire_processor(pipeline: str, processor: str) -> Operation[bool]:
    """Retire a processor. Return False if there is none of this name."""
    sql, facts = "select penstock.retire_processor(%s, %s)", (pipeline, processor)
    return call("retire_processor", sql, facts, only_value)


def _status(row: Row) -> ProcessorStatus:
    placed = [TailerStatus(queue, position, 0) for queue, position in sorted(row[-1].items())]
    return ProcessorStatus(*(*row[:-1], tuple(placed)))


def _with_lag(store: Store, tailer: TailerStatus) -> TailerStatus:
    target = queue_target(tailer.queue)
    head = store.run(planning.head(target))
    return replace(tailer, lag=store.run(count_up_to(target, tailer.position, head, MOST)))
