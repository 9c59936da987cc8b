"""Promise 6 for groups: each call reads as many pages after thousands of calls as after a few.

A snapshot is held open meanwhile, so that nothing that was replaced or removed can be vacuumed.
Pages are counted by the server, over all tables and indexes of ours, call by call in one session.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from penstock import Store
from tests.groups.school import DeviceRemoved, DeviceSeen

SLACK = 25  # pages: indexes get a level, and between two rises of a floor a few dead rows are passed

PAGES = """
select coalesce(sum(pg_stat_get_xact_blocks_fetched(c.oid)), 0) from pg_class c
where c.relnamespace in ('message_store'::regnamespace, 'penstock'::regnamespace)
  and c.relkind in ('r', 'i')
"""


@contextmanager
def old_snapshot(url: str) -> Iterator[None]:
    """Hold a snapshot, in a transaction that has also written."""
    with psycopg.connect(url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("select pg_current_xact_id()")
        yield


class Caller:
    """One session of a worker, which counts the pages of each call."""

    def __init__(self, url: str, types: tuple[str, ...] = ("device.seen",), **options: Any) -> None:
        self.connection = psycopg.connect(url)
        self.types = list(types)
        self.options = options
        self.pages: dict[str, list[int]] = {}

    def call(self, name: str, sql: str, *arguments: Any) -> list[Any]:
        """Call, and note the pages that it read under this name."""
        before = self.read()
        rows = self.connection.execute(sql.encode(), arguments).fetchall()
        self.pages.setdefault(name, []).append(self.read() - before)
        self.connection.commit()
        return rows

    def read(self) -> int:
        """Return how many pages this session has read and not reported yet."""
        row = self.connection.execute(PAGES).fetchone()
        assert row is not None
        return int(row[0])

    def claim(self, name: str = "claim", lease: str = "30 seconds") -> dict[str, Any] | None:
        """Claim a partition with one message."""
        extra = "".join(f", {key} => '{value}'" for key, value in self.options.items())
        rows = self.call(
            name,
            "select claim, global_position from penstock.claim_next('group', '{device_id}', %s,"
            f" 'w', 1, %s{extra})",
            self.types,
            lease,
        )
        return rows[0][0] | {"position": rows[-1][1]} if rows else None

    def ack(self, claim: dict[str, Any]) -> None:
        """Acknowledge a claim."""
        self.call(
            "ack", "select penstock.ack('group', %s, %s, %s)",
            claim["offset_id"], claim["position"], claim["token"],
        )  # fmt: skip

    def release(self, claim: dict[str, Any], name: str = "release", **options: Any) -> None:
        """Give a claim back."""
        extra = "".join(f", {key} => %s" for key in options)
        self.call(
            name, f"select penstock.release('group', %s, %s{extra})",
            claim["offset_id"], claim["token"], *options.values(),
        )  # fmt: skip

    def extend(self, claim: dict[str, Any]) -> None:
        """Keep a claim."""
        self.call(
            "extend", "select penstock.extend('group', %s, %s, '30 seconds')",
            claim["offset_id"], claim["token"],
        )  # fmt: skip

    def handle(self) -> None:
        """Claim a partition, give it back, claim it again, keep it and acknowledge it."""
        claim = self.claim()
        assert claim is not None
        self.release(claim)
        claim = self.claim()
        assert claim is not None
        self.extend(claim)
        self.ack(claim)

    def close(self) -> None:
        self.connection.close()



def largest(caller: Caller) -> dict[str, int]:
    """Return the most pages that each call has read, and begin anew."""
    pages, caller.pages = caller.pages, {}
    return {name: max(read) for name, read in pages.items()}


def one_device(number: int) -> str:
    return "hot"


def many_devices(number: int) -> str:
    return f"device {number}"


def two_hot_of_many(number: int) -> str:
    return f"device {number}" if number % 3 == 0 else f"hot {number % 3}"


def append(store: Store, devices: list[str]) -> None:
    for first in range(0, len(devices), 500):
        store.append([DeviceSeen(device_id=one) for one in devices[first : first + 500]])


def route_all(caller: Caller) -> None:
    caller.connection.execute(
        "do $$ begin while (select penstock.route(g) from penstock.consumer_groups g) loop end loop;"
        " end $$"
    )
    caller.connection.commit()


@pytest.fixture
def group(store: Store) -> Store:
    store.declare(DeviceSeen, DeviceRemoved)
    store.register_consumer_group("group")
    return store


FEW, MANY = 60, 1500


@pytest.mark.parametrize("order", ["oldest", "round_robin"])
@pytest.mark.parametrize("devices", [one_device, many_devices, two_hot_of_many])
def test_no_call_reads_more_after_many_were_handled_under_an_old_snapshot(
    group: Store, database_url: str, devices: Callable[[int], str], order: str
) -> None:
    append(group, [devices(number) for number in range(FEW + MANY + 60)])
    first = Caller(database_url, claim_order=order)
    others = [Caller(database_url, claim_order=order) for _ in range(2)]
    callers = [first, *others]
    with old_snapshot(database_url):
        claim = first.claim()  # names the types
        assert claim is not None
        first.release(claim)
        route_all(first)
        read = []
        for handled in (FEW, MANY):
            for number in range(handled):
                caller = callers[number % 3]
                claim = caller.claim()
                assert claim is not None
                caller.ack(claim)
            for caller in callers:
                largest(caller)
            for number in range(24):
                callers[number % 2].handle()
            read.append([largest(caller) for caller in callers[:2]])

    for few, many in zip(*read, strict=True):
        assert {name: most for name, most in many.items() if most > few[name] + SLACK} == {}, few
    for caller in callers:
        caller.close()
