"""Connections and servers that die under a batch: nobody is told of success that is not there."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event
from typing import Any
from uuid import UUID

import psycopg
import pytest

from penstock import Message, UnavailableError, new_id
from tests.both_ways import Way
from tests.log.meeting import meeting
from tests.racing import pause, wait_until_blocked
from tests.servers import own_server

pytestmark = pytest.mark.timeout(180)
WRITERS = 16
#: the sessions that run a batch
BATCHES = (
    "select pg_terminate_backend(pid) from pg_stat_activity"
    " where datname = current_database() and state = 'active' and query like '%write_batch(%'"
    " and pid <> pg_backend_pid()"
)


@dataclass(frozen=True)
class Written:
    """A write, and what its caller was told: a position, or None if it was an error."""

    id: UUID
    stream_name: str
    position: int | None


def write_until(store: Any, done: Event, number: int, least: int) -> list[Written]:
    """Write to two streams that others write to as well, until told to stop."""
    made: list[Written] = []
    while not done.is_set() or len(made) < least:
        id, stream_name = new_id(), f"account-{number % 4}"
        try:
            position = store.write_message(stream_name, "Paid", id=id)
        except UnavailableError:
            position = None
        made.append(Written(id, stream_name, position))
    return made


def under_load(store: Any, fault: Callable[[], None], times: int) -> list[Written]:
    """Let many write at once through so many faults; return all that they wrote."""
    done = Event()
    with ThreadPoolExecutor(WRITERS) as threads:
        writers = [threads.submit(write_until, store, done, n, 20) for n in range(WRITERS)]
        try:
            for _ in range(times):
                fault()
        finally:
            done.set()
        return [one for writer in writers for one in writer.result()]


def check(store: Any, url: str, made: list[Written]) -> None:
    """Fail if a caller was told of what is not there, or a retry gives another position."""
    with psycopg.connect(url) as connection:
        rows = connection.execute("select id, stream_name, position from message_store.messages")
        log = {id: (stream_name, position) for id, stream_name, position in rows}
    for one in made:
        if one.position is not None:
            assert log.get(one.id) == (one.stream_name, one.position)
    unsure = [one for one in made if one.position is None]
    for one in unsure:
        position = store.write_message(one.stream_name, "Paid", id=one.id)
        assert (one.stream_name, position) == log.get(one.id, (one.stream_name, position))
    for stream_name in {one.stream_name for one in made}:
        own = [one for one in made if one.stream_name == stream_name]
        assert store.stream_version(stream_name) == len(own) - 1


def test_killed_sessions_lose_nothing_that_was_acknowledged(way: Way, database_url: str) -> None:
    killed: list[int] = []

    def kill() -> None:
        with psycopg.connect(database_url, autocommit=True) as connection:
            while not (found := connection.execute(BATCHES).fetchall()):
                pause()
            killed.append(len(found))

    with way.connect(database_url) as store:
        made = under_load(store, kill, 12)
        check(store, database_url, made)

    assert sum(killed) >= 12


def test_a_killed_server_loses_nothing_that_was_acknowledged(way: Way) -> None:
    with own_server() as machine:
        url = machine.start()
        with way.connect(url) as store:
            made = under_load(store, machine.crash, 2)
            check(store, url, made)

    assert any(one.position is not None for one in made)


def test_a_session_killed_in_mid_batch_is_replaced_and_then_the_error_reaches_each_caller(
    way: Way, database_url: str
) -> None:
    with way.connect(database_url) as store, meeting(store, database_url) as meet:
        with psycopg.connect(database_url) as holder:
            messages = [Message("Opened"), Message("Opened")]
            calls: list[Future[Any]] = [
                meet.call(store.append, messages[0]),
                meet.call(store.append, messages[1]),
            ]
            holder.execute(
                "insert into message_store.messages (id, stream_name, position, type)"
                " values (%s, 'holder-2', 0, 'Held')",
                (messages[1].id,),
            )
            meet.end()
            for _ in range(2):  # it is sent once more, on another connection
                wait_until_blocked(database_url)
                with psycopg.connect(database_url) as killer:
                    killer.execute(BATCHES)
            errors = [call.exception() for call in calls]
            holder.rollback()

        assert [isinstance(one, UnavailableError) for one in errors] == [True, True]
        assert [isinstance(one.__cause__, psycopg.Error) for one in errors if one] == [True, True]
        assert store.get_category_messages("Opened") == []
        again = [store.append(one).position for one in messages]
        assert [store.append(one).position for one in messages] == again
