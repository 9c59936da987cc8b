"""Dispatchers killed at random while overlapping joins run: each is resolved once, and adds up.

Three processes dispatch; time and again one of them is killed with SIGKILL while it holds messages,
and another started. The test itself does all else that a program may do meanwhile: it enqueues
steps with their joins, attaches others later (some when they are finished, some twice), reports
steps by hand (some with another outcome than they have), claims and settles batches of its own,
and cancels joins. What counts is what the database says when all is over.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from uuid import UUID

import psycopg
import pytest

from penstock import (
    Call,
    Dispatcher,
    Interceptor,
    JoinId,
    NewMessage,
    OutboxMessageId,
    Store,
    connect,
    retry,
)
from penstock.errors import JoinFinished, StaleLease
from tests.both_ways import Blocking, Way
from tests.forked_python import ForkedProcess
from tests.outbox.dispatching import prepare, start
from tests.outbox.outboxes import sql
from tests.racing import wait_until

PROCESSES = 3
BATCH = 100


@pytest.fixture
def way() -> Way:
    """Tests of this module run with blocking classes: processes do the work."""
    return Blocking()


@dataclass
class Plan:
    """Which message is in which joins, and what becomes of it."""

    random: Random
    joins: list[JoinId]
    #: by the number of the message, the joins it is attached to
    members: list[list[JoinId]] = field(default_factory=list)
    ids: list[OutboxMessageId] = field(default_factory=list)
    cancelled: set[JoinId] = field(default_factory=set)
    #: what was reported by hand, and may so be a member's outcome
    reported: dict[tuple[JoinId, UUID], str] = field(default_factory=dict)
    #: the joins that one failed step makes fail
    strict: set[JoinId] = field(default_factory=set)

    def payload(self, number: int) -> dict[str, object]:
        """One in ten fails for good, one in ten at first."""
        return {"n": number, "do": {3: "fail", 7: "once"}.get(number % 10)}


def make_plan(store: Store, seed: int, messages: int, joins: int) -> Plan:
    """Draw who is in which join: every message in one to three, every join with a message."""
    random = Random(seed)
    members = [
        sorted({number % joins, *random.sample(range(joins), random.choice([0, 0, 1, 2]))})
        for number in range(messages)
    ]
    sizes = [sum(join in mine for mine in members) for join in range(joins)]
    ids = [store.joins.start(f"customer-{n % 7}", size) for n, size in enumerate(sizes)]
    return Plan(random, ids, [[ids[join] for join in mine] for mine in members])


@pytest.mark.chaos
def test_every_join_is_resolved_once_whoever_is_killed(
    store: Store,
    database_url: str,
    chaos_seconds: float,
    request: pytest.FixtureRequest,
) -> None:
    seed = request.config.getoption("--chaos-seed") or 1
    long = chaos_seconds >= 60
    plan = make_plan(store, seed, *((5000, 500) if long else (1000, 100)))
    prepare(store)

    with killing(database_url, seed, kills=len(plan.members) // 125):
        enqueue_waits(store, plan, plan.joins[::2])
        for begin in range(0, len(plan.members), BATCH):
            enqueue_batch(store, plan, begin)
            meddle(store, plan)
        enqueue_waits(store, plan, plan.joins[1::2])
        wait_until(database_url, NOTHING_LEFT)

    assert len(store.joins.list(limit=2 * len(plan.joins))) == len(plan.joins)
    assert complaints(store, plan) == []
    assert sql(store, TAKEN_OVER) > [(0,)]


NOTHING_LEFT = """
  select not exists (select from penstock.outbox where state in ('ready', 'in_progress'))
    and not exists (select from penstock.joins where status = 'pending')
"""


HOLDS_SOME = "select exists (select from penstock.outbox where owner like %s and token is not null)"

TAKEN_OVER = """
  select count(*) from penstock.outbox
  where attempts > 1 and convert_from(payload, 'utf8') like '%%"do":null%%'
