"""Every call of the outbox and of joins costs the same, whatever came before it.

The conditions are those that made it grow: 100,000 messages that were done while a snapshot is held
open, so that their index entries are dead and stay; as many that nobody handles; as many that are
not due yet; statistics that are fresh, or that were gathered while the tables were empty; and many
calls in one session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

import penstock
from penstock import BorrowedConnection, ClaimedMessage, NewMessage, Store
from penstock.outbox import join_operations, operations
from tests.both_ways import Blocking, Way
from tests.conftest import Server
from tests.outbox.costs import CALLS, Cost, Session, old_snapshot, session
from tests.outbox.outboxes import sql

MANY = 100_000
#: where pages happen to end, and what the same calls put there before
SLACK = Cost(entries=150, pages=60)

FILL = """
insert into penstock.outbox
  (id, topic, payload, encoding, due, created_at, state, lease_until, finished_at)
select gen_random_uuid(), %s, '1', 'json', clock_timestamp() + %s, '2020-01-01', %s, %s, %s
from generate_series(1, %s)
"""


@pytest.fixture
def way() -> Way:
    """Tests of this module run with blocking classes: they are about SQL."""
    return Blocking()


class Busy:
    """A store with much behind it, and one session on it."""

    def __init__(self, store: Store, measured: Session) -> None:
        self.store, self.session = store, measured
        store.outbox.enqueue_many([NewMessage("mail", n) for n in range(10 * CALLS)])
        [row] = sql(
            store,
            "select due, id from penstock.outbox where topic = 'mail' and state = 'ready'"
            " order by due, id limit 1",
        )
        self.cursor: tuple[datetime, UUID] = row

    def claimed(self) -> Iterator[ClaimedMessage]:
        """Claim a message for each of the calls to come."""
        return iter(self.store.outbox.claim("me", CALLS, topics=["mail"]))

    def joins(self) -> list[penstock.JoinId]:
        return [self.store.joins.start("busy", 2) for _ in range(CALLS)]


def fill(store: Store) -> None:
    """Put in what nobody may have to read: done, unhandled, in the future, and failed."""
    hour = timedelta(hours=1)
    far = datetime.fromisoformat("2100-01-01T00:00:00Z")
    sql(store, FILL, "mail", -hour, "ready", None, None, MANY)
    sql(store, FILL, "mail", -hour, "in_progress", far, None, MANY // 10)
    sql(
        store,
        "update penstock.outbox set state = 'done', lease_until = null,"
        " finished_at = clock_timestamp()",
    )
    sql(store, FILL, "unknown", -hour, "ready", None, None, MANY)
    sql(store, FILL, "mail", 24 * hour, "ready", None, None, MANY)
    sql(store, FILL, "unknown", -hour, "in_progress", far, None, MANY // 10)
    sql(store, FILL, "unknown", -hour, "failed", None, datetime(2020, 1, 1, tzinfo=UTC), MANY // 10)
    sql(
        store,
        "with started as (insert into penstock.joins (join_id, expected_steps, grouping_key)"
        " select gen_random_uuid(), 2, n::text from generate_series(1, 10000) n returning join_id),"
        " steps as (insert into penstock.join_steps (join_id, attached_steps)"
        " select join_id, 1 from started)"
        " insert into penstock.join_members (join_id, message_id)"
        " select join_id, gen_random_uuid() from started",
    )


@pytest.fixture(scope="module", params=["fresh", "of empty tables"])
def busy(server: Server, request: pytest.FixtureRequest) -> Iterator[Busy]:
    name = server.create_database(server.template("penstock"))
    with ExitStack() as stack:
        store = stack.enter_context(penstock.connect(server.url(name)))
        for table in ("outbox", "joins", "join_steps", "join_members"):
            sql(store, f"alter table penstock.{table} set (autovacuum_enabled = off)")
        if request.param == "of empty tables":
            sql(store, "vacuum analyze")
        stack.enter_context(old_snapshot(store))
        fill(store)
        if request.param == "fresh":
            sql(store, "analyze")
        yield Busy(store, stack.enter_context(session(store)))
    server.drop_database(name)


Call = Callable[[BorrowedConnection], object]


def claims(busy: Busy) -> Call:
    return lambda calls: claim_one(calls, ["mail", "bill"], busy.cursor)


def claims_of_all_topics(busy: Busy) -> Call:
    # from where the dead and the unhandled end: whoever claims all has nothing unhandled
    return lambda calls: claim_one(calls, None, busy.cursor)


def claim_one(
    calls: BorrowedConnection, topics: list[str] | None, cursor: tuple[datetime, UUID]
) -> None:
    [message] = calls.run(operations.claim("me", 1, 30.0, topics, cursor))
    assert message.topic == "mail"


def enqueues(busy: Busy) -> Call:
    return lambda calls: calls.outbox.enqueue("mail", 1)


def enqueues_once(busy: Busy) -> Call:
    return lambda calls: calls.outbox.enqueue("mail", 1, dedupe_key="once")


def enqueues_a_step(busy: Busy) -> Call:
    join = busy.store.joins.start(None, CALLS)
    return lambda calls: calls.outbox.enqueue("mail", 1, joins=[join])


def acks(busy: Busy) -> Call:
    claimed = busy.claimed()
    return lambda calls: calls.outbox.ack(next(claimed))


def acks_again(busy: Busy) -> Call:
    claimed = next(busy.claimed())
    return lambda calls: calls.outbox.ack(claimed)


def acks_a_step(busy: Busy) -> Call:
    claimed = list(busy.claimed())
    for one, join in zip(claimed, busy.joins(), strict=True):
        busy.store.joins.attach(join, one.id)
    each = iter(claimed)
    return lambda calls: calls.outbox.ack(next(each))


def fails(busy: Busy) -> Call:
    claimed = busy.claimed()
    return lambda calls: calls.outbox.fail(next(claimed), "it broke")


def abandons(busy: Busy) -> Call:
    claimed = busy.claimed()
    return lambda calls: calls.outbox.abandon(next(claimed))


def extends(busy: Busy) -> Call:
    claimed = busy.claimed()
    return lambda calls: calls.outbox.extend(next(claimed))


def retries(busy: Busy) -> Call:
    return lambda calls: calls.outbox.retry_failed([str(penstock.new_id())])


def retries_a_topic(busy: Busy) -> Call:
    return lambda calls: calls.outbox.retry_failed(topic="mail")


def gets(busy: Busy) -> Call:
    id = busy.store.outbox.enqueue("mail")
    return lambda calls: calls.outbox.get(id)


def starts_a_join(busy: Busy) -> Call:
    return lambda calls: calls.joins.start("busy", 1)


def attaches(busy: Busy) -> Call:
    pairs = iter([(join, busy.store.outbox.enqueue("mail")) for join in busy.joins()])
    return lambda calls: calls.joins.attach(*next(pairs))


def reports(busy: Busy) -> Call:
    pairs = iter([(join, busy.store.outbox.enqueue("mail", joins=[join])) for join in busy.joins()])
    return lambda calls: calls.joins.report_completed(*next(pairs))


def waits(busy: Busy) -> Call:
    joins = iter(busy.joins())
    return lambda calls: calls.joins.enqueue_wait(next(joins), on_complete_topic="mail")


def cancels(busy: Busy) -> Call:
    joins = iter(busy.joins())
    return lambda calls: calls.joins.cancel(next(joins))


def gets_a_join(busy: Busy) -> Call:
    join = busy.joins()[0]
    return lambda calls: calls.joins.get(join)


def lists_members(busy: Busy) -> Call:
    join = busy.joins()[0]
    return lambda calls: calls.run(join_operations.members(join))


def lists_joins_of_a_key(busy: Busy) -> Call:
    return lambda calls: calls.joins.list(grouping_key="7")


def nests(busy: Busy) -> Call:
    """Attach a wait to a join that is waited for: what looks for rings."""
    pairs = []
    for outer, inner in zip(busy.joins(), busy.joins(), strict=True):
        busy.store.joins.enqueue_wait(outer, on_complete_topic="mail")
        wait = busy.store.joins.enqueue_wait(inner, on_complete_topic="mail")
        pairs.append((outer, wait))
    each = iter(pairs)
    return lambda calls: calls.joins.attach(*next(each))


def resolves(busy: Busy) -> Call:
    for join in busy.joins():
        busy.store.joins.enqueue_wait(join, on_complete_topic="mail")
        busy.store.joins.cancel(join)
    each = iter(busy.store.outbox.claim("me", CALLS, topics=["join.wait"]))
    return lambda calls: calls.run(join_operations.resolve(next(each)))


def cleans_up(busy: Busy) -> Call:
    return lambda calls: calls.outbox.clean_up(timedelta(days=1))


EVERY: list[Callable[[Busy], Call]] = [
    claims, claims_of_all_topics, enqueues, enqueues_once, enqueues_a_step, acks, acks_again,
    acks_a_step, fails, abandons, extends, retries, retries_a_topic, gets, starts_a_join, attaches,
    reports, waits, cancels, gets_a_join, lists_members, lists_joins_of_a_key, nests, resolves,
    cleans_up,
]  # fmt: skip


@pytest.mark.parametrize("call", EVERY)
def test_the_twentieth_call_of_a_session_costs_what_the_first_did(
    busy: Busy, call: Callable[[Busy], Call]
) -> None:
    prepared = call(busy)

    costs = busy.session.costs(prepared)

    assert max(one.entries for one in costs) <= SLACK.entries, costs
    assert max(one.pages for one in costs[1:]) <= 300, costs
    assert max(one.pages for one in costs[5:]) <= costs[1].pages + SLACK.pages, costs


def step_costs(store: Store, work: Callable[[int], Call], *, together: bool) -> dict[int, Cost]:
    """Work on 2,000 steps, in one transaction or in one each, and return what two of them cost.

    Each is the cheapest of five in a row: statistics that autovacuum renews add pages to any of
    them.
    """
    found: dict[int, list[Cost]] = {100: [], 2000: []}
    with session(store) as measured:
        for number in range(1, 2001):
            near = [costs for last, costs in found.items() if last - 5 < number <= last]
            if near:
                near[0].append(measured.cost(work(number)))
            else:
                work(number)(measured.calls)
            if not together:
                measured.connection.commit()
            if number == 1500:
                sql(store, "analyze")
        measured.connection.commit()
    return {last: min(costs, key=lambda one: one.pages) for last, costs in found.items()}


def flat(costs: dict[int, Cost]) -> bool:
    early, late = costs[100], costs[2000]
    return late.entries <= early.entries + 10 and late.pages <= early.pages + 20


@pytest.mark.parametrize("together", [True, False])
def test_the_2000th_step_enqueued_costs_what_the_100th_did(store: Store, together: bool) -> None:
    join = store.joins.start(None, 2000)

    def enqueue(number: int) -> Call:
        return lambda calls: calls.outbox.enqueue("step", number, joins=[join])

    with old_snapshot(store):
        costs = step_costs(store, enqueue, together=together)

    assert flat(costs), costs
    assert store.joins.get(join).attached_steps == 2000


@pytest.mark.parametrize("together", [True, False])
def test_the_2000th_ack_costs_what_the_100th_did(store: Store, together: bool) -> None:
    join = store.joins.start(None, 2000)
    store.outbox.enqueue_many([NewMessage("step", n) for n in range(2000)], joins=[join])
    claimed = store.outbox.claim("me", 2000)

    def ack(number: int) -> Call:
        return lambda calls: calls.outbox.ack(claimed[number - 1])

    with old_snapshot(store):
        costs = step_costs(store, ack, together=together)

    assert flat(costs), costs
    assert store.joins.get(join).completed_steps == 2000
