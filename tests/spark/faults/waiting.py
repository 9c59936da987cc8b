"""Waiting for a state of the database, without taking the processor from what is waited for."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql
from pyspark.sql.streaming.query import StreamingQuery

Running = Future[Any] | StreamingQuery
PATIENCE = 240  # seconds
DELIVERIES = "deliveries"  # written in the transaction that publishes
STAGINGS = "stagings"  # written when rows are staged, and when they are cleaned up

_BLOCKED = (
    "select count(*) >= %s from pg_stat_activity where datname = current_database()"
    " and wait_event_type = 'Lock'"
)
_STAGED = "select count(*) >= %s from penstock.stagings"
_DELIVERED = "select count(*) >= %s from penstock.deliveries"


class EndedEarly(AssertionError):
    """What should run meanwhile has ended, perhaps with an error."""


def wait_until(
    url: str, question: str, arguments: Sequence[object] = (), *running: Running
) -> None:
    """Ask the server now and then until the answer is true; not if what should run has ended."""
    deadline = time.monotonic() + PATIENCE
    with psycopg.connect(url, autocommit=True) as connection:
        while connection.execute(question.encode(), arguments).fetchone() != (True,):
            assert time.monotonic() < deadline, f"in vain: {question} {arguments}"
            for one in running:
                _check_running(one)
            time.sleep(0.02)


def _check_running(one: Running) -> None:
    ended = one.done() if isinstance(one, Future) else not one.isActive
    if ended:
        raise EndedEarly(f"ended early: {one.exception()}")


def wait_until_blocked(url: str, count: int, *running: Running) -> None:
    """Return once so many connections wait for a lock."""
    wait_until(url, _BLOCKED, (count,), *running)


def wait_until_staged(url: str, count: int, *running: Running) -> None:
    """Return once so many tasks have staged their rows."""
    wait_until(url, _STAGED, (count,), *running)


def wait_until_delivered(url: str, count: int) -> None:
    """Return once so many deliveries are published."""
    wait_until(url, _DELIVERED, (count,))


@contextmanager
def held(url: str, table: str) -> Iterator[None]:
    """Let nobody write to a table meanwhile: whoever wants to waits."""
    lock = sql.SQL("lock table penstock.{} in share mode").format(sql.Identifier(table))
    with psycopg.connect(url) as connection:
        connection.execute(lock)
        yield


@contextmanager
def category_held(url: str, category: str) -> Iterator[None]:
    """Let nobody write to a category meanwhile: whoever wants to waits."""
    with psycopg.connect(url) as connection:
        connection.execute("select penstock.lock_categories(%s)", ([category],))
        yield


def end_blocked(url: str) -> None:
    """End the connections that wait for a lock, as the network would whose client is gone."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "select pg_terminate_backend(pid, 60000) from pg_stat_activity"
            " where datname = current_database() and wait_event_type = 'Lock'"
        )
