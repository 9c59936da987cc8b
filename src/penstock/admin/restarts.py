"""Requests to start a pipeline from scratch, made where the pipeline's code is not.

Only a run has the pipeline's graph, which says who begins again at which positions, and holds the
locks that this needs. So a request is a message, and a run does it: one that follows the log within
a second, after the steps under way; otherwise the next one, before its first step.

The stream `{pipeline}:restart-requests` has the requests and what became of them. A request is open
as long as it is the last message. The run writes `Restarted` in the transaction in which the
processors begin again, after the request that it has found: so a request has one effect, whatever
is killed meanwhile, and one that is withdrawn has none.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

from psycopg.types.json import Jsonb

from penstock.database.operation import Operation, Row, call

REQUESTED = "RestartRequested"
RESTARTED, REFUSED, WITHDRAWN = "Restarted", "RestartRefused", "RestartWithdrawn"
_STATES = {REQUESTED: "open", RESTARTED: "done", REFUSED: "refused", WITHDRAWN: "withdrawn"}
#: the last message of a pipeline's stream
_LAST: LiteralString = """
  select m.stream_name, m.type, m.position, m.time, m.data from message_store.messages m
  where m.stream_name = %s order by m.position desc limit 1"""


@dataclass(frozen=True, slots=True)
class RestartRequest:
    """The last request to start a pipeline from scratch, and what became of it."""

    #: open, done, refused or withdrawn
    state: str
    requested_by: str
    #: when it was requested, if it is open; otherwise, when it was answered
    since: datetime
    #: why a run has refused it
    reason: str | None
    #: the position of the last message in the stream
    version: int


def request_stream(pipeline: str) -> str:
    """Return the stream of a pipeline's requests."""
    return f"{pipeline}:restart-requests"


def last_request(pipeline: str) -> Operation[RestartRequest | None]:
    """Return the last request of a pipeline, or None if there was none."""
    sql: LiteralString = (
        f"select l.type, l.position, l.time at time zone 'UTC', l.data from ({_LAST}) l"  # noqa: S608
    )

    def decode(rows: list[Row]) -> RestartRequest | None:
        if not rows or rows[0][0] not in _STATES:
            return None
        type, version, time, data = rows[0]
        by, reason = str(data.get("requested_by")), data.get("reason")
        return RestartRequest(_STATES[type], by, time, reason, version)

    return call("last_restart_request", sql, (request_stream(pipeline),), decode)


def is_requested(pipeline: str) -> Operation[bool]:
    """Return whether a request of a pipeline is open."""
    sql: LiteralString = f"select from ({_LAST}) l where l.type = %s"
    return call("restart_is_requested", sql, (request_stream(pipeline), REQUESTED), bool)


def answer(pipeline: str, type: str, **facts: Any) -> Operation[bool]:
    """Write what became of the open request; return False if there is none.

    Raises `WrongExpectedVersion` if somebody else answers it at the same time.
    """
    sql: LiteralString = (
        "select message_store.write_message("  # noqa: S608
        "gen_random_uuid()::varchar, l.stream_name, %s, l.data || %s::jsonb, null, l.position)"
        f" from ({_LAST}) l where l.type = %s"
    )
    arguments = (type, Jsonb(facts), request_stream(pipeline), REQUESTED)
    return call("answer_restart_request", sql, arguments, bool)
