"""One run of a pipeline at a time, wherever it runs: a lock of the database's, held by a session.

It keeps two runs from doing the same work twice. Nothing depends on it: a run that lost its lock is
refused when it commits.

Each processor of a run holds a lock of its own besides, shared, so that others can tell whether it
is among those that run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg

from penstock.database.execute import typed_errors
from penstock.errors import PipelineRunning
from penstock.pipeline.connections import Place, connect
from penstock.process import this_process

_CLASS = 1885693287  # our third class of advisory locks
_PROCESSOR = 1885693288  # and our fourth
ASK_AGAIN = 0.2  # seconds, while another one runs


class RunLock:
    """The right to run a pipeline, until it is released or the process ends."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def release(self) -> None:
        """Let others run it, from this moment on."""
        # a session that is only closed keeps its lock a little longer; one that is lost has none
        with suppress(psycopg.Error):
            self._connection.execute("select pg_advisory_unlock_all()")
        self._connection.close()


def lock_run(
    place: Place, pipeline: str, *, wait: bool = False, stopped: Callable[[], bool] = lambda: False
) -> RunLock:
    """Return the lock, or say who has it: at once, or if it waits, when it is stopped."""
    connection = connect(place)
    name = f"penstock run {pipeline} on {this_process()}"
    with typed_errors(place.where):
        connection.execute("select set_config('application_name', %s, false)", (name[:63],))
        while not _try_lock(connection, pipeline):
            if not wait or stopped():
                holder = _holder(connection, pipeline)
                connection.close()
                raise PipelineRunning(pipeline, holder)
            time.sleep(ASK_AGAIN)
    return RunLock(connection)


def show_running(connection: psycopg.Connection[Any], pipeline: str, processor: str) -> None:
    """Let others see that a processor runs, as long as this connection is open."""
    name = f"{pipeline}.{processor}"
    connection.execute("select pg_advisory_lock_shared(%s, hashtext(%s))", (_PROCESSOR, name))


def hold_off(connection: psycopg.Connection[Any], pipeline: str, processor: str) -> bool:
    """Keep a processor from starting until the transaction ends; False if it runs already."""
    name = f"{pipeline}.{processor}"
    row = connection.execute(
        "select pg_try_advisory_xact_lock(%s, hashtext(%s))", (_PROCESSOR, name)
    ).fetchone()
    return row == (True,)


def _try_lock(connection: psycopg.Connection[Any], pipeline: str) -> bool:
    row = connection.execute(
        "select pg_try_advisory_lock(%s, hashtext(%s))", (_CLASS, pipeline)
    ).fetchone()
    return bool(row and row[0])


def _holder(connection: psycopg.Connection[Any], pipeline: str) -> str:
    row = connection.execute(
        "select s.application_name, s.pid from pg_locks l join pg_stat_activity s using (pid)"
        " where l.locktype = 'advisory' and l.database = s.datid"
        " and s.datname = current_database()"
        " and l.classid = %s and l.objid = hashtext(%s)::oid"
        " and l.objsubid = 2 and l.granted",
        (_CLASS, pipeline),
    ).fetchone()
    return f"{row[0]}, server process {row[1]}" if row else "it ended at this very moment"
