"""The connections of a run: one that holds its lock, and one for the steps of each processor.

Everything that a run asks of the database is an operation, run here: inside the store's
interceptors (`around`) and with typed errors. Two things are sent past it on the same connection,
since they have no rows to answer with: rows that are copied, and the tables of upserts and
projections that are created.

A pipeline has one run at a time, wherever it runs. Two kinds of advisory locks ensure that.

The lock of a run is held by a connection of its own. The runner uses that connection several times
a second, so a run notices soon that the server has ended the session. It takes the lock again; if
another run holds it by then, this one ends.

The lock of a processor is held by the connection that commits its steps. As long as a step of a
processor can be committed, no other run can begin one: a run that took over the run's lock waits
here until the first run has finished its step, so no function is called twice. A connection that is
lost has lost its lock too, and cannot commit.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import psycopg

from penstock.admin.processors import PROCESSOR as _PROCESSOR
from penstock.admin.processors import RUN as _RUN
from penstock.database.execute import execute
from penstock.database.interceptor import Interceptor, intercepted
from penstock.database.isolation import limits
from penstock.database.operation import Operation, call, only_value
from penstock.database.server_errors import typed_errors
from penstock.errors import PenstockError, PipelineRunning, RunLockLost
from penstock.loops.signals import this_process
from penstock.spark.connections import DatabaseRef, connect, connected

Result = TypeVar("Result")
LONGEST_NAME = 63  # bytes of an application_name that PostgreSQL keeps
POLL_INTERVAL = 0.2  # seconds between two attempts to take a lock
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunConnection:
    """A psycopg connection on which a run executes operations."""

    raw: psycopg.Connection[Any]
    #: host, port and database, for an error message
    where: str
    interceptors: Sequence[Interceptor] = ()
    #: how to sign in to the warehouse of the archive
    lake_options: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    #: the maximum duration of a transaction, in seconds
    max_write_seconds: float | None = None

    def run(self, operation: Operation[Result]) -> Result:
        """Run an operation and return its result."""
        with intercepted(self.interceptors, operation.name, operation.facts) as call:
            # not prepared: many statements contain literals, and no two of them are alike
            call.result = execute(self.raw, operation, prepare=False, where=self.where)
        return cast(Result, call.result)

    @contextmanager
    def transaction(self, *, roll_back: bool = False) -> Iterator[None]:
        """Commit the block at its end, unless it raises; or roll it back in any case."""
        with typed_errors(self.where), self.raw.transaction(force_rollback=roll_back):
            if self.max_write_seconds is not None:
                bounds = limits(self.raw.info.server_version, int(self.max_write_seconds * 1000))
                self.raw.execute("; ".join(bounds).encode())
            yield


@contextmanager
def bare_connection(database: DatabaseRef) -> Iterator[RunConnection]:
    """Lend a connection without interceptors, which may not be able to travel to an executor."""
    with connected(database) as raw:
        yield RunConnection(raw, database.where, lake_options=database.settings.lake_options)


def open_connection(
    database: DatabaseRef, label: str, interceptors: Sequence[Interceptor] = ()
) -> RunConnection:
    """Return a connection whose name in `pg_stat_activity` says what it is for."""
    settings = database.settings
    options, most = settings.lake_options, settings.max_write_seconds
    connection = RunConnection(connect(database), database.where, interceptors, options, most)
    name = f"penstock {label} on {this_process()}"
    sql = "select set_config('application_name', %s, false)"
    connection.run(call("set_application_name", sql, (name[:LONGEST_NAME],), only_value))
    return connection


@dataclass
class RunLock:
    """The right to run a pipeline, until it is released or the process ends."""

    database: DatabaseRef
    pipeline: str
    connection: RunConnection
    #: the server process of the connection, for when it is lost
    pid: int

    def regain(self) -> None:
        """Take the lock again after its session was lost; raise if another run has it."""
        self.connection.raw.close()
        interceptors = self.connection.interceptors
        connection = open_connection(self.database, f"run {self.pipeline}", interceptors)
        _end_session(connection, _RUN, self.pipeline, self.pid)
        if connection.run(try_lock(_RUN, self.pipeline)):
            self.connection, self.pid = connection, connection.raw.info.backend_pid
            return
        with connection.raw:
            _, found = connection.run(holder(_RUN, self.pipeline))
        raise RunLockLost(self.pipeline, found)

    def release(self) -> None:
        """Let others run the pipeline, from this moment on."""
        _unlock(self.connection)
        self.connection.raw.close()


def lock_run(
    database: DatabaseRef,
    pipeline: str,
    stopped: Callable[[], bool] = lambda: False,
    interceptors: Sequence[Interceptor] = (),
    *,
    wait: bool = False,
) -> RunLock:
    """Return the lock. Raise `PipelineRunning` if another run has it and this one may not wait."""
    connection = open_connection(database, f"run {pipeline}", interceptors)
    while not connection.run(try_lock(_RUN, pipeline)):
        if not wait or stopped():
            with connection.raw:
                _, found = connection.run(holder(_RUN, pipeline))
            raise PipelineRunning(pipeline, found)
        time.sleep(POLL_INTERVAL)
    return RunLock(database, pipeline, connection, connection.raw.info.backend_pid)


@dataclass
class ProcessorLocks:
    """The right to run steps of a processor, held by the connection that commits them."""

    database: DatabaseRef
    pipeline: str
    stopped: Callable[[], bool]
    interceptors: Sequence[Interceptor] = ()
    #: the server process that held the lock, by processor
    _last: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def connection(self, *processors: str) -> Iterator[RunConnection | None]:
        """Lend a connection that holds the locks of these processors; None if stopped before."""
        label = f"step {self.pipeline}" + (f".{processors[0]}" if len(processors) == 1 else "")
        connection = open_connection(self.database, label, self.interceptors)
        with connection.raw, typed_errors(connection.where):
            locked = all(self._lock(connection, one) for one in processors)
            try:
                yield connection if locked else None
            finally:
                _unlock(connection)

    def _lock(self, connection: RunConnection, processor: str) -> bool:
        """Wait for the lock. Return whether it came before the run was stopped."""
        name, found = f"{self.pipeline}.{processor}", None
        if processor in self._last:  # a session may outlive its client where the network is cut
            _end_session(connection, _PROCESSOR, name, self._last[processor])
        while not connection.run(try_lock(_PROCESSOR, name)):
            if self.stopped():
                return False
            if found is None:
                _, found = connection.run(holder(_PROCESSOR, name))
                log.warning("%s waits until another run has finished its step: %s", name, found)
            time.sleep(POLL_INTERVAL)
        self._last[processor] = connection.raw.info.backend_pid
        return True


def try_lock(kind: int, name: str) -> Operation[bool]:
    """Take a lock for the session, if nobody has it. Return whether it was taken."""
    sql = "select pg_try_advisory_lock(%s, hashtext(%s))"
    return call("try_lock", sql, (kind, name), only_value)


def holder(kind: int, name: str) -> Operation[tuple[int | None, str]]:
    """Return the server process that holds a lock, and what to call its session."""
    return call(
        "lock_holder",
        "select s.pid, s.application_name || ', server process ' || s.pid"
        " from pg_locks l join pg_stat_activity s using (pid)"
        " where l.locktype = 'advisory' and l.database = s.datid and s.datname = current_database()"
        " and l.classid = %s and l.objid = hashtext(%s)::oid and l.objsubid = 2 and l.granted",
        (kind, name),
        lambda rows: (rows[0][0], rows[0][1]) if rows else (None, "it has just ended"),
    )


def _unlock(connection: RunConnection) -> None:
    # a session that is only closed keeps its lock a little longer; one that is lost has none
    with suppress(PenstockError, psycopg.Error):
        connection.run(call("unlock", "select pg_advisory_unlock_all()", (), lambda rows: None))


def _end_session(connection: RunConnection, kind: int, name: str, pid: int) -> None:
    """End a session of this run if the server has not noticed yet that it was lost."""
    found, _ = connection.run(holder(kind, name))
    if found == pid:
        sql = "select pg_terminate_backend(%s, 5000)"  # milliseconds that it may take to end
        connection.run(call("end_session", sql, (pid,), only_value))
