"""One run of a pipeline at a time, wherever it runs: two kinds of advisory locks.

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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

import psycopg

from penstock.database.interceptor import Interceptor
from penstock.database.operation import Operation, call, only_value
from penstock.database.server_errors import typed_errors
from penstock.errors import PenstockError, PipelineRunning, RunLockLost
from penstock.pipeline.connection import RunConnection, open_connection
from penstock.spark.connections import DatabaseRef

log = logging.getLogger(__name__)
_RUN = 1885693287  # our third class of advisory locks
_PROCESSOR = 1885693288  # and our fourth
POLL_INTERVAL = 0.2  # seconds between two attempts to take a lock


class Holder(NamedTuple):
    """The session that holds a lock."""

    application: str
    pid: int

    def __str__(self) -> str:
        return f"{self.application}, server process {self.pid}"


class RunLock:
    """The right to run a pipeline, until it is released or the process ends."""

    def __init__(self, database: DatabaseRef, pipeline: str, connection: RunConnection) -> None:
        self.connection = connection
        self._pid = connection.pid
        self._database = database
        self._pipeline = pipeline

    def regain(self) -> None:
        """Take the lock again after its session was lost; raise if another run has it."""
        self.connection.close()
        interceptors = self.connection.interceptors
        connection = open_connection(self._database, f"run {self._pipeline}", interceptors)
        _end_session(connection, _RUN, self._pipeline, self._pid)
        if connection.run(try_lock(_RUN, self._pipeline)):
            self.connection, self._pid = connection, connection.pid
            return
        found = _holder(connection, _RUN, self._pipeline)
        connection.close()
        raise RunLockLost(self._pipeline, found)

    def release(self) -> None:
        """Let others run the pipeline, from this moment on."""
        _unlock(self.connection)
        self.connection.close()


def lock_run(
    database: DatabaseRef,
    pipeline: str,
    *,
    wait: bool = False,
    stopped: Callable[[], bool] = lambda: False,
    interceptors: Sequence[Interceptor] = (),
) -> RunLock:
    """Return the lock. Raise `PipelineRunning` if another run has it and this one may not wait."""
    connection = open_connection(database, f"run {pipeline}", interceptors)
    while not connection.run(try_lock(_RUN, pipeline)):
        if not wait or stopped():
            found = _holder(connection, _RUN, pipeline)
            connection.close()
            raise PipelineRunning(pipeline, found)
        time.sleep(POLL_INTERVAL)
    return RunLock(database, pipeline, connection)


class ProcessorLocks:
    """The right to run steps of a processor, held by the connection that commits them."""

    def __init__(
        self,
        database: DatabaseRef,
        pipeline: str,
        stopped: Callable[[], bool],
        interceptors: Sequence[Interceptor] = (),
    ) -> None:
        self._database = database
        self._pipeline = pipeline
        self._stopped = stopped
        self._interceptors = interceptors
        self._last: dict[str, int] = {}  # the server process that held the lock, by processor

    @contextmanager
    def connection(self, *processors: str) -> Iterator[RunConnection | None]:
        """Lend a connection that holds the locks of these processors; None if stopped before."""
        label = f"step {self._pipeline}" + (f".{processors[0]}" if len(processors) == 1 else "")
        connection = open_connection(self._database, label, self._interceptors)
        with connection.raw, typed_errors(connection.where):
            locked = all(self._lock(connection, one) for one in processors)
            try:
                yield connection if locked else None
            finally:
                _unlock(connection)

    def _lock(self, connection: RunConnection, processor: str) -> bool:
        """Wait for the lock. Return whether it came before the run was stopped."""
        name = f"{self._pipeline}.{processor}"
        if processor in self._last:  # a session may outlive its client where the network is cut
            _end_session(connection, _PROCESSOR, name, self._last[processor])
        logged = False
        while not connection.run(try_lock(_PROCESSOR, name)):
            if self._stopped():
                return False
            if not logged:
                found = _holder(connection, _PROCESSOR, name)
                log.warning("%s waits until another run has finished its step: %s", name, found)
                logged = True
            time.sleep(POLL_INTERVAL)
        self._last[processor] = connection.pid
        return True


def try_lock(kind: int, name: str) -> Operation[bool]:
    """Take a lock for the session, if nobody has it. Return whether it was taken."""
    sql = "select pg_try_advisory_lock(%s, hashtext(%s))"
    return call("try_lock", sql, (kind, name), only_value)


def hold_off(pipeline: str, processor: str) -> Operation[bool]:
    """Keep a processor from starting until the transaction ends; False if it runs already."""
    sql = "select pg_try_advisory_xact_lock(%s, hashtext(%s))"
    return call("hold_off", sql, (_PROCESSOR, f"{pipeline}.{processor}"), only_value)


def holder(kind: int, name: str) -> Operation[Holder | None]:
    """Return the session that holds a lock."""
    return call(
        "lock_holder",
        "select s.application_name, s.pid from pg_locks l join pg_stat_activity s using (pid)"
        " where l.locktype = 'advisory' and l.database = s.datid and s.datname = current_database()"
        " and l.classid = %s and l.objid = hashtext(%s)::oid and l.objsubid = 2 and l.granted",
        (kind, name),
        lambda rows: Holder(*rows[0]) if rows else None,
    )


def _holder(connection: RunConnection, kind: int, name: str) -> str:
    found = connection.run(holder(kind, name))
    return str(found) if found else "it has just ended"


def _unlock(connection: RunConnection) -> None:
    # a session that is only closed keeps its lock a little longer; one that is lost has none
    with suppress(PenstockError, psycopg.Error):
        connection.run(call("unlock", "select pg_advisory_unlock_all()", (), lambda rows: None))


def _end_session(connection: RunConnection, kind: int, name: str, pid: int) -> None:
    """End a session of this run if the server has not noticed yet that it was lost."""
    found = connection.run(holder(kind, name))
    if found is not None and found.pid == pid:
        sql = "select pg_terminate_backend(%s, 5000)"  # milliseconds that it may take to end
        connection.run(call("end_session", sql, (pid,), only_value))
