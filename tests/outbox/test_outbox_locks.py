"""Two connections: nobody waits for what others have locked, nor acts on what it was before."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from penstock import BorrowedConnection, OutboxMessageId, Store
from penstock.outbox import operations
from tests.both_ways import Blocking, Way
from tests.outbox.outboxes import begin, claim_one, end_leases

NO_AGE = timedelta(0)
PAST = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture
def way() -> Way:
    """Tests of this module run with blocking classes: they are about SQL."""
    return Blocking()


def enqueued(store: Store) -> OutboxMessageId:
    return store.outbox.enqueue("mail", due=PAST)


def of_the_dead(store: Store) -> None:
    enqueued(store)
    claim_one(store, "dead")
    end_leases(store)


def done(store: Store) -> None:
    enqueued(store)
    store.outbox.ack(claim_one(store))


def failed(store: Store) -> None:
    enqueued(store)
    store.outbox.fail(claim_one(store), "broken")


def a_cancelled_join(store: Store) -> None:
    store.joins.cancel(store.joins.start(None, 1))


def claims(log: BorrowedConnection) -> int:
    return len(log.outbox.claim("me"))


def claims_of_topics(log: BorrowedConnection) -> int:
    return len(log.outbox.claim("me", topics=["mail"]))


def reaps(log: BorrowedConnection) -> int:
    return log.outbox.reap_expired()


def cleans_up(log: BorrowedConnection) -> int:
    return log.outbox.clean_up(NO_AGE, failed=True)


def cleans_up_joins(log: BorrowedConnection) -> int:
    log.outbox.clean_up(NO_AGE)
    return 1 - len(log.joins.list())


def reports(log: BorrowedConnection) -> int:
    log.run(operations.report_unhandled("me", ["bill"], 60))
    return sum(one.last_error is not None for one in log.outbox.list())


@pytest.mark.parametrize(
    ("prepare", "call"),
    [
        (enqueued, claims),
        (enqueued, claims_of_topics),
        (of_the_dead, reaps),
        (done, cleans_up),
        (failed, cleans_up),
        (a_cancelled_join, cleans_up_joins),
        (enqueued, reports),
    ],
)
def test_what_others_have_locked_is_passed_by_and_not_waited_for(
    store: Store, prepare: Callable[[Store], object], call: Callable[[BorrowedConnection], int]
) -> None:
    prepare(store)
    url = store.settings.conninfo()
    with psycopg.connect(url) as holder, psycopg.connect(url) as connection:
        connection.execute("set lock_timeout = '1s'")  # a statement that waits fails
        connection.commit()
        holder.execute("select from penstock.outbox for update")
        holder.execute("select from penstock.joins for update")

        locked = call(store.using(connection))
        holder.rollback()
        free = call(store.using(connection))

    assert (locked, free) == (0, 1)


@pytest.mark.parametrize("topics", [None, ["mail"]])
def test_of_two_who_claim_a_message_at_once_one_gets_it(
    store: Store, topics: list[str] | None
) -> None:
    enqueued(store)
    claiming = store.begin_transaction()
    first = claiming.outbox.claim("first", topics=topics)

    second = begin(store, lambda: store.outbox.claim("second", topics=topics))
    claiming.commit()

    assert (len(first), second()) == (1, [])
    assert [one.owner for one in store.outbox.list()] == ["first"]


def test_a_lease_that_is_extended_at_this_moment_has_not_ended(store: Store) -> None:
    of_the_dead(store)
    late = claim_one(store, "late")
    end_leases(store)
    extending = store.begin_transaction()
    extending.outbox.extend(late, 3600)

    claimed = begin(store, lambda: store.outbox.claim("me"))
    extending.commit()

    assert claimed() == []
    assert [(one.state, one.owner) for one in store.outbox.list()] == [("in_progress", "late")]


def test_a_failed_message_that_is_tried_again_at_this_moment_is_not_removed(store: Store) -> None:
    failed(store)
    retrying = store.begin_transaction()
    retrying.outbox.retry_failed()

    removed = begin(store, lambda: store.outbox.clean_up(NO_AGE, failed=True))
    retrying.commit()

    assert removed() == 0
    assert [one.state for one in store.outbox.list()] == ["ready"]
