"""A message of the outbox in a list: of messages, and of what a join waits for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString
from uuid import UUID

from penstock.database.operation import Row


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """A message in a list."""

    id: UUID
    topic: str
    #: ready, asleep (until it is woken), in_progress, done or failed
    state: str
    due: datetime | None
    correlation_id: str | None
    attempts: int
    owner: str | None
    lease_until: datetime | None
    last_error: str | None
    created_at: datetime
    finished_at: datetime | None


COLUMNS: LiteralString = """
  o.id, o.topic, case when o.state = 'ready' and o.due is null then 'asleep' else o.state end,
  penstock.readable_moment(o.due), left(o.correlation_id, 1000), o.attempts, o.owner,
  penstock.readable_moment(o.lease_until), left(o.last_error, 2000),
  penstock.readable_moment(o.created_at), penstock.readable_moment(o.finished_at)"""


def as_row(row: Row) -> OutboxRow:
    """Return the message of a row with `COLUMNS`."""
    return OutboxRow(*row[:11])
