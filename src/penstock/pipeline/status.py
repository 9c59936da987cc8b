"""The state of pipelines, from the database alone: positions, lag, last step, errors."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from penstock.database.operation import call, only_value
from penstock.errors import ValidationError
from penstock.message import check_text
from penstock.pipeline.connection import hold_off
from penstock.pipeline.frames import queue_target
from penstock.spark.read import planning
from penstock.store import Store

MOST = 100_000  # lag is counted no further
_PROCESSORS = """
select p.pipeline, p.processor, p.kind, p.generation, p.rebuilding, s.steps, s.messages_in,
  s.messages_out, s.last_step_at, s.last_step_seconds, p.error, p.error_at, p.retired_at, s.tailers
from penstock.processors p
cross join lateral penstock.latest_processor_progress(p.pipeline, p.processor) s
order by p.pipeline, p.processor
"""


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
    found = []
    for *facts, positions in store.run(call("processors", _PROCESSORS, (), list)):
        tailers = tuple(_tailer(store, *one) for one in sorted(positions.items()))
        found.append(ProcessorStatus(*(*facts, tailers)))
    return found


def retire(store: Store, pipeline: str, processor: str) -> None:
    """Retire a processor that was removed from its pipeline: retention and alarms ignore it.

    If it comes back, it goes on from where it was. A processor that runs is refused.
    """
    check_text("pipeline", pipeline)
    check_text("processor", processor)
    sql, expected = "select penstock.retire_processor(%s, %s)", None
    with store.transaction() as transaction:
        if not transaction.run(hold_off(pipeline, processor)):
            expected = "one that does not run: remove it from its pipeline, and start that again"
        elif not transaction.run(call("retire_processor", sql, (pipeline, processor), only_value)):
            expected = "a pipeline and a processor that `penstock pipelines` lists"
    if expected:
        raise ValidationError("processor", f"{pipeline}.{processor}", expected)


def _tailer(store: Store, queue: str, position: int) -> TailerStatus:
    target = queue_target(queue, (), store.settings.lake_options)
    head = store.run(planning.head(target))
    lag = store.run(planning.count_up_to(target, position, head, MOST))
    return TailerStatus(queue, position, lag)
