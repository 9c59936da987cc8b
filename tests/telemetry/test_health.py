"""The figures of how a store stands: who lags behind, what is parked or failed, old claims."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import penstock
from penstock import AsyncStore, Store
from penstock.errors import UnsupportedEdition
from tests.groups.school import DeviceSeen, claim_device
from tests.outbox.outboxes import sql
from tests.telemetry.busy import an_hour_passes, busy, hold_claim, park_partition
from tests.telemetry.figures import HOUR, details, figure


def test_a_fresh_store_has_nothing_to_complain_of(store: Store) -> None:
    figures = {one.name: one.value for one in store.admin.health()}

    assert figures == {"watermark.age": 0, "watermark.behind": 0, "outbox.lag": 0}


class TestWatermark:
    def test_names_the_transaction_that_holds_it_back(self, store: Store) -> None:
        with store.transaction() as writer:
            writer.write_message("account-1", "Opened")
            store.write_message("account-2", "Opened")

            (age,) = details(store, "watermark.age")

            assert age == {
                "pid": writer.connection.info.backend_pid,
                "application_name": "penstock",
                "role": "postgres",
                "state": "idle in transaction",
            }
            assert figure(store, "watermark.age") > 0
            assert figure(store, "watermark.behind") == 2

    def test_names_the_first_of_several(self, store: Store) -> None:
        with store.transaction() as first, store.transaction() as second:
            first.write_message("account-1", "Opened")
            second.write_message("account-2", "Opened")

            (age,) = details(store, "watermark.age")

            assert age["pid"] == first.connection.info.backend_pid

    def test_has_an_age_where_the_owner_does_not_see_when_others_began(self, store: Store) -> None:
        sql(
            store, "create role penstock_sees_little; grant penstock_reader to penstock_sees_little"
        )
        sql(store, "alter function penstock.open_writers() owner to penstock_sees_little")
        try:
            with store.transaction() as writer:
                writer.write_message("account-1", "Opened")
                store.write_message("account-2", "Opened")
                an_hour_passes(store)

                assert [one.age for one in store.status().open_writers] == [None]
                assert HOUR <= figure(store, "watermark.age") < 2 * HOUR
        finally:
            sql(store, "alter function penstock.open_writers() owner to current_user")
            sql(store, "drop role penstock_sees_little")


class TestGroups:
    @pytest.fixture
    def group(self, store: Store) -> Store:
        """A group that has handled what there was."""
        store.groups.register("group")
        store.append(DeviceSeen(device_id="a"))
        claim = claim_device(store)
        assert claim is not None
        store.groups.ack(claim)
        return store

    def test_do_not_lag_once_all_is_handled(self, group: Store) -> None:
        an_hour_passes(group)

        assert figure(group, "group.lag", group_id="group") == 0
        assert details(group, "group.claim_age") == []

    def test_lag_while_nobody_claims(self, group: Store) -> None:
        group.append(DeviceSeen(device_id="a"))
        an_hour_passes(group)

        assert figure(group, "group.lag", group_id="group") >= HOUR

    def test_lag_while_others_are_claimed_first(self, group: Store) -> None:
        group.append([DeviceSeen(device_id="a"), DeviceSeen(device_id="b")])
        claim = claim_device(group)
        assert claim is not None
        group.groups.ack(claim)
        an_hour_passes(group)

        assert figure(group, "group.lag", group_id="group") >= HOUR

    def test_lag_and_name_the_oldest_claim_while_it_is_held(self, group: Store) -> None:
        hold_claim(group)
        an_hour_passes(group)

        (detail,) = details(group, "group.claim_age")

        assert figure(group, "group.claim_age", group_id="group") >= HOUR
        assert figure(group, "group.lag", group_id="group") >= HOUR
        assert detail == {
            "group_id": "group",
            "partition_key": "device_id:held",
            "claimed_by": "w-1",
        }

    def test_count_what_is_parked_apart_from_what_lags(self, group: Store) -> None:
        park_partition(group)
        an_hour_passes(group)

        assert figure(group, "group.parked", group_id="group") == 1
        assert figure(group, "group.lag", group_id="group") == 0

    def test_that_nobody_ever_claimed_from_have_no_lag_to_tell(self, store: Store) -> None:
        store.groups.register("group")
        store.append(DeviceSeen(device_id="a"))

        assert details(store, "group.lag") == []
        assert figure(store, "group.parked", group_id="group") == 0


class TestOutbox:
    def test_lags_by_its_first_message_that_is_due(self, store: Store) -> None:
        store.outbox.enqueue("mail")
        an_hour_passes(store)

        assert figure(store, "outbox.lag") >= HOUR
        assert details(store, "outbox.lag") == [{"oldest_topic": "mail"}]

    def test_does_not_lag_while_its_messages_are_held(self, store: Store) -> None:
        store.outbox.enqueue("mail")
        an_hour_passes(store)
        store.outbox.claim("me", lease=60)

        assert figure(store, "outbox.lag") == 0

    def test_lags_again_when_a_lease_is_over(self, store: Store) -> None:
        store.outbox.enqueue("mail")
        store.outbox.claim("me", lease=60)
        an_hour_passes(store)

        assert figure(store, "outbox.lag") >= HOUR - 60

    def test_counts_what_failed_by_topic(self, store: Store) -> None:
        for topic in ("mail", "bill", "mail", "done"):
            store.outbox.enqueue(topic)
        claimed = store.outbox.claim("me", 10)
        store.outbox.fail([one for one in claimed if one.topic != "done"], "it broke")

        assert {one["error"] for one in details(store, "outbox.failed")} == {"it broke"}
        assert figure(store, "outbox.failed", topic="bill") == 1
        assert figure(store, "outbox.failed", topic="mail") == 2
        assert len(details(store, "outbox.failed")) == 2


class TestProcessors:
    def test_tell_the_error_that_stopped_them(self, store: Store) -> None:
        sql(store, "select from penstock.open_processor('shop', 'bill', 'stream')")
        fine = figure(store, "processor.failed", pipeline="shop", processor="bill")

        sql(store, "select penstock.fail_step('shop', 'bill', 'hash', 'it broke')")

        assert fine == 0
        assert figure(store, "processor.failed", pipeline="shop", processor="bill") == 1
        assert details(store, "processor.failed")[0]["error"] == "it broke"


def test_who_may_only_read_may_ask(store: Store, database_url: str) -> None:
    busy(store)
    url = database_url.replace("postgres@", "penstock_monitor@")
    sql(store, "create role penstock_monitor login in role penstock_reader")
    try:
        with penstock.connect(url) as reader:
            seen = {one.name for one in reader.admin.health()}
    finally:
        sql(store, "drop role penstock_monitor")

    assert seen == {one.name for one in store.admin.health()}


def test_beside_a_message_db_it_is_the_same(new_database: Callable[[str], str]) -> None:
    with penstock.connect(new_database("beside")) as store:
        busy(store)

        names = {one.name for one in store.admin.health()}

    assert {"consumer.lag", "consumer.parked", "session.lag", "group.lag"} <= names


def test_a_genuine_message_db_has_none(new_database: Callable[[str], str]) -> None:
    with (
        penstock.connect(new_database("genuine")) as store,
        pytest.raises(UnsupportedEdition, match="penstock init"),
    ):
        store.admin.health()


async def test_async_code_gets_the_same(async_store: AsyncStore) -> None:
    figures = await async_store.admin.health()

    assert [one.name for one in figures] == ["watermark.age", "watermark.behind", "outbox.lag"]
