"""How pipelines stand, from the database alone: positions, lag, last step, errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg.rows import dict_row

from penstock.errors import ValidationError
from penstock.message import check_text
from penstock.pipeline.frames import count_up_to, queue_target
from penstock.pipeline.run_lock import hold_off
from penstock.spark.connections import run
from penstock.spark.read import planning

MOST = 100_000  # lag is counted no further


@dataclass(frozen=True)
class TailerStatus:
    """How far a processor has read a queue, and how many messages it has before it."""

    queue: str
    position: int
    lag: int


@dataclass(frozen=True)
class ProcessorStatus:
    """How a processor stands."""

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
    #: since when nobody waits for it
    retired_at: datetime | None
    tailers: tuple[TailerStatus, ...]

    @property
    def lag(self) -> int:
        """How many messages wait for it, counted up to a hundred thousand for each queue."""
        return sum(one.lag for one in self.tailers)


_LIST = """
select p.pipeline, p.processor, p.kind, p.generation, p.rebuilding, s.steps, s.messages_in,
  s.messages_out, s.last_step_at, s.last_step_seconds, p.error, p.error_at, p.retired_at, s.tailers
from penstock.processors p
cross join lateral penstock.latest_processor_progress(p.pipeline, p.processor) s
order by p.pipeline, p.processor
"""


def processors(connection: psycopg.Connection[Any]) -> list[ProcessorStatus]:
    """Return how every processor stands that the database knows."""
    rows = connection.cursor(row_factory=dict_row).execute(_LIST).fetchall()
    return [
        ProcessorStatus(**{**row, "tailers": _tailers(connection, row["tailers"])}) for row in rows
    ]


def retire(connection: psycopg.Connection[Any], pipeline: str, processor: str) -> None:
    """Let a processor that was taken out of its pipeline hold up nobody: retention, lag, alarms.

    If it comes back, it goes on from where it stood. One that runs has not been taken out.
    """
    names = check_text("pipeline", pipeline), check_text("processor", processor)
    with connection.transaction():
        if not hold_off(connection, pipeline, processor):
            expected = "one that does not run: take it out of its pipeline, and start that again"
            raise ValidationError("processor", f"{pipeline}.{processor}", expected)
        row = connection.execute("select penstock.retire_processor(%s, %s)", names).fetchone()
    if row != (True,):
        expected = "a pipeline and a processor that `penstock pipelines` lists"
        raise ValidationError("processor", f"{pipeline}.{processor}", expected)


def _tailers(
    connection: psycopg.Connection[Any], positions: Mapping[str, int]
) -> tuple[TailerStatus, ...]:
    found = []
    for queue, position in sorted(positions.items()):
        target = queue_target(queue)
        head = run(connection, planning.head(target))
        lag = count_up_to(connection, target, position, head, MOST)
        found.append(TailerStatus(queue, position, lag))
    return tuple(found)
