"""Promise 6 for groups: each call reads as many pages after thousands of calls as after a few.

A snapshot is held open meanwhile, so that nothing that was replaced or removed can be vacuumed.
Pages are counted by the server, over all tables and indexes of ours, call by call in one session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median_high
from typing import Any

import psycopg
import pytest

from penstock import Store
from tests.groups.school import DeviceRemoved, DeviceSeen
from tests.outbox.outboxes import sql

#: pages: indexes get another level, a few dead entries are after the claim cursor, and a call may
#: renew it
SLACK = 120

PAGES = """
select coalesce(sum(pg_stat_get_xact_blocks_fetched(c.oid)), 0) from pg_class c
where c.relnamespace in ('message_store'::regnamespace, 'penstock'::regnamespace)
  and c.relkind in ('r', 'i')
"""

#: index entries and rows, for what is so dense that many are in a page
ENTRIES = PAGES.replace("blocks_fetched", "tuples_returned")


@contextmanager
def old_snapshot(url: str) -> Iterator[None]:
    """Hold a snapshot, in a transaction that has also written."""
    with psycopg.connect(url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("select pg_current_xact_id()")
        yield


class Caller:
    """One session of a worker, which counts the pages of each call, unless that is switched off.

    To count them costs more than a call, so it is done only for the calls that are compared.
    """

    def __init__(
        self,
        url: str,
        types: tuple[str, ...] = ("device.seen",),
        counted: str = PAGES,
        **options: Any,
    ) -> None:
        self.connection = psycopg.connect(url)
        self.types = list(types)
        self.counted = counted
        self.counts = True
        self.options = options
        self.pages: dict[str, list[int]] = {}

    def call(self, name: str, sql: str, *arguments: Any) -> list[Any]:
        """Call, and note the pages that it read under this name."""
        before = self.read() if self.counts else 0
        rows = self.connection.execute(sql.encode(), arguments).fetchall()
        if self.counts:
            self.pages.setdefault(name, []).append(self.read() - before)
        self.connection.commit()
        return rows

    @contextmanager
    def not_counting(self) -> Iterator[None]:
        """Count no pages in this block, where each call is a transaction by itself."""
        self.counts, self.connection.autocommit = False, True
        yield
        self.counts, self.connection.autocommit = True, False

    def read(self) -> int:
        """Return how many pages this session has read and not reported yet."""
        row = self.connection.execute(self.counted.encode()).fetchone()
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

    def name_types(self) -> None:
        """Make the first claim, by which the group learns what it handles."""
        claim = self.claim()
        assert claim is not None
        self.release(claim)

    def claim_and_ack(self) -> None:
        """Claim a partition and acknowledge its first message."""
        claim = self.claim()
        assert claim is not None
        self.ack(claim)

    def handle(self) -> None:
        """Claim a partition, give it back, claim it again, keep it and acknowledge it."""
        self.name_types()
        claim = self.claim()
        assert claim is not None
        self.extend(claim)
        self.ack(claim)

    def close(self) -> None:
        self.connection.close()


def typical(caller: Caller) -> dict[str, int]:
    """Return how many pages each call has read, and begin anew.

    It is the median: one in eight claims makes a new claim cursor, and a call that follows an
    ANALYZE, also one by autovacuum, makes its plans again, for which it reads pages of our indexes.
    """
    pages, caller.pages = caller.pages, {}
    return {name: median_high(read[-24:]) for name, read in pages.items()}


def one_device(number: int) -> str:
    return "hot"


def many_devices(number: int) -> str:
    return f"device {number}"


def two_hot_of_many(number: int) -> str:
    return f"device {number}" if number % 3 == 0 else f"hot {number % 3}"


def append(store: Store, devices: list[str]) -> None:
    for first in range(0, len(devices), 500):
        store.append([DeviceSeen(device_id=one) for one in devices[first : first + 500]])


def handle_all(caller: Caller) -> None:
    while (claim := caller.claim()) is not None:
        caller.ack(claim)


def route_all(caller: Caller) -> None:
    caller.connection.execute(
        "do $$ begin while (select penstock.route(g) from penstock.consumer_groups g)"
        " loop end loop; end $$"
    )
    caller.connection.commit()


@pytest.fixture
def group(store: Store) -> Store:
    store.declare(DeviceSeen, DeviceRemoved)
    store.groups.register("group")
    return store


FEW, MANY = 60, 600
ORDERS = ["oldest", "round_robin"]


def more_than(few: dict[str, int], many: dict[str, int]) -> dict[str, tuple[int, int]]:
    """The calls that have read more, with the pages before and after."""
    assert many
    return {name: (few[name], many[name]) for name in many if many[name] > few[name] + SLACK}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("devices", [one_device, many_devices, two_hot_of_many])
def test_no_call_reads_more_after_many_were_handled_under_an_old_snapshot(
    group: Store, database_url: str, devices: Callable[[int], str], order: str
) -> None:
    append(group, [devices(number) for number in range(FEW + MANY + 60)])
    callers = [Caller(database_url, claim_order=order) for _ in range(3)]
    read = []
    with old_snapshot(database_url):
        callers[0].name_types()
        route_all(callers[0])
        sql(group, "analyze")
        for handled in (FEW, MANY):
            for number in range(handled):
                with callers[number % 3].not_counting():
                    callers[number % 3].claim_and_ack()
            for caller in callers:
                caller.pages.clear()
            for number in range(24):
                callers[number % 2].handle()
            read.append([typical(caller) for caller in callers[:2]])

    for few, many in zip(*read, strict=True):
        assert more_than(few, many) == {}
    for caller in callers:
        caller.close()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("devices", [one_device, many_devices, two_hot_of_many])
def test_a_look_for_work_reads_no_more_after_many_were_handled(
    group: Store, database_url: str, devices: Callable[[int], str], order: str
) -> None:
    read = []
    caller = Caller(database_url, claim_order=order)
    with old_snapshot(database_url):
        for count in (FEW, MANY):
            append(group, [devices(number) for number in range(count)])
            with caller.not_counting():
                handle_all(caller)
            for _ in range(24):
                assert caller.claim("idle") is None
                caller.call("health", "select * from penstock.group_figures()")
                caller.call(
                    "retention",
                    "select penstock.first_unhandled(g.id) from penstock.consumer_groups g",
                )
            read.append(typical(caller))

    assert more_than(*read) == {}
    assert read[1]["idle"] < 60
    caller.close()


def test_the_first_unhandled_message_is_found_without_those_that_were_handled(
    group: Store, database_url: str
) -> None:
    caller = Caller(database_url, counted=ENTRIES)
    read = []
    with old_snapshot(database_url):
        for count in (FEW, MANY):
            append(group, ["hot"] * count)
            with caller.not_counting():
                handle_all(caller)
            for _ in range(24):
                caller.call(
                    "retention",
                    "select penstock.first_unhandled(g.id) from penstock.consumer_groups g",
                )
            read.append(typical(caller))

    assert more_than(*read) == {}
    caller.close()


def test_a_claim_that_is_extended_for_long_costs_idle_workers_no_more(
    group: Store, database_url: str
) -> None:
    append(group, ["slow"])
    keeper, idle = Caller(database_url), Caller(database_url, counted=ENTRIES)
    read = []
    with old_snapshot(database_url), keeper.not_counting():
        claim = keeper.claim()
        assert claim is not None
        for count in (FEW, MANY):
            for _ in range(count):
                keeper.extend(claim)
            for _ in range(24):
                assert idle.claim("idle") is None
            read.append(typical(idle))

    assert more_than(*read) == {}
    keeper.close()
    idle.close()


def claim_both(slow: Caller, quick: Caller) -> None:
    """Handle a message while the partition of another, older one is claimed."""
    claim = slow.claim()
    assert claim is not None
    quick.claim_and_ack()
    slow.ack(claim)  # its next message is older than all others


def test_a_claim_that_returns_before_the_others_again_and_again_costs_no_more(
    group: Store, database_url: str
) -> None:
    append(group, ["slow"] * MANY)
    append(group, [many_devices(number) for number in range(MANY)])
    slow, quick = Caller(database_url), Caller(database_url)
    read = []
    with old_snapshot(database_url):
        slow.name_types()
        route_all(slow)
        for count in (FEW, MANY - FEW):
            with slow.not_counting(), quick.not_counting():
                for _ in range(count - 24):
                    claim_both(slow, quick)
            for _ in range(24):
                claim_both(slow, quick)
            read.append(
                {**typical(quick), **{f"slow {name}": n for name, n in typical(slow).items()}}
            )

    assert more_than(*read) == {}
    slow.close()
    quick.close()


def extended(caller: Caller) -> None:
    claim = caller.claim()
    assert claim is not None
    for _ in range(FEW):
        caller.extend(claim)
    caller.ack(claim)


def released(caller: Caller) -> None:
    for _ in range(FEW):
        claim = caller.claim()
        assert claim is not None
        caller.release(claim)


def retried(caller: Caller) -> None:
    for _ in range(FEW):
        claim = caller.claim()
        assert claim is not None
        caller.release(claim, delay="1 microsecond", error="it failed")


@pytest.mark.parametrize("work", [extended, released, retried])
def test_a_partition_that_does_not_move_on_costs_no_more(
    group: Store, database_url: str, work: Callable[[Caller], None]
) -> None:
    append(group, ["a", "b", "c"] * 60)
    caller = Caller(database_url)
    read = []
    with old_snapshot(database_url):
        caller.name_types()
        for rounds in (1, 12):
            with caller.not_counting():
                for _ in range(rounds - 1):
                    work(caller)
            caller.pages.clear()
            work(caller)
            read.append(typical(caller))

    assert more_than(*read) == {}
    caller.close()


def not_handled(caller: Caller) -> None:
    """Every partition waits for somebody who handles another type."""


def parked(caller: Caller) -> None:
    while (claim := caller.claim()) is not None:
        caller.release(claim, park=True, error="it failed")


def waiting(caller: Caller) -> None:
    while (claim := caller.claim()) is not None:
        caller.release(claim, delay="1 hour", error="it failed")


def claimed(caller: Caller) -> None:
    while caller.claim() is not None:
        pass


@pytest.mark.parametrize("backlog", [not_handled, parked, waiting, claimed])
def test_a_backlog_without_workers_costs_a_claim_nothing(
    group: Store, database_url: str, backlog: Callable[[Caller], None]
) -> None:
    both = Caller(database_url, types=("device.seen", "device.removed"))
    seen = Caller(database_url)
    both.counts, both.connection.autocommit = False, True
    both.claim()
    read = []
    for count in (FEW, MANY):
        group.append([DeviceRemoved(device_id=f"{count} {n}") for n in range(count)])
        route_all(both)
        backlog(both)
        seen.claim()  # passes the backlog once
        sql(group, "analyze")
        seen.pages.clear()
        for number in range(24):
            group.append(DeviceSeen(device_id=f"busy {number % 3}"))
            seen.claim_and_ack()
            assert seen.claim("idle") is None
        read.append(typical(seen))

    assert more_than(*read) == {}
    both.close()
    seen.close()


def test_a_long_feed_of_a_type_that_a_claim_does_not_name_is_not_read(
    group: Store, database_url: str
) -> None:
    both = Caller(database_url, types=("device.seen", "device.removed"))
    seen = Caller(database_url, counted=ENTRIES)
    both.counts, both.connection.autocommit = False, True
    both.claim()
    read = []
    for count in (FEW, MANY):
        group.append([DeviceRemoved(device_id="hot") for _ in range(count)])
        route_all(both)
        seen.claim()
        seen.pages.clear()
        for _ in range(24):
            group.append(DeviceSeen(device_id="other"))
            seen.claim_and_ack()
        group.append(DeviceSeen(device_id="hot"))
        claim = seen.claim("hot")
        assert claim is not None
        assert claim["partition_values"] == ["hot"]
        seen.ack(claim)
        read.append(typical(seen))

    assert more_than(*read) == {}
    both.close()
    seen.close()
