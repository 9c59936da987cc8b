"""Several databases: a provider maps a grouping key to a store, and dispatchers serve them all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock import ClaimedMessage, Dispatcher, MappedStores, NewMessage, Store
from penstock.errors import IncompatibleVersion, ValidationError
from tests.both_ways import Way, way_of
from tests.conftest import Server
from tests.outbox.outboxes import sql, unwrapped

TIMEOUT = 30


@pytest.fixture
def provider(way: Way, new_database: Callable[[str], str]) -> Iterator[MappedStores[Store]]:
    """Two real databases: customers a to m in one, n to z in the other."""
    with (
        way.connect(new_database("penstock")) as first,
        way.connect(new_database("penstock")) as second,
    ):
        yield MappedStores({"a-m": first, "n-z": second}, lambda key: "a-m" if key < "n" else "n-z")


def new_dispatcher(provider: MappedStores[Store], **options: Any) -> Dispatcher:
    """Return a dispatcher for the stores of a provider, in their form."""
    way = way_of(provider.stores()[0])
    stores = {str(n): unwrapped(one) for n, one in enumerate(provider.stores())}
    dispatcher: Dispatcher = way.Dispatcher(MappedStores(stores, lambda key: key), **options)
    return dispatcher


def test_a_grouping_key_has_its_store(provider: MappedStores[Store]) -> None:
    provider.store_for("ada").outbox.enqueue("mail", "for ada")
    provider.store_for("zoe").outbox.enqueue("mail", "for zoe")

    found = [[one.payload for one in store.outbox.list()] for store in provider.stores()]

    assert found == [["for ada"], ["for zoe"]]


def test_joins_work_wherever_their_messages_live(provider: MappedStores[Store]) -> None:
    joins = {}
    for customer in ("ada", "zoe"):
        store = provider.store_for(customer)
        joins[customer] = store.joins.start(customer, 2)
        store.outbox.enqueue_many([NewMessage("extract", customer)] * 2, joins=[joins[customer]])
        store.joins.enqueue_wait(joins[customer], True, "transform", customer)
    dispatcher, transformed = new_dispatcher(provider), list[object]()
    dispatcher.handler("extract")(lambda message: None)
    dispatcher.handler("transform")(lambda message: transformed.append(message.payload))

    dispatcher.run_until_idle()

    assert sorted(map(str, transformed)) == ["ada", "zoe"]
    for customer, join in joins.items():
        [found] = provider.store_for(customer).joins.list()
        assert (found.join_id, found.status) == (join, "completed")


def test_a_backlog_in_one_store_does_not_keep_the_other_waiting(
    provider: MappedStores[Store],
) -> None:
    busy, quiet = provider.stores()
    released, handled = threading.Event(), threading.Event()
    dispatcher = new_dispatcher(provider, concurrency=2)

    @dispatcher.handler("slow")
    def slow(message: ClaimedMessage) -> None:
        released.wait(TIMEOUT)

    dispatcher.handler("quick")(lambda message: handled.set())
    busy.outbox.enqueue_many([NewMessage("slow")] * 10)
    quiet.outbox.enqueue("quick")

    thread = threading.Thread(target=dispatcher.run)
    thread.start()
    in_time = handled.wait(TIMEOUT)
    dispatcher.stop()
    released.set()
    thread.join()

    assert in_time


def test_a_store_that_is_away_does_not_keep_the_other_waiting(
    provider: MappedStores[Store], server: Server
) -> None:
    away, there = provider.stores()
    handled = threading.Event()
    dispatcher = new_dispatcher(provider, polling_interval_ms=10)
    dispatcher.handler("mail")(lambda message: handled.set())
    name = away.settings.conninfo().partition("dbname=")[2].split()[0]
    server.administer("alter database {} with allow_connections false", name)
    sql(
        there,
        "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s",
        name,
    )

    thread = threading.Thread(target=dispatcher.run)
    thread.start()
    there.outbox.enqueue("mail")
    in_time = handled.wait(TIMEOUT)
    server.administer("alter database {} with allow_connections true", name)
    dispatcher.stop()
    thread.join()

    assert in_time


def test_a_store_that_breaks_for_good_stops_the_dispatcher_with_its_error(
    provider: MappedStores[Store],
) -> None:
    broken, _ = provider.stores()
    dispatcher = new_dispatcher(provider)
    sql(broken, "alter table penstock.outbox rename to gone")

    with pytest.raises(IncompatibleVersion, match=r"penstock\.outbox"):
        dispatcher.run()


def test_an_unknown_key_and_no_stores_are_refused(provider: MappedStores[Store]) -> None:
    odd = MappedStores({"a": provider.stores()[0]}, lambda key: "b")

    with pytest.raises(ValidationError):
        odd.store_for("ada")
    with pytest.raises(ValidationError):
        MappedStores({}, lambda key: key)
