"""Joins: every requirement of the specification by its number, and every line of the design."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg
import pytest

import penstock
from penstock import JoinId, NewMessage, Store
from penstock.errors import (
    JoinAwaited,
    JoinCycle,
    JoinFinished,
    JoinFull,
    JoinMemberNotFound,
    JoinNotFound,
    StaleLease,
    TransactionConflict,
    ValidationError,
)
from penstock.outbox import join_operations
from tests.outbox.outboxes import (
    become_due,
    begin,
    claim_one,
    counters,
    end_leases,
    finish,
    new_dispatcher,
    resolved,
    sql,
    steps,
    time_out_joins,
)
from tests.racing import at_once


def follow_ups(store: Store) -> list[tuple[str, Any]]:
    """The messages that are neither steps nor waits."""
    return [
        (one.topic, one.payload)
        for one in store.outbox.list()
        if one.topic not in ("step", "join.wait")
    ]


class TestSpecification:
    def test_join_001_an_ack_counts_as_completed_in_every_join_of_the_message(
        self, store: Store
    ) -> None:
        joins = [store.joins.start(None, 2) for _ in range(2)]
        store.outbox.enqueue("step", joins=joins)

        finish(store)

        assert [counters(store, one) for one in joins] == [(1, 0), (1, 0)]

    def test_join_002_counter_and_ack_are_one_transaction(self, store: Store) -> None:
        join = store.joins.start(None, 1)
        steps(store, join, 1)
        held = claim_one(store)
        transaction = store.begin_transaction()
        transaction.outbox.ack(held)
        inside = transaction.joins.get(join).completed_steps

        transaction.rollback()

        assert inside == 1
        assert counters(store, join) == (0, 0)
        assert store.outbox.get(held.id).state == "in_progress"

    def test_join_003_a_failure_counts_as_failed_in_every_join_of_the_message(
        self, store: Store
    ) -> None:
        joins = [store.joins.start(None, 2) for _ in range(2)]
        id = store.outbox.enqueue("step", joins=joins)

        finish(store, failing=[id])

        assert [counters(store, one) for one in joins] == [(0, 1), (0, 1)]

    def test_join_004_counter_and_failure_are_one_transaction(self, store: Store) -> None:
        join = store.joins.start(None, 1)
        steps(store, join, 1)
        held = claim_one(store)
        transaction = store.begin_transaction()
        transaction.outbox.fail(held, "broken")
        inside = transaction.joins.get(join).failed_steps

        transaction.rollback()

        assert inside == 1
        assert counters(store, join) == (0, 0)

    def test_join_005_a_join_keeps_key_steps_and_metadata(self, store: Store) -> None:
        join = store.joins.get(store.joins.start("customer-7", 3, '{"type": "etl"}'))

        assert (join.grouping_key, join.expected_steps) == ("customer-7", 3)
        assert (join.metadata, join.status) == ('{"type": "etl"}', "pending")

    def test_join_006_each_join_has_an_id_of_its_own(self, store: Store) -> None:
        ids = [store.joins.start("customer-7", 1) for _ in range(3)]

        assert len(set(ids)) == 3

    def test_join_007_counters_begin_at_zero(self, store: Store) -> None:
        assert counters(store, store.joins.start(None, 3)) == (0, 0)

    def test_join_008_attaching_makes_a_member(self, store: Store) -> None:
        join = store.joins.start(None, 3)
        id = store.outbox.enqueue("step")

        store.joins.attach(join, id)

        [member] = store.joins.members(join)
        assert (member.message_id, member.status) == (id, "pending")

    def test_join_009_attaching_twice_is_attaching_once(self, store: Store) -> None:
        join = store.joins.start(None, 1)
        [id] = steps(store, join, 1)

        store.joins.attach(join, id)
        finish(store)
        store.joins.attach(join, id)

        assert len(store.joins.members(join)) == 1
        assert counters(store, join) == (1, 0)

    def test_join_010_a_step_can_be_reported_as_completed(self, store: Store) -> None:
        join = store.joins.start(None, 2)
        [id] = steps(store, join, 1)

        store.joins.report_completed(join, id)

        assert counters(store, join) == (1, 0)
        assert store.joins.members(join)[0].status == "completed"

    def test_join_011_reporting_completion_twice_counts_once(self, store: Store) -> None:
        join = store.joins.start(None, 2)
        id, _ = steps(store, join, 2)

        store.joins.report_completed(join, id)
        store.joins.report_completed(join, id)

        assert counters(store, join) == (1, 0)

    def test_join_012_a_step_can_be_reported_as_failed(self, store: Store) -> None:
        join = store.joins.start(None, 2)
        [id] = steps(store, join, 1)

        store.joins.report_failed(join, id)

        assert counters(store, join) == (0, 1)

    def test_join_013_reporting_failure_twice_counts_once(self, store: Store) -> None:
        join = store.joins.start(None, 2)
        id, _ = steps(store, join, 2)

        store.joins.report_failed(join, id)
        store.joins.report_failed(join, id)

        assert counters(store, join) == (0, 1)

    def test_join_014_counters_move_by_themselves(self, store: Store) -> None:
        join = store.joins.start(None, 3)
        ids = steps(store, join, 3)
        dispatcher = new_dispatcher(store)

        @dispatcher.handler("step")
        def handle(message: penstock.ClaimedMessage) -> None:
            if message.id == ids[1]:
                raise penstock.errors.PermanentFailure("no")

        dispatcher.run_until_idle()

        assert counters(store, join) == (2, 1)

    def test_join_015_a_join_is_complete_when_all_steps_have_landed(self, store: Store) -> None:
        join = store.joins.start(None, 2)
        ids = steps(store, join, 2)
        store.joins.enqueue_wait(join, False, "all done")
        store.joins.report_completed(join, ids[0])
        before = resolved(store, join)

        store.joins.report_failed(join, ids[1])
        after = resolved(store, join)

        assert (before.is_complete, before.status) == (False, "pending")
        assert (after.is_complete, after.status) == (True, "completed")

    def test_join_016_an_incomplete_join_is_looked_at_again_later(self, store: Store) -> None:
        join = store.joins.start(None, 1)
        wait = store.joins.enqueue_wait(join, on_complete_topic="all done")
        sql(store, "update penstock.outbox set due = clock_timestamp() where id = %s", wait)

        looked_at = new_dispatcher(store).run_until_idle()

        assert looked_at == 1
        assert store.joins.get(join).status == "pending"
        assert store.outbox.get(wait).state == "ready"

    def test_join_017_one_failed_step_fails_the_join_if_that_is_asked_for(
        self, store: Store
    ) -> None:
        joins = [store.joins.start(None, 2) for _ in range(2)]
        for join, strict in zip(joins, (True, False), strict=True):
            store.joins.enqueue_wait(join, strict, "good", None, "bad", None)
        first, _ = (store.outbox.enqueue("step", joins=joins) for _ in range(2))

        finish(store, failing=[first])

        assert [resolved(store, join).status for join in joins] == ["failed", "completed"]

    def test_join_018_a_join_that_succeeds_enqueues_one_message(self, store: Store) -> None:
        join = store.joins.start(None, 1)
        steps(store, join, 1)
        store.joins.enqueue_wait(join, True, "good", {"n": 1}, "bad", {"n": 2})

        finish(store)
        after = resolved(store, join)

        assert after.status == "completed"
        assert follow_ups(store) == [("good", {"n": 1})]
        become_due(store)
        follow_up = claim_one(store)
        assert (follow_up.id, follow_up.correlation_id) == (after.follow_up_id, str(join))

    def test_join_019_a_join_that_fails_enqueues_the_other(self, store: Store) -> None:
        join = store.joins.start(None, 1)
        ids = steps(store, join, 1)
        store.joins.enqueue_wait(join, True, "good", {"n": 1}, "bad", {"n": 2})

        finish(store, failing=ids)

        assert resolved(store, join).status == "failed"
        assert follow_ups(store) == [("bad", {"n": 2})]

    def test_join_020_joins_are_found_by_their_grouping_key(self, store: Store) -> None:
        ada = [store.joins.start("ada", 1) for _ in range(2)]
        bob, nobody = store.joins.start("bob", 1), store.joins.start(None, 1)
        store.joins.cancel(ada[0])

        found = store.joins.list(grouping_key="ada")
        pending = store.joins.list(grouping_key="ada", status="pending")

        assert [one.join_id for one in found] == ada
        assert [one.join_id for one in pending] == ada[1:]
        assert [one.join_id for one in store.joins.list()] == [*ada, bob, nobody]

    def test_join_021_a_message_may_be_in_several_joins(self, store: Store) -> None:
        joins = [store.joins.start(None, n) for n in (1, 2, 3)]
        store.outbox.enqueue("step", joins=joins)

        finish(store)

        assert [store.joins.get(one).is_complete for one in joins] == [True, False, False]


def test_the_specifications_example_transforms_when_all_extractions_are_done(store: Store) -> None:
    join_id = store.joins.start(
        grouping_key="customer-7", expected_steps=3, metadata='{"type": "etl", "phase": "extract"}'
    )
    tables = ("customers", "orders", "products")
    for table in tables:
        message_id = store.outbox.enqueue(f"extract.{table}", {"table": table})
        store.joins.attach(join_id, message_id)
    store.joins.enqueue_wait(
        join_id=join_id,
        fail_if_any_step_failed=True,
        on_complete_topic="etl.transform",
        on_complete_payload='{"CustomerId": 7}',
    )
    dispatcher, done = new_dispatcher(store), list[str]()
    for topic in (*(f"extract.{table}" for table in tables), "etl.transform"):
        dispatcher.handler(topic)(lambda message: done.append(message.topic))

    dispatcher.run_until_idle()

    assert sorted(done[:3]) == [f"extract.{table}" for table in tables]
    assert done[3:] == ["etl.transform"]
    assert store.joins.get(join_id).status == "completed"


class TestDecided:
    def test_each_member_counts_once_and_the_first_outcome_wins(self, store: Store) -> None:
        join = store.joins.start(None, 3)
        ids = steps(store, join, 3)
        store.joins.report_failed(join, ids[0])
        store.joins.report_completed(join, ids[1])

        finish(store, failing=[ids[1]])
        store.joins.report_failed(join, ids[2])

        outcomes = {one.message_id: one.status for one in store.joins.members(join)}
        assert [outcomes[id] for id in ids] == ["failed", "completed", "completed"]
        assert counters(store, join) == (2, 1)

    def test_a_retry_of_a_failed_step_does_not_count_again(self, store: Store) -> None:
        join = store.joins.start(None, 1)
        ids = steps(store, join, 1)
        finish(store, failing=ids)

        store.outbox.retry_failed()
        finish(store)

        assert store.outbox.get(ids[0]).state == "done"
        assert counters(store, join) == (0, 1)

    def test_counters_never_pass_expected_steps(self, store: Store) -> None:
        join = store.joins.start(None, 1)
        steps(store, join, 1)
        extra = store.outbox.enqueue("step")

        with pytest.raises(JoinFull) as caught:
            store.joins.attach(join, extra)
        with pytest.raises(JoinFull):
            store.outbox.enqueue("step", joins=[join])
        finish(store)

        assert caught.value.expected_steps == 1
        assert counters(store, join) == (1, 0)
        assert len(store.outbox.list()) == 2

    @pytest.mark.parametrize(("fails", "expected"), [(False, (1, 0)), (True, (0, 1))])
    def test_attaching_a_finished_message_counts_its_outcome_then_and_there(
        self, store: Store, fails: bool, expected: tuple[int, int]
    ) -> None:
        join = store.joins.start(None, 1)
        id = store.outbox.enqueue("step")
        finish(store, failing=[id] if fails else [])
        store.joins.enqueue_wait(join, False, "all done")

        store.joins.attach(join, id)

        assert counters(store, join) == expected
        assert resolved(store, join).status == "completed"

    def test_a_known_message_is_attached_by_enqueueing_it_again(self, store: Store) -> None:
        join = store.joins.start(None, 2)
        store.outbox.enqueue("step", dedupe_key="k")
        finish(store)

        store.outbox.enqueue_many(
            [NewMessage("step", dedupe_key="k"), NewMessage("step")], joins=[join]
        )

        assert counters(store, join) == (1, 0)
        assert len(store.joins.members(join)) == 2

    def test_reporting_for_a_message_not_attached_raises(self, store: Store) -> None:
        join = store.joins.start(None, 1)
        id = store.outbox.enqueue("step")

        for report in (store.joins.report_completed, store.joins.report_failed):
            with pytest.raises(JoinMemberNotFound):
                report(join, id)

        assert counters(store, join) == (0, 0)

    @pytest.mark.parametrize("steps", [0, -1, 1.5, "3", None, True, 2**31])
    def test_expected_steps_below_1_is_refused(self, store: Store, steps: Any) -> None:
        with pytest.raises(ValidationError):
            store.joins.start(None, steps)

        assert store.joins.list() == []

    def test_waiting_uses_no_attempts_and_is_woken_when_the_last_step_lands(
        self, store: Store
    ) -> None:
        join = store.joins.start(None, 2, timeout=3600)
        ids = steps(store, join, 2)
        wait = store.joins.enqueue_wait(join, on_complete_topic="all done")
        looks = 0
        for _ in range(3):
            sql(store, "update penstock.outbox set due = clock_timestamp() where id = %s", wait)
            looks += new_dispatcher(store).run_until_idle()
        asleep = store.outbox.get(wait)

        store.joins.report_completed(join, ids[0])
        halfway = store.outbox.get(wait)
        store.joins.report_completed(join, ids[1])
        awake = store.outbox.get(wait)

        assert (looks, asleep.attempts) == (3, 0)
        assert halfway.due == asleep.due == store.joins.get(join).times_out_at
        assert awake.due is not None
        assert asleep.due is not None
        assert awake.due < asleep.due
        assert resolved(store, join).status == "completed"

    def test_what_lands_after_the_timeout_does_not_count(self, store: Store) -> None:
        join = store.joins.start(None, 1, timeout=3600)
        [id] = steps(store, join, 1)
        store.joins.enqueue_wait(join, on_complete_topic="good", on_fail_topic="bad")
        time_out_joins(store)

        store.joins.report_completed(join, id)

        assert resolved(store, join).status == "failed"
        assert store.joins.get(join).completed_steps == 0

    def test_a_join_has_failed_once_its_time_is_up_also_if_nobody_waits(self, store: Store) -> None:
        join = store.joins.start(None, 2, timeout=3600)
        [id] = steps(store, join, 1)
        time_out_joins(store)

        with pytest.raises(JoinFinished, match="failed"):
            store.outbox.enqueue("step", joins=[join])

        assert store.joins.get(join).status == "failed"
        assert store.joins.list(status="pending") == []
        assert [one.join_id for one in store.joins.list(status="failed")] == [join]
        assert [one.message_id for one in store.joins.members(join)] == [id]

    def test_a_wait_cannot_be_a_step_of_its_own_join(self, store: Store) -> None:
        join = store.joins.start(None, 1)
        wait = store.joins.enqueue_wait(join, on_complete_topic="good")

        with pytest.raises(penstock.errors.JoinCycle, match="cannot be a step of it"):
            store.joins.attach(join, wait)

        assert store.joins.members(join) == []

    @pytest.mark.parametrize("length", [2, 3, 5])
    def test_a_ring_of_joins_is_refused(self, store: Store, length: int) -> None:
        joins = [store.joins.start(None, 2) for _ in range(length)]
        waits = [store.joins.enqueue_wait(one, on_complete_topic="good") for one in joins]
        for number in range(length - 1):
            store.joins.attach(joins[number], waits[number + 1])

        with pytest.raises(JoinCycle) as caught:
            store.joins.attach(joins[-1], waits[0])

        assert caught.value.message_id == str(waits[0])
        assert caught.value.waiting_join_id == str(joins[0])
        assert store.joins.members(joins[-1]) == []

    def test_joins_may_be_nested_without_a_ring(self, store: Store) -> None:
        top, left, right, bottom = (store.joins.start(None, 2) for _ in range(4))
        waits = {
            one: store.joins.enqueue_wait(one, on_complete_topic="good")
            for one in (top, left, right, bottom)
        }
        steps(store, bottom, 2)
        for outer, inner in ((top, left), (top, right), (left, bottom), (right, bottom)):
            store.joins.attach(outer, waits[inner])
        for side in (left, right):
            steps(store, side, 1)

        dispatcher = new_dispatcher(store)
        for topic in ("step", "good"):
            dispatcher.handler(topic)(lambda message: None)
        dispatcher.run_until_idle()

        assert store.joins.get(top).status == "completed"

    def test_the_same_wait_again_is_the_first_also_when_it_is_resolved(self, store: Store) -> None:
        join = store.joins.start(None, 1)
        steps(store, join, 1)
        wait = store.joins.enqueue_wait(join, on_complete_topic="good")

        waiting = store.joins.enqueue_wait(join, on_complete_topic="good")
        finish(store)
        resolved(store, join)
        done = store.joins.enqueue_wait(join, on_complete_topic="good")

        assert (waiting, done) == (wait, wait)
        assert len(store.outbox.list(topic="join.wait")) == 1

    @pytest.mark.parametrize("complete", [True, False])
    def test_resolving_again_with_the_same_token_answers_the_same(
        self, store: Store, complete: bool
    ) -> None:
        join = store.joins.start(None, 1)
        steps(store, join, 1)
        store.joins.enqueue_wait(join, on_complete_topic="good")
        if complete:
            finish(store)
        else:
            become_due(store)
            sql(store, "update penstock.outbox set due = clock_timestamp() where due is null")
        [wait] = store.outbox.claim("me", topics=["join.wait"])
        first = store.run(join_operations.resolve(wait))

        again = store.run(join_operations.resolve(wait))

        assert (first, again) == (("completed",) * 2 if complete else ("pending",) * 2)
        assert len(follow_ups(store)) == (1 if complete else 0)

    @pytest.mark.parametrize("column", ["times_out_at", "created_at", "updated_at"])
    def test_a_moment_that_python_cannot_hold_stops_no_listing(
        self, store: Store, column: str
    ) -> None:
        join = store.joins.start(None, 1)
        sql(store, f"update penstock.joins set {column} = 'infinity'")

        assert [one.join_id for one in store.joins.list()] == [join]

    @pytest.mark.parametrize(
        "payload",
        [
            b"{",
            b'{"join_id": "no id"}',
            b'{"join_id": "00000000-0000-0000-0000-000000000000"}',
            b'{"join_id": "%s", "on_complete_topic": "", "on_complete_payload": ["", "text"],'
            b' "on_fail_payload": ["", "text"]}',
        ],
    )
    def test_a_wait_that_can_never_be_resolved_fails_at_once(
        self, store: Store, payload: bytes
    ) -> None:
        join = store.joins.start(None, 1)
        steps(store, join, 1)
        wait = store.joins.enqueue_wait(join, on_complete_topic="good")
        forged = payload.replace(b"%s", str(join).encode())
        sql(store, "update penstock.outbox set payload = %s where id = %s", forged, wait)
        finish(store)

        new_dispatcher(store).run_until_idle()

        found = store.outbox.get(wait)
        assert (found.state, found.attempts) == ("failed", 1)
        assert str(found.last_error).startswith("PermanentFailure: ")

    def test_all_old_joins_are_cleaned_up_however_many(self, store: Store) -> None:
        for _ in range(5):
            store.joins.cancel(store.joins.start(None, 1))

        store.outbox.clean_up(timedelta(0), batch_size=2)

        assert store.joins.list() == []

    def test_a_wait_without_a_timeout_sleeps_without_end(self, store: Store) -> None:
        join = store.joins.start(None, 1)

        wait = store.joins.enqueue_wait(join, on_complete_topic="all done")

        assert store.outbox.get(wait).due is None
        assert [one.due for one in store.outbox.list()] == [None]
        assert store.outbox.claim("me") == []

    def test_a_wait_for_a_complete_join_is_awake(self, store: Store) -> None:
        join = store.joins.start(None, 1)
        steps(store, join, 1)
        finish(store)

        store.joins.enqueue_wait(join, on_complete_topic="all done")

        assert resolved(store, join).status == "completed"

    def test_a_wait_that_is_claimed_when_the_last_step_lands_finds_it(self, store: Store) -> None:
        join = store.joins.start(None, 1)
        ids = steps(store, join, 1)
        wait = store.joins.enqueue_wait(join, on_complete_topic="all done")
        held = claim_one(store)
        sql(store, "update penstock.outbox set due = clock_timestamp() where id = %s", wait)
        claim_one(store, "dies with the wait")

        store.outbox.ack(held)
        end_leases(store)

        assert resolved(store, join).status == "completed"
        assert store.outbox.get(wait).state == "done"
        assert ids == [held.id]

    def test_resolving_happens_once(self, store: Store) -> None:
        join = store.joins.start(None, 1)
        steps(store, join, 1)
        wait = store.joins.enqueue_wait(join, on_complete_topic="all done")
        finish(store)
        dispatchers = [new_dispatcher(store, lease=0.001, owner=str(n)) for n in range(4)]

        at_once(*(one.run_until_idle for one in dispatchers))
        resolved(store, join)

        assert [topic for topic, _ in follow_ups(store)] == ["all done"]
        assert store.outbox.get(wait).state == "done"

    def test_cancelled_is_final_and_has_no_follow_up(self, store: Store) -> None:
        join = store.joins.start(None, 1)
        ids = steps(store, join, 1)
        wait = store.joins.enqueue_wait(join, True, "good", None, "bad", None)

        store.joins.cancel(join)
        finish(store)
        store.joins.report_completed(join, ids[0])
        store.joins.cancel(join)

        after = resolved(store, join)
        assert (after.status, after.completed_steps, after.follow_up_id) == ("cancelled", 0, None)
        assert store.outbox.get(wait).state == "done"
        assert follow_ups(store) == []

    def test_a_complete_join_can_be_cancelled_until_it_is_resolved(self, store: Store) -> None:
        join = store.joins.start(None, 1)
        steps(store, join, 1)
        wait = store.joins.enqueue_wait(join, on_complete_topic="good")
        finish(store)

        store.joins.cancel(join)

        assert resolved(store, join).status == "cancelled"
        assert store.outbox.get(wait).state == "done"
        assert follow_ups(store) == []

    @pytest.mark.parametrize("payload", ["", b"", {}, [], None])
    def test_an_empty_payload_is_a_payload(self, store: Store, payload: Any) -> None:
        join = store.joins.start(None, 1)
        steps(store, join, 1)
        store.joins.enqueue_wait(join, on_complete_topic="good", on_complete_payload=payload)

        finish(store)
        resolved(store, join)

        assert follow_ups(store) == [("good", payload)]

    def test_a_missing_join_fails_at_once_with_its_reason(self, store: Store) -> None:
        join = store.joins.start(None, 1)
        wait = store.joins.enqueue_wait(join, on_complete_topic="good")
        sql(store, "delete from penstock.joins")
        sql(store, "update penstock.outbox set due = clock_timestamp()")

        new_dispatcher(store).run_until_idle()

        message = store.outbox.get(wait)
        assert (message.state, message.attempts) == ("failed", 1)
        assert message.last_error == f"PermanentFailure: there is no join {join}"

    def test_a_join_that_is_not_complete_in_time_fails(self, store: Store) -> None:
        join = store.joins.start(None, 2, timeout=3600)
        steps(store, join, 2)
        store.joins.enqueue_wait(join, False, "good", None, "bad", "too late")
        held = claim_one(store)
        store.outbox.ack(held)

        time_out_joins(store)
        after = resolved(store, join)

        assert (after.status, after.completed_steps) == ("failed", 1)
        assert follow_ups(store) == [("bad", "too late")]

    def test_what_lands_after_the_time_counts_no_more(self, store: Store) -> None:
        join = store.joins.start(None, 1, timeout=3600)
        ids = steps(store, join, 1)
        store.joins.enqueue_wait(join, on_fail_topic="bad")
        held = claim_one(store)
        time_out_joins(store)
        resolved(store, join)

        store.outbox.ack(held)

        assert counters(store, join) == (0, 0)
        assert store.outbox.get(ids[0]).state == "done"

    def test_a_wait_may_itself_be_a_step_of_another_join(self, store: Store) -> None:
        inner, outer = store.joins.start(None, 1), store.joins.start(None, 1)
        steps(store, inner, 1)
        wait = store.joins.enqueue_wait(inner, on_complete_topic="inner done")
        store.joins.attach(outer, wait)
        store.joins.enqueue_wait(outer, on_complete_topic="outer done")

        finish(store)
        resolved(store, inner)

        assert store.joins.get(outer).status == "completed"
        assert sorted(topic for topic, _ in follow_ups(store)) == ["inner done", "outer done"]

    def test_after_a_wait_that_somebody_finished_by_hand_there_can_be_another(
        self, store: Store
    ) -> None:
        join = store.joins.start(None, 1)
        steps(store, join, 1)
        first = store.joins.enqueue_wait(join, on_complete_topic="good")
        finish(store)
        store.outbox.ack(claim_one(store))

        second = store.joins.enqueue_wait(join, on_complete_topic="good")

        assert first != second
        assert resolved(store, join).status == "completed"
        assert [topic for topic, _ in follow_ups(store)] == ["good"]

    def test_a_wait_that_is_tried_again_finds_the_join_resolved(self, store: Store) -> None:
        join = store.joins.start(None, 1)
        steps(store, join, 1)
        first = store.joins.enqueue_wait(join, on_complete_topic="good")
        finish(store)
        store.outbox.fail(claim_one(store), "by hand")
        store.joins.enqueue_wait(join, on_complete_topic="good")
        resolved(store, join)

        store.outbox.retry_failed([first])
        resolved(store, join)

        assert store.outbox.get(first).state == "done"
        assert follow_ups(store) == [("good", None)]

    def test_without_a_topic_for_an_outcome_there_is_no_follow_up(self, store: Store) -> None:
        join = store.joins.start(None, 1)
        steps(store, join, 1)
        store.joins.enqueue_wait(join, on_fail_topic="bad")

        finish(store)

        assert resolved(store, join).status == "completed"
        assert follow_ups(store) == []

    def test_a_join_its_steps_and_its_wait_can_start_in_one_transaction(self, store: Store) -> None:
        with store.transaction() as transaction:
            join = transaction.joins.start("customer-7", 2)
            transaction.outbox.enqueue_many([NewMessage("step", n) for n in range(2)], joins=[join])
            transaction.joins.enqueue_wait(join, on_complete_topic="good")
            outside = store.joins.list()

        finish(store)

        assert outside == []
        assert resolved(store, join).status == "completed"

    def test_finished_joins_are_cleaned_up_and_pending_ones_stay(self, store: Store) -> None:
        finished, pending = store.joins.start(None, 1), store.joins.start(None, 1)
        cancelled = store.joins.start(None, 1)
        steps(store, finished, 1)
        store.joins.enqueue_wait(finished, on_complete_topic="good")
        store.joins.enqueue_wait(cancelled, on_complete_topic="good")
        finish(store)
        resolved(store, finished)
        sql(store, "update penstock.outbox set due = due + interval '1 hour' where state = 'ready'")
        store.joins.cancel(cancelled)

        store.outbox.clean_up(timedelta(0))

        assert [one.join_id for one in store.joins.list()] == [pending, cancelled]


class TestBadInput:
    def test_an_unknown_join_is_not_found(self, store: Store) -> None:
        unknown, id = penstock.JoinId(penstock.new_id()), store.outbox.enqueue("step")
        calls: list[Callable[[], object]] = [
            lambda: store.joins.get(unknown),
            lambda: store.joins.members(unknown),
            lambda: store.joins.cancel(unknown),
            lambda: store.joins.attach(unknown, id),
            lambda: store.joins.report_completed(unknown, id),
            lambda: store.joins.report_failed(unknown, id),
            lambda: store.joins.enqueue_wait(unknown, on_complete_topic="good"),
            lambda: store.outbox.enqueue("step", joins=[unknown]),
        ]

        for call in calls:
            with pytest.raises(JoinNotFound) as caught:
                call()
            assert caught.value.join_id == str(unknown)

        assert [one.id for one in store.outbox.list()] == [id]

    def test_the_ids_of_messages_and_joins_are_types_of_their_own(self, store: Store) -> None:
        id = store.outbox.enqueue("step")

        # mypy refuses each of these, and would say so if an ignore were not needed
        with pytest.raises(JoinNotFound):
            store.joins.get(id)  # type: ignore[arg-type]
        with pytest.raises(JoinNotFound):
            store.joins.attach(id, id)  # type: ignore[arg-type]
        with pytest.raises(JoinNotFound):
            store.outbox.enqueue("step", joins=[id])  # type: ignore[list-item]

    def test_an_unknown_message_cannot_be_attached(self, store: Store) -> None:
        join, unknown = store.joins.start(None, 1), str(penstock.new_id())

        with pytest.raises(penstock.errors.OutboxMessageNotFound):
            store.joins.attach(join, unknown)

        assert store.joins.members(join) == []

    @pytest.mark.parametrize("ending", ["completed", "cancelled"])
    def test_a_finished_join_takes_no_more(self, store: Store, ending: str) -> None:
        join = store.joins.start(None, 1)
        if ending == "completed":
            steps(store, join, 1)
            store.joins.enqueue_wait(join, on_complete_topic="good")
            finish(store)
            resolved(store, join)
        else:
            store.joins.cancel(join)
        late = store.outbox.enqueue("late")

        with pytest.raises(JoinFinished) as caught:
            store.joins.attach(join, late)
        with pytest.raises(JoinFinished):
            store.joins.enqueue_wait(join, on_complete_topic="better")

        assert caught.value.status == ending

    def test_a_resolved_join_cannot_be_cancelled(self, store: Store) -> None:
        join = store.joins.start(None, 1)
        steps(store, join, 1)
        store.joins.enqueue_wait(join, on_complete_topic="good")
        finish(store)
        resolved(store, join)

        with pytest.raises(JoinFinished):
            store.joins.cancel(join)

        assert store.joins.get(join).status == "completed"

    def test_a_join_is_waited_for_once(self, store: Store) -> None:
        join = store.joins.start(None, 1)
        wait = store.joins.enqueue_wait(join, on_complete_topic="good")

        with pytest.raises(JoinAwaited) as caught:
            store.joins.enqueue_wait(join, on_complete_topic="better")

        assert caught.value.wait_id == str(wait)
        assert len(store.outbox.list()) == 1

    @pytest.mark.parametrize(
        "wrong",
        [
            {},
            {"on_complete_topic": ""},
            {"on_fail_topic": 7},
            {"on_complete_topic": "join.wait"},
            {"on_complete_topic": "good", "on_complete_payload": object()},
            {"on_complete_topic": "good", "fail_if_any_step_failed": "yes"},
        ],
    )
    def test_a_bad_wait_is_refused(self, store: Store, wrong: dict[str, Any]) -> None:
        join = store.joins.start(None, 1)

        with pytest.raises(ValidationError):
            store.joins.enqueue_wait(join, **wrong)

        assert store.outbox.list() == []

    @pytest.mark.parametrize(
        "call",
        [
            lambda joins: joins.start("", 1),
            lambda joins: joins.start(7, 1),
            lambda joins: joins.start(None, 1, {"not": "text"}),
            lambda joins: joins.start(None, 1, timeout=0),
            lambda joins: joins.start(None, 1, timeout=float("inf")),
            lambda joins: joins.list(status="odd"),
            lambda joins: joins.list(limit=0),
            lambda joins: joins.get("7"),
            lambda joins: joins.attach(penstock.new_id(), "7"),
        ],
    )
    def test_other_bad_calls_are_refused(self, store: Store, call: Callable[[Any], Any]) -> None:
        with pytest.raises(ValidationError):
            call(store.joins)

    def test_a_wait_that_says_nothing_fails_with_its_reason(self, store: Store) -> None:
        sql(
            store,
            "insert into penstock.outbox (id, topic, payload, encoding, due)"
            " values (gen_random_uuid(), 'join.wait', '{}', 'json', clock_timestamp())",
        )

        new_dispatcher(store).run_until_idle()

        [message] = store.outbox.list()
        assert message.state == "failed"
        assert "no wait for a join" in str(message.last_error)


class TestRaces:
    """Two connections, each stopped where it hurts."""

    def test_a_message_attached_while_it_is_acknowledged_counts_once(self, store: Store) -> None:
        join = store.joins.start(None, 1)
        id = store.outbox.enqueue("step")
        held = claim_one(store)
        acking = store.begin_transaction()
        acking.outbox.ack(held)

        attached = begin(store, lambda: store.joins.attach(join, id))
        acking.commit()
        attached()

        assert counters(store, join) == (1, 0)

    def test_a_message_acknowledged_while_it_is_attached_counts_once(self, store: Store) -> None:
        join = store.joins.start(None, 1)
        id = store.outbox.enqueue("step")
        held = claim_one(store)
        attaching = store.begin_transaction()
        attaching.joins.attach(join, id)

        acked = begin(store, lambda: store.outbox.ack(held))
        attaching.commit()
        acked()

        assert counters(store, join) == (1, 0)

    @pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
    def test_an_ack_on_an_old_snapshot_does_not_overlook_a_member(
        self, store: Store, isolation: str
    ) -> None:
        join = store.joins.start(None, 1)
        id = store.outbox.enqueue("step")
        held = claim_one(store)
        acking = store.begin_transaction(isolation)
        acking.outbox.get(id)
        store.joins.attach(join, id)

        with pytest.raises(TransactionConflict):
            acking.outbox.ack(held)
        acking.rollback()
        store.outbox.ack(held)

        assert counters(store, join) == (1, 0)

    def test_a_last_step_on_an_old_snapshot_does_not_lose_the_wake_up(self, store: Store) -> None:
        join = store.joins.start(None, 1)
        steps(store, join, 1)
        wait = store.joins.enqueue_wait(join, on_complete_topic="good")
        held = claim_one(store)
        sql(store, "update penstock.outbox set due = clock_timestamp() where id = %s", wait)
        waiting = claim_one(store, "resolver")
        acking = store.begin_transaction("repeatable read")
        acking.outbox.get(wait)
        store.run(join_operations.resolve(waiting))

        with pytest.raises(TransactionConflict):
            acking.outbox.ack(held)
        acking.rollback()
        store.outbox.ack(held)

        assert resolved(store, join).status == "completed"

    def test_a_wait_that_goes_back_to_sleep_as_the_last_step_lands_is_woken(
        self, store: Store
    ) -> None:
        join = store.joins.start(None, 1)
        steps(store, join, 1)
        wait = store.joins.enqueue_wait(join, on_complete_topic="good")
        held = claim_one(store)
        sql(store, "update penstock.outbox set due = clock_timestamp() where id = %s", wait)
        waiting = claim_one(store, "resolver")
        resolving = store.begin_transaction()
        status = resolving.run(join_operations.resolve(waiting))

        acked = begin(store, lambda: store.outbox.ack(held))
        resolving.commit()
        acked()

        assert status == "pending"
        assert resolved(store, join).status == "completed"

    @pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
    def test_two_that_would_close_a_ring_together_do_not(
        self, store: Store, isolation: str
    ) -> None:
        joins = [store.joins.start(None, 2) for _ in range(4)]
        waits = [store.joins.enqueue_wait(one, on_complete_topic="good") for one in joins]
        store.joins.attach(joins[0], waits[1])
        store.joins.attach(joins[2], waits[3])
        first, second = (store.begin_transaction(isolation) for _ in range(2))
        for one in (first, second):
            one.outbox.list()
        first.joins.attach(joins[1], waits[2])

        attached = begin(store, lambda: second.joins.attach(joins[3], waits[0]))
        first.commit()

        with pytest.raises((JoinCycle, TransactionConflict)) as caught:
            attached()
        second.rollback()
        assert (caught.type is JoinCycle) == (isolation == "read committed")
        with pytest.raises(JoinCycle):
            store.joins.attach(joins[3], waits[0])

    @pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
    def test_a_wait_enqueued_on_an_old_snapshot_is_not_left_asleep(
        self, store: Store, isolation: str
    ) -> None:
        join = store.joins.start(None, 1)
        steps(store, join, 1)
        waiting = store.begin_transaction(isolation)
        waiting.joins.get(join)
        finish(store)

        with pytest.raises(TransactionConflict):
            waiting.joins.enqueue_wait(join, on_complete_topic="good")
        waiting.rollback()
        store.joins.enqueue_wait(join, on_complete_topic="good")

        assert resolved(store, join).status == "completed"

    def test_a_cancel_while_the_join_is_resolved_comes_too_late(self, store: Store) -> None:
        join = store.joins.start(None, 1)
        steps(store, join, 1)
        store.joins.enqueue_wait(join, on_complete_topic="good")
        finish(store)
        resolving = store.begin_transaction()
        resolving.run(join_operations.resolve(claim_one(store)))

        cancelled = begin(store, lambda: store.joins.cancel(join))
        resolving.commit()

        with pytest.raises(JoinFinished):
            cancelled()
        assert store.joins.get(join).status == "completed"

    def test_two_steps_that_are_acknowledged_at_once_both_count(self, store: Store) -> None:
        join = store.joins.start(None, 2)
        steps(store, join, 2)
        first, second = store.outbox.claim("me", 2)
        acking = store.begin_transaction()
        acking.outbox.ack(first)

        acked = begin(store, lambda: store.outbox.ack(second))
        acking.commit()
        acked()

        assert counters(store, join) == (2, 0)

    def test_a_wait_that_is_resolved_as_a_step_beside_it_lands_counts_too(
        self, store: Store
    ) -> None:
        inner, outer = store.joins.start(None, 1), store.joins.start(None, 2)
        steps(store, inner, 1)
        wait = store.joins.enqueue_wait(inner, on_complete_topic="good")
        store.joins.attach(outer, wait)
        finish(store)
        held = claim_one(store)
        steps(store, outer, 1)
        beside = claim_one(store)
        acking = store.begin_transaction()
        acking.outbox.ack(beside)

        resolved = begin(store, lambda: store.run(join_operations.resolve(held)))
        acking.commit()

        assert resolved() == "completed"
        assert counters(store, outer) == (2, 0)

    def test_two_who_attach_a_last_step_at_once_do_not_both_do_it(self, store: Store) -> None:
        join = store.joins.start(None, 1)
        first, second = (store.outbox.enqueue("step") for _ in range(2))
        attaching = store.begin_transaction()
        attaching.joins.attach(join, first)

        attached = begin(store, lambda: store.joins.attach(join, second))
        attaching.commit()

        with pytest.raises(JoinFull):
            attached()
        assert [one.message_id for one in store.joins.members(join)] == [first]

    @pytest.mark.parametrize("locking", ["acks", "enqueues", "resolves"])
    def test_joins_are_locked_in_the_order_of_their_ids(self, store: Store, locking: str) -> None:
        low, high = sorted(store.joins.start(None, 4) for _ in range(2))
        one, other = (store.outbox.enqueue("other") for _ in range(2))
        call = _locks_both(store, locking, low, high)
        attaching = store.begin_transaction()
        attaching.joins.attach(low, one)

        called = begin(store, call)
        attaching.joins.attach(high, other)
        attaching.commit()

        called()
        assert [len(store.joins.members(join)) for join in (low, high)] == [2, 2]

    def test_the_same_resolve_twice_at_once_answers_the_same_twice(self, store: Store) -> None:
        join = store.joins.start(None, 1)
        wait = store.joins.enqueue_wait(join, on_complete_topic="good")
        sql(store, "update penstock.outbox set due = clock_timestamp() where id = %s", wait)
        held = claim_one(store)
        resolving = store.begin_transaction()
        first = resolving.run(join_operations.resolve(held))

        second = begin(store, lambda: store.run(join_operations.resolve(held)))
        resolving.commit()

        assert (first, second()) == ("pending", "pending")
        assert store.outbox.get(wait).attempts == 0

    def test_who_lost_the_wait_does_not_resolve_the_join(self, store: Store) -> None:
        join = store.joins.start(None, 1)
        steps(store, join, 1)
        store.joins.enqueue_wait(join, on_complete_topic="good")
        finish(store)
        slow = claim_one(store, "slow")
        end_leases(store)
        quick = claim_one(store, "quick")

        with pytest.raises(StaleLease):
            store.run(join_operations.resolve(slow))
        before = store.joins.get(join).status
        store.run(join_operations.resolve(quick))

        assert (before, store.joins.get(join).status) == ("pending", "completed")
        assert follow_ups(store) == [("good", None)]

    def test_a_ring_is_found_by_whose_snapshot_lies_between_two_that_nest(
        self, store: Store
    ) -> None:
        joins = [store.joins.start(None, 2) for _ in range(4)]
        waits = [store.joins.enqueue_wait(one, on_complete_topic="good") for one in joins]
        first, second = (store.begin_transaction() for _ in range(2))
        first.joins.attach(joins[0], waits[1])
        attached = begin(store, lambda: second.joins.attach(joins[2], waits[3]))
        first.commit()
        attached()
        third = store.begin_transaction("repeatable read")
        third.outbox.list()
        second.commit()

        with pytest.raises(TransactionConflict):
            third.joins.attach(joins[3], waits[2])
        third.rollback()

        assert store.joins.members(joins[3]) == []

    def test_batches_that_share_joins_do_not_deadlock(self, store: Store) -> None:
        joins = [store.joins.start(None, 64) for _ in range(4)]
        batches = [
            store.outbox.enqueue_many([NewMessage("step", n) for n in range(16)], joins=order)
            for order in (joins, joins[::-1], joins[2:] + joins[:2], joins[::-1])
        ]
        claims = [store.outbox.claim(str(n), 16) for n in range(4)]

        results = at_once(
            *(partial(store.outbox.ack, claim) for claim in claims),
            *(
                partial(store.joins.report_completed, join, batch[0])
                for batch, join in zip(batches, joins, strict=True)
            ),
            *(
                partial(store.joins.attach, join, batch[1])
                for batch, join in zip(batches, joins, strict=True)
            ),
        )

        assert results == [None] * 12
        assert [counters(store, one) for one in joins] == [(64, 0)] * 4

    def test_finishing_attaching_resolving_and_cancelling_at_once_end_well(
        self, store: Store
    ) -> None:
        dispatcher = new_dispatcher(store, polling_interval_ms=1)
        dispatcher.handler("good")(lambda message: None)
        for _ in range(5):
            shared = [store.joins.start(None, 3) for _ in range(3)]
            first, second = (store.outbox.enqueue("step", joins=shared) for _ in range(2))
            loose = store.outbox.enqueue("step")
            for join in shared:
                store.joins.enqueue_wait(join, on_complete_topic="good")
            held = {one.id: one for one in store.outbox.claim("me", 3)}
            store.outbox.ack(held[first])

            results = at_once(
                partial(store.outbox.ack, held[second]),
                partial(store.outbox.ack, held[loose]),
                *(partial(store.joins.attach, join, loose) for join in shared),
                partial(store.joins.cancel, shared[0]),
                dispatcher.run_until_idle,
            )
            dispatcher.run_until_idle()

            bad = [one for one in results if isinstance(one, Exception)]
            assert all(isinstance(one, JoinFinished) for one in bad)
            assert {store.joins.get(one).status for one in shared[1:]} == {"completed"}


def _locks_both(store: Store, locking: str, low: JoinId, high: JoinId) -> Callable[[], object]:
    """Return a call that counts, attaches or resolves a step of both joins."""
    if locking == "enqueues":
        return lambda: store.outbox.enqueue("step", joins=[high, low])
    if locking == "acks":
        store.outbox.enqueue("step", joins=[high, low])
        [held] = store.outbox.claim("me", topics=["step"])
        return lambda: store.outbox.ack(held)
    inner = store.joins.start(None, 1)
    store.outbox.enqueue("step", joins=[inner])
    wait = store.joins.enqueue_wait(inner, on_complete_topic="good")
    for join in (low, high):
        store.joins.attach(join, wait)
    [step] = store.outbox.claim("me", topics=["step"])
    store.outbox.ack(step)
    [waiting] = store.outbox.claim("me", topics=["join.wait"])
    return lambda: store.run(join_operations.resolve(waiting))


async def test_the_async_outbox_joins_the_transaction_of_your_connection(
    async_store: penstock.AsyncStore,
) -> None:
    connection = await psycopg.AsyncConnection.connect(async_store.settings.conninfo())
    async with connection:
        mine = async_store.using(connection)
        join = await mine.joins.start(None, 1)
        await mine.outbox.enqueue("step", joins=[join])
        inside = await mine.outbox.list(), await mine.joins.list()
        await connection.rollback()

    assert [len(one) for one in inside] == [1, 1]
    assert await async_store.outbox.list() == []
    assert await async_store.joins.list() == []
