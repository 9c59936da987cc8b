"""What the checker compares: the log and the tables, and the results that the actors got."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from tests.chaos.names import STATES, TOTALS

Fact = dict[str, Any]
Connection = psycopg.Connection[tuple[Any, ...]]


@dataclass(frozen=True)
class Row:
    """A message of the log."""

    id: str
    stream: str
    type: str
    position: int
    #: its global position
    at: int
    data: dict[str, Any]

    @property
    def category(self) -> str:
        return self.stream.partition("-")[0]


@dataclass(frozen=True)
class OutboxRow:
    """A message of the outbox."""

    id: str
    topic: str
    state: str
    payload: dict[str, Any]


@dataclass(frozen=True)
class JoinRow:
    """A join as its own row tells it."""

    id: str
    expected: int
    attached: int
    completed: int
    failed: int
    status: str
    follow_up: str | None


@dataclass
class Evidence:
    """All of it. The facts are by actor, in the order of its lives."""

    log: list[Row] = field(default_factory=list)
    facts: dict[str, list[list[Fact]]] = field(default_factory=dict)
    #: by consumer, the offset it reads next
    sessions: dict[str, int] = field(default_factory=dict)
    outbox: list[OutboxRow] = field(default_factory=list)
    joins: list[JoinRow] = field(default_factory=list)
    #: join, message, and how the join counts it
    members: list[tuple[str, str, str]] = field(default_factory=list)
    #: by stream, what the pipeline's tables say; None if no pipeline ran
    totals: dict[str, int] | None = None
    states: dict[str, tuple[int, str]] | None = None

    def category(self, name: str) -> list[Row]:
        """Return the messages of a category, in the order of the log."""
        return [row for row in self.log if row.category == name]

    def stream(self, name: str) -> list[Row]:
        """Return the messages of a stream, in the order of the log."""
        return [row for row in self.log if row.stream == name]

    def lives(self, kind: str) -> Iterator[tuple[str, list[list[Fact]]]]:
        """Yield the actors of a kind, and the facts of each of their lives."""
        for name, lives in self.facts.items():
            if name.partition("-")[0] == kind:
                yield name, lives

    def noted(self, *facts: str) -> Iterator[Fact]:
        """Yield all facts of these kinds, or of any, whoever noted them."""
        for lives in self.facts.values():
            for life in lives:
                yield from (fact for fact in life if not facts or fact["fact"] in facts)


def gather(url: str, ledgers: Path) -> Evidence:
    """Read everything, from one state of the database."""
    with psycopg.connect(url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        return Evidence(
            _log(connection),
            read_facts(ledgers),
            dict(connection.execute("select consumer_id, next_offset from penstock.sessions")),
            _outbox(connection),
            _joins(connection),
            _members(connection),
            *_tables(connection),
        )


def _log(connection: Connection) -> list[Row]:
    return [
        Row(*row)
        for row in connection.execute(
            "select id::text, stream_name, type, position, global_position, data"
            " from message_store.messages order by global_position"
        )
    ]


def _outbox(connection: Connection) -> list[OutboxRow]:
    rows = connection.execute(
        "select id::text, topic, state, convert_from(payload, 'utf8') from penstock.outbox"
    )
    return [OutboxRow(id, topic, state, json.loads(text)) for id, topic, state, text in rows]


def _joins(connection: Connection) -> list[JoinRow]:
    return [
        JoinRow(*row)
        for row in connection.execute(
            "select join_id::text, expected_steps, attached_steps, completed_steps, failed_steps,"
            " status, follow_up_id::text from penstock.join_progress"
        )
    ]


def _members(connection: Connection) -> list[tuple[str, str, str]]:
    rows = connection.execute(
        "select join_id::text, message_id::text, status from penstock.join_members"
    )
    return [(join, message, status) for join, message, status in rows]


def _tables(
    connection: Connection,
) -> tuple[dict[str, int] | None, dict[str, tuple[int, str]] | None]:
    """Return the pipeline's tables, if it has made them."""
    made = connection.execute("select to_regclass(%s) is not null", (TOTALS,)).fetchone()
    if made != (True,):
        return None, None
    totals = connection.execute(
        sql.SQL("select stream_name, messages from {}").format(sql.Identifier(TOTALS))
    ).fetchall()
    states = connection.execute(
        sql.SQL("select stream_name, messages, last_key from {}").format(sql.Identifier(STATES))
    ).fetchall()
    return dict(totals), {stream: (count, key) for stream, count, key in states}


def read_facts(folder: Path) -> dict[str, list[list[Fact]]]:
    """Return what each actor has noted in each of its lives."""
    facts: dict[str, list[list[Fact]]] = {}
    for path in sorted(folder.glob("*.facts")):
        lines = path.read_text().split("\n")[:-1]  # a kill may have left half a line
        facts.setdefault(path.name.partition(".")[0], []).append([json.loads(one) for one in lines])
    return facts
