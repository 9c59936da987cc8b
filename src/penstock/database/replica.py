"""Reads on a standby: at which point, on which standby, and when to try it again.

A standby has no record of open writers, so the primary is asked for a point: the watermark, and
then the end of the write-ahead log. Once the standby has replayed to that end, it has every message
up to the watermark. `sql/penstock/09_replicas.sql` has the rules; this is their client, without
I/O.

The client waits for the replay, between statements: a statement that waited would hold a snapshot,
and the replay may have to wait for that.
"""

from __future__ import annotations

import threading
import time
from typing import NamedTuple
from uuid import UUID

import msgspec.structs

from penstock.database.operation import Operation, Result, Statement, call
from penstock.errors import (
    AuthenticationFailed,
    DatabaseUnreachable,
    PoolExhausted,
    ReplicaUnavailable,
    TransactionConflict,
    WrongReplica,
    first_line,
)

SHORTEST_PAUSE, LONGEST_PAUSE = 0.001, 0.05  # seconds between two looks at what was replayed
#: after so many seconds the primary is asked to flush its log, which is not sent before that
FLUSH_AFTER = 0.01
SHORTEST_REST, LONGEST_REST = 1.0, 30.0  # seconds before a replica that failed is tried again


class ReadPoint(NamedTuple):
    """Up to where a standby may be read, once it has replayed to a location."""

    watermark: int
    #: the position and id of the last message up to there; None in an empty log
    last_position: int | None
    last_id: UUID | None
    #: the end of the primary's write-ahead log, after the watermark was taken
    lsn: str


class Cluster(NamedTuple):
    """Which cluster a server belongs to. None where its role may not know."""

    system_identifier: int | None
    timeline: int | None
    log_id: UUID
    is_standby: bool


def read_point(resumes_at: int | None = None) -> Operation[ReadPoint]:
    """Ask the primary up to where a standby may be read."""
    return call(
        "read_point",
        "select watermark, last_position, last_id, lsn::text from penstock.read_point(%s)",
        (resumes_at,),
        lambda rows: ReadPoint(*rows[0]),
    )


def read_at(point: ReadPoint) -> Statement:
    """Return the statement that lets a standby be read at a point, in this transaction."""
    return Statement("select penstock.read_at(%s, %s, %s, %s::pg_lsn)", tuple(point))


def allow(point: ReadPoint) -> Operation[None]:
    """Let a standby be read at a point, in the transaction that is open."""
    return Operation("read_at", (read_at(point),), lambda rows: None)


def at(point: ReadPoint, operation: Operation[Result]) -> Operation[Result]:
    """Return the operation that reads a standby at a point."""
    return msgspec.structs.replace(operation, statements=(read_at(point), *operation.statements))


def flush_to(point: ReadPoint) -> Operation[None]:
    """Let the primary flush its log up to the point."""
    sql = "select penstock.flush_to(%s::pg_lsn)"
    return call("flush_to", sql, (point.lsn,), lambda rows: None)


def cluster() -> Operation[Cluster]:
    """Ask a server which cluster it belongs to."""
    sql = "select system_identifier, timeline, log_id, is_standby from penstock.cluster()"
    return call("cluster", sql, (), lambda rows: Cluster(*rows[0]))


def check_cluster(primary: Cluster, found: Cluster, where: str) -> None:
    """Raise unless the server is a standby of this primary, as far as both say."""
    if not found.is_standby:
        raise WrongReplica("it is not a standby, or was promoted", where)
    ids = (primary.system_identifier, found.system_identifier)
    if None not in ids and ids[0] != ids[1]:
        reason = f"it belongs to the cluster {ids[1]}, and the primary to {ids[0]}"
        raise WrongReplica(reason, where)
    if primary.log_id != found.log_id:
        reason = f"it has the log {found.log_id}, and the primary {primary.log_id}"
        raise WrongReplica(reason, where)
    if primary.timeline and found.timeline and found.timeline > primary.timeline:
        reason = f"it is on timeline {found.timeline}, and the primary on {primary.timeline}"
        raise WrongReplica(reason, where)


class replica_errors:  # noqa: N801, as other context managers are named
    """Raise `ReplicaUnavailable` for what a read on the primary would be spared."""

    __slots__ = ("_where",)

    def __init__(self, where: str) -> None:
        self._where = where

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, DatabaseUnreachable | PoolExhausted | AuthenticationFailed):
            raise ReplicaUnavailable(self._where, error.reason) from error
        if isinstance(error, TransactionConflict):  # with the replay: nothing else writes there
            raise ReplicaUnavailable(self._where, first_line(error)) from error


class Wait:
    """One read's wait for the replay: the pauses, and their end."""

    def __init__(self, longest: float) -> None:
        self._begun = time.monotonic()
        self._longest = longest
        self._pause = SHORTEST_PAUSE / 2
        self._has_flushed = False

    def pause_after(self, error: ReplicaUnavailable) -> float:
        """Return the seconds until the next look, or raise the error if the time is over."""
        left = self._begun + self._longest - time.monotonic()
        if not error.is_waiting or left <= 0:
            raise error
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        return min(self._pause, left)

    def wants_flush(self) -> bool:
        """Whether to let the primary flush its log now, which is done once."""
        due = not self._has_flushed and time.monotonic() - self._begun >= FLUSH_AFTER
        self._has_flushed = self._has_flushed or due
        return due


class Rest:
    """When a replica that failed is tried again: after a pause, by one caller."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until = 0.0
        self._pause = 0.0

    def is_over(self) -> bool:
        """Whether to use the replica. Of several callers after a pause, one is told to."""
        if not self._pause:
            return True
        with self._lock:
            now = time.monotonic()
            if now < self._until:
                return False
            self._until = now + self._pause
            return True

    def begin(self) -> None:
        """Note that the replica failed."""
        with self._lock:
            self._pause = min(max(2 * self._pause, SHORTEST_REST), LONGEST_REST)
            self._until = time.monotonic() + self._pause

    def end(self) -> None:
        """Note that the replica answered."""
        self._pause = 0.0
