"""What there is without a notification: the safety look of a store finds it for its waiters.

Those who change something here are stores without wake-ups, as a process that was killed after its
commit, and a transaction on an application's own connection.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

import penstock
from penstock import Claim, Store
from penstock.database.wake_ups import Pace
from tests.log.waiting import KINDS, Numbered, listening, looks, running, store_with

pytestmark = pytest.mark.timeout(120)
WORKER, DISPATCHER = KINDS["worker"], KINDS["dispatcher"]


@pytest.fixture
def silent(database_url: str) -> Iterator[Store]:
    """A store that notifies nobody."""
    with penstock.connect(database_url, wake_up=False) as store:
        yield store


@pytest.fixture
def reader(database_url: str) -> Iterator[Store]:
    """A store that looks often, and whose waiters never look by themselves."""
    with store_with(database_url, Pace(look=0.05, patience=3600)) as store:
        yield listening(store)


def _claimed(store: Store) -> Claim:
    """Write a message for workers, and claim its partition as another worker."""
    store.groups.register("waiting")
    store.append(Numbered(number="7"))
    claim = store.groups.claim_next(
        "waiting", partition_by="number", handled_types=[Numbered], lease=3600
    )
    assert claim is not None
    return claim


class TestWorker:
    def test_finds_a_partition_that_was_released(self, reader: Store, silent: Store) -> None:
        claim = _claimed(silent)
        with running(WORKER, reader) as waiter:
            looks(reader, 3)
            silent.groups.release(claim)

            assert waiter.next() == 7

    def test_finds_one_whose_lease_has_ended(self, reader: Store, silent: Store) -> None:
        claim = _claimed(silent)
        with running(WORKER, reader) as waiter:
            looks(reader, 3)
            silent.groups.extend(claim, 0.4)  # sooner than the worker knows

            assert waiter.next() == 7

    def test_finds_one_that_was_resumed(self, reader: Store, silent: Store) -> None:
        silent.groups.release(_claimed(silent), error="no", park=True)
        with running(WORKER, reader) as waiter:
            looks(reader, 3)
            silent.groups.resume("waiting")

            assert waiter.next() == 7

    def test_begins_again_after_a_reset(self, reader: Store, silent: Store) -> None:
        silent.groups.ack(_claimed(silent))
        with running(WORKER, reader) as waiter:
            looks(reader, 3)
            silent.groups.reset("waiting")

            assert waiter.next() == 7

    def test_goes_on_when_the_group_is_started_again(self, reader: Store, silent: Store) -> None:
        silent.groups.ack(_claimed(silent))  # a group that has routed something
        silent.groups.stop("waiting")
        with running(WORKER, reader) as waiter:
            silent.append(Numbered(number="8"))
            looks(reader, 3)
            assert waiter.is_empty
            silent.groups.start("waiting")

            assert waiter.next() == 8


class TestDispatcher:
    def test_finds_what_is_enqueued_on_a_connection_of_the_application(
        self, reader: Store, database_url: str
    ) -> None:
        with running(DISPATCHER, reader) as waiter, psycopg.connect(database_url) as connection:
            reader.using(connection).outbox.enqueue("mail", {"number": 7})
            looks(reader, 3)
            connection.commit()

            assert waiter.next() == 7

    def test_finds_what_is_given_back_or_retried(self, reader: Store, silent: Store) -> None:
        for number in (7, 8):
            silent.outbox.enqueue("mail", {"number": number})
        first, second = silent.outbox.claim("other", limit=2, lease=3600)
        with running(DISPATCHER, reader) as waiter:
            looks(reader, 3)
            silent.outbox.abandon(first)
            assert waiter.next() == 7
            silent.outbox.fail(second, "no")
            looks(reader, 3)
            silent.outbox.retry_failed()

            assert waiter.next() == 8

    def test_finds_what_another_held_whose_lease_has_ended(
        self, reader: Store, silent: Store
    ) -> None:
        with running(DISPATCHER, reader) as waiter:
            looks(reader, 3)
            with silent.transaction() as transaction:
                transaction.outbox.enqueue("mail", {"number": 7})
                transaction.outbox.claim("other", lease=0.4)

            assert waiter.next() == 7


def test_a_session_finds_what_is_offered(reader: Store, silent: Store) -> None:
    with running(KINDS["session"], reader) as waiter:
        looks(reader, 3)
        silent.queue("orders").offer(7)

        assert waiter.next() == 7
