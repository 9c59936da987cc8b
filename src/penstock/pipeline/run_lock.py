"""One run of a pipeline at a time, wherever it runs: two kinds of advisory locks.

The run's lock is held by a session of its own, which the runner uses several times a second, so it
notices soon if the server has ended that session. It takes the lock again; if another run has it by
then, this one is over.

Each processor's lock is held by the connection that commits its steps. As long as a step of a
processor can be committed, no other run can begin one: a run that was let in because the first lost
its lock waits here until the first has finished its step, so no function is called twice.
A connection that is lost has lost its lock too, and cannot commit.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg

from penstock.database.server_errors import typed_errors
from penstock.errors import PipelineRunning, RunLockLost
from penstock.loops.signals import this_process
from penstock.spark.connections import DatabaseRef, connect

log = logging.getLogger(__name__)
_RUN = 1885693287  # our third class of advisory locks
_PROCESSOR = 1885693288  # and our fourth
ASK_AGAIN = 0.2  # seconds, while another one runs

Connection = psycopg.Connection[Any]
_HOLDER = (
    "select s.application_name, s.pid from pg_locks l join pg_stat_activity s using (pid)"
    " where l.locktype = 'advisory' and l.database = s.datid and s.datname = current_database()"
    " and l.classid = %s and l.objid = hashtext(%s)::oid and l.objsubid = 2 and l.granted"
)


class RunLock:
    """The right to run a pipeline, until it is released or the process ends."""

    def __init__(self, place: DatabaseRef, pipeline: str, connection: Connection) -> None:
        self.connection = connection
        self._pid = connection.info.backend_pid
        self._place = place
        self._pipeline = pipeline

    def regain(self) -> None:
        """Take the lock again after its session was lost; raise if another run has it."""
        self.connection.close()
        connection = _connect(self._place, f"run {self._pipeline}")
        with typed_errors(self._place.where):
            _end_session(connection, _RUN, self._pipeline, self._pid)
            if _try_lock(connection, _RUN, self._pipeline):
                self.connection, self._pid = connection, connection.info.backend_pid
                return
            holder = _holder(connection, _RUN, self._pipeline)
        connection.close()
        raise RunLockLost(self._pipeline, holder)

    def release(self) -> None:
        """Let others run it, from this moment on."""
        _unlock(self.connection)
        self.connection.close()


def lock_run(
    place: DatabaseRef,
    pipeline: str,
    *,
    wait: bool = False,
    stopped: Callable[[], bool] = lambda: False,
) -> RunLock:
    """Return the lock, or say who has it: at once, or if it waits, when it is stopped."""
    connection = _connect(place, f"run {pipeline}")
    with typed_errors(place.where):
        while not _try_lock(connection, _RUN, pipeline):
            if not wait or stopped():
                holder = _holder(connection, _RUN, pipeline)
                connection.close()
                raise PipelineRunning(pipeline, holder)
            time.sleep(ASK_AGAIN)
    return RunLock(place, pipeline, connection)


class ProcessorLocks:
    """The right to run steps of a processor, held by the connection that commits them."""

    def __init__(self, place: DatabaseRef, pipeline: str, stopped: Callable[[], bool]) -> None:
        self._place = place
        self._pipeline = pipeline
        self._stopped = stopped
        self._last: dict[str, int] = {}  # the server process that held it last, by processor

    @contextmanager
    def connection(self, *processors: str) -> Iterator[Connection | None]:
        """Lend a connection that holds the locks of these processors; None if stopped before."""
        label = f"step {self._pipeline}" + (f".{processors[0]}" if len(processors) == 1 else "")
        with _connect(self._place, label) as connection, typed_errors(self._place.where):
            locked = all(self._lock(connection, one) for one in processors)
            try:
                yield connection if locked else None
            finally:
                _unlock(connection)

    def _lock(self, connection: Connection, processor: str) -> bool:
        """Wait for the lock. Return whether it came before the run was stopped."""
        name = f"{self._pipeline}.{processor}"
        if processor in self._last:  # it may outlive its client where the network is cut
            _end_session(connection, _PROCESSOR, name, self._last[processor])
        told = False
        while not _try_lock(connection, _PROCESSOR, name):
            if self._stopped():
                return False
            if not told:
                holder = _holder(connection, _PROCESSOR, name)
                log.warning("%s waits until another run has finished its step: %s", name, holder)
                told = True
            time.sleep(ASK_AGAIN)
        self._last[processor] = connection.info.backend_pid
        return True


def hold_off(connection: Connection, pipeline: str, processor: str) -> bool:
    """Keep a processor from starting until the transaction ends; False if it runs already."""
    name = f"{pipeline}.{processor}"
    row = connection.execute(
        "select pg_try_advisory_xact_lock(%s, hashtext(%s))", (_PROCESSOR, name)
    ).fetchone()
    return row == (True,)


def _connect(place: DatabaseRef, label: str) -> Connection:
    connection = connect(place)
    name = f"penstock {label} on {this_process()}"
    with typed_errors(place.where):
        connection.execute("select set_config('application_name', %s, false)", (name[:63],))
    return connection


def _try_lock(connection: Connection, kind: int, name: str) -> bool:
    row = connection.execute(
        "select pg_try_advisory_lock(%s, hashtext(%s))", (kind, name)
    ).fetchone()
    return row == (True,)


def _unlock(connection: Connection) -> None:
    # a session that is only closed keeps its lock a little longer; one that is lost has none
    with suppress(psycopg.Error):
        connection.execute("select pg_advisory_unlock_all()")


def _end_session(connection: Connection, kind: int, name: str, pid: int) -> None:
    """End a session of this run if the server has not noticed yet that it was lost."""
    holder = connection.execute(_HOLDER, (kind, name)).fetchone()
    if holder is not None and holder[1] == pid:
        connection.execute("select pg_terminate_backend(%s, 5000)", (pid,))


def _holder(connection: Connection, kind: int, name: str) -> str:
    row = connection.execute(_HOLDER, (kind, name)).fetchone()
    return f"{row[0]}, server process {row[1]}" if row else "it ended at this very moment"