"""


def enqueue_waits(store: Store, plan: Plan, joins: list[JoinId]) -> None:
    for number, join in enumerate(one for one in joins if one not in plan.cancelled):
        if number % 3 != 0:
            plan.strict.add(join)
        store.joins.enqueue_wait(
            join, join in plan.strict, "followed", {"ok": True}, "followed", {"ok": False}
        )


def enqueue_batch(store: Store, plan: Plan, begin: int) -> None:
    """Enqueue messages: some with all their joins, some to be attached later, one by one."""
    for number in range(begin, min(begin + BATCH, len(plan.members))):
        at_once = number % 4 != 0
        wanted = plan.members[number] if at_once else []
        joins = [join for join in wanted if join not in plan.cancelled]
        plan.ids.append(store.outbox.enqueue("step", plan.payload(number), joins=joins))
    for number in range(begin, len(plan.ids)):
        for join in plan.members[number] if number % 4 == 0 else []:
            for _ in range(plan.random.choice([1, 2])):
                attach(store, plan, join, plan.ids[number])


@retry
def attach(store: Store, plan: Plan, join: JoinId, id: OutboxMessageId) -> None:
    with contextlib.suppress(JoinFinished):
        store.joins.attach(join, id)
        return
    assert join in plan.cancelled


def meddle(store: Store, plan: Plan) -> None:
    """Settle a batch by hand, report some steps by hand, and cancel a join."""
    settle_some(store, plan)
    for _ in range(10):
        number = plan.random.randrange(len(plan.ids))
        join, id = plan.random.choice(plan.members[number]), plan.ids[number]
        if join not in plan.cancelled:
            outcome = plan.random.choice(["completed", "failed"])
            plan.reported.setdefault((join, id), outcome)
            report = getattr(store.joins, f"report_{plan.reported[join, id]}")
            retry(report)(join, id)
    victim = plan.random.choice(plan.joins)
    with contextlib.suppress(JoinFinished):
        retry(store.joins.cancel)(victim)
        plan.cancelled.add(victim)


def settle_some(store: Store, plan: Plan) -> None:
    """Claim a batch, and fail those of it that are to fail; leave waits alone."""
    claimed = store.outbox.claim("the test", 20, lease=30)
    steps = [one for one in claimed if one.topic == "step"]
    failing = [
        one for one in steps if isinstance(one.payload, dict) and one.payload["do"] == "fail"
    ]
    good = [one for one in steps if one not in failing]
    others = [one for one in claimed if one not in steps]
    with contextlib.suppress(StaleLease):
        retry(store.outbox.fail)(failing, "by hand")
        retry(store.outbox.ack)(good)
        retry(store.outbox.abandon)(others)


@contextlib.contextmanager
def killing(url: str, seed: int, kills: int) -> Iterator[None]:
    """Run dispatchers meanwhile; time and again, kill one while it holds messages."""
    random, ended = Random(seed), threading.Event()
    processes = [start(url, is_async=number == 0) for number in range(PROCESSES)]

    def kill() -> None:
        for _ in range(kills):
            victim = random.randrange(PROCESSES)
            if not caught(url, processes[victim], ended):
                return
            end(processes[victim])
            processes[victim] = start(url, is_async=victim == 0)

    with ThreadPoolExecutor(1) as threads:
        killed = threads.submit(kill)
        try:
            yield
        finally:
            ended.set()
            killed.result()
            for process in processes:
                end(process)


def caught(url: str, process: ForkedProcess, ended: threading.Event) -> bool:
    """Stop a process while it holds messages. Return whether that came about before the end."""
    owner = (f"%:{process.pid}",)
    with psycopg.connect(url, autocommit=True) as connection:

        def holds_some() -> bool:
            return connection.execute(HOLDS_SOME.encode(), owner).fetchone() == (True,)

        while not ended.is_set():
            if holds_some():
                process.send_signal(signal.SIGSTOP)
                if holds_some():
                    return True
                process.send_signal(signal.SIGCONT)
    return False


def end(process: ForkedProcess) -> None:
    process.kill()
    process.communicate()


def complaints(store: Store, plan: Plan) -> list[str]:
    """Say all that does not add up."""
    follow_ups = dict(
        sql(
            store,
            "select correlation_id::uuid, array_agg(convert_from(payload, 'utf8'))"
            " from penstock.outbox where topic = 'followed' group by 1",
        )
    )
    states = dict(sql(store, "select id, state from penstock.outbox"))
    outcome = {"done": "completed", "failed": "failed"}
    found: list[str] = []
    for join in store.joins.list(limit=len(plan.joins)):
        members = store.joins.members(join.join_id)
        landed = [one.status for one in members]
        counted = (landed.count("completed"), landed.count("failed"))
        if (join.completed_steps, join.failed_steps) != counted:
            found.append(f"{join} counted what its members do not say: {counted}")
        if (join.status == "cancelled") != (join.join_id in plan.cancelled):
            found.append(f"{join} should be cancelled, or should not")
        if join.status != "cancelled" and not join.is_complete:
            found.append(f"{join} was resolved before it was complete")
        fails = join.join_id in plan.strict and join.failed_steps > 0
        if join.status not in ("cancelled", "failed" if fails else "completed"):
            found.append(f"{join} was resolved wrongly")
        payloads = {"completed": ['{"ok":true}'], "failed": ['{"ok":false}']}.get(join.status, [])
        if follow_ups.get(join.join_id, []) != payloads:
            found.append(f"{join} is followed by {follow_ups.get(join.join_id)}, not {payloads}")
        for one in members if join.status != "cancelled" else []:
            possible = {
                outcome.get(states[one.message_id]),
                plan.reported.get((join.join_id, one.message_id)),
            }
            if one.status not in possible:
                found.append(f"{one} should be one of {possible}")
    for number, id in enumerate(plan.ids):
        wanted = "failed" if plan.payload(number)["do"] == "fail" else "done"
        if states[id] != wanted:
            found.append(f"message {number} is {states[id]}, not {wanted}")
    return found


def test_the_table_is_walked_from_the_cursor_while_vacuum_is_held_back(store: Store) -> None:
    store.outbox.enqueue_many([NewMessage("mail", n) for n in range(3000)])
    holder = store.begin_transaction("repeatable read")
    holder.outbox.list(limit=1)
    last = None
    while claimed := store.outbox.claim("me", 500):
        store.outbox.ack(claimed)
        last = claimed[-1]
    assert last is not None

    from_the_cursor = _pages_touched(store, "(o.due, o.id) >= (%s, %s)", last.due, last.id)
    from_the_start = _pages_touched(store, "true")
    holder.rollback()

    assert from_the_cursor * 3 < from_the_start


def test_a_dispatcher_goes_on_from_its_cursor(database_url: str) -> None:
    looks: list[bool] = []

    class Watching(Interceptor):
        @contextlib.contextmanager
        def around(self, call: Call) -> Iterator[None]:
            if call.name == "claim":
                looks.append(call.facts["from_start"])
            yield

    with connect(database_url, interceptors=[Watching()]) as store:
        store.outbox.enqueue_many([NewMessage("mail", n) for n in range(2000)])
        dispatcher = Dispatcher(store, batch_size=20)
        dispatcher.handler("mail")(lambda message: None)
        dispatcher.run_until_idle()

    assert looks[0]
    assert not all(looks)


def test_the_table_stays_small_however_much_goes_through_it(
    store: Store, database_url: str
) -> None:
    sizes, removed = [], 0
    for _ in range(5):
        store.outbox.enqueue_many([NewMessage("mail", {"n": n}) for n in range(1000)])
        store.outbox.ack(store.outbox.claim("me", 1000))
        removed += store.outbox.clean_up(timedelta(0))
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute("vacuum penstock.outbox")  # as autovacuum does by itself
        [(size,)] = sql(store, "select pg_total_relation_size('penstock.outbox')")
        sizes.append(size)

    assert removed == 5000
    assert max(sizes) <= 2 * sizes[0]


def _pages_touched(store: Store, where: str, *arguments: object) -> int:
    [(plan,)] = sql(
        store,
        "explain (analyze, buffers, format json) select o.id from penstock.outbox o"
        f" where o.state = 'ready' and o.topic <> '' and o.due <= clock_timestamp() and {where}"
        " order by o.due, o.id limit 10",
        *arguments,
    )
    top = plan[0]["Plan"]
    return int(top["Shared Hit Blocks"] + top["Shared Read Blocks"])
