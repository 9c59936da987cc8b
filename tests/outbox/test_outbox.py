"""The outbox: enqueue, claim, acknowledge, give back, fail, and look after."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

import penstock
from penstock import NewMessage, OutboxMessageId, Store
from penstock.errors import StaleLease, ValidationError
from penstock.outbox.messages import decode_payload, encode_payload
from tests.outbox.outboxes import become_due, claim_one, end_leases, sql
from tests.racing import at_once

PAST = datetime(2020, 1, 1, tzinfo=UTC)
LATER = timedelta(hours=1)
json_text = some.text(some.characters(codec="utf-8", exclude_characters="\0"))
json_values = some.recursive(
    some.none()
    | some.booleans()
    | some.integers(-(2**63), 2**63)
    | some.floats(allow_nan=False, allow_infinity=False)
    | json_text,
    lambda inner: some.lists(inner) | some.dictionaries(json_text, inner),
    max_leaves=10,
)


class TestEnqueue:
    def test_a_message_is_ready_and_due_at_once(self, store: Store) -> None:
        id = store.outbox.enqueue("mail", {"to": "ada"}, correlation_id="order-7")

        message = store.outbox.get(id)

        assert (message.topic, message.payload, message.state) == ("mail", {"to": "ada"}, "ready")
        assert (message.correlation_id, message.attempts, message.last_error) == (
            "order-7",
            0,
            None,
        )
        assert message.due is not None
        assert message.due <= datetime.now(UTC) + timedelta(seconds=5)

    def test_it_commits_with_the_transaction_it_is_part_of(self, store: Store) -> None:
        with store.transaction() as transaction:
            transaction.write_message("order-1", "Placed")
            id = transaction.outbox.enqueue("mail", "hello")
            seen_outside = store.outbox.list()

        assert seen_outside == []
        assert store.outbox.get(id).payload == "hello"

    def test_a_rollback_leaves_nothing(self, store: Store) -> None:
        transaction = store.begin_transaction()
        transaction.outbox.enqueue("mail", "hello")
        inside = transaction.outbox.list()

        transaction.rollback()

        assert [one.payload for one in inside] == ["hello"]
        assert store.outbox.list() == []

    def test_it_joins_the_transaction_of_a_connection_of_your_own(self, database_url: str) -> None:
        with penstock.connect(database_url) as store, psycopg.connect(database_url) as connection:
            connection.execute("create table orders (id int)")
            connection.execute("insert into orders values (1)")
            kept = store.using(connection).outbox.enqueue("mail", "kept")
            connection.commit()
            store.using(connection).outbox.enqueue("mail", "gone")
            connection.rollback()

            assert [one.id for one in store.outbox.list()] == [kept]

    def test_several_come_in_order_and_all_or_none(self, store: Store) -> None:
        good = [NewMessage("mail", n) for n in range(3)]

        ids = store.outbox.enqueue_many(good)
        with pytest.raises(ValidationError):
            store.outbox.enqueue_many([*good, NewMessage("", 4)])

        assert [store.outbox.get(id).payload for id in ids] == [0, 1, 2]
        assert len(store.outbox.list()) == 3

    def test_a_known_id_adds_nothing(self, store: Store) -> None:
        id = store.outbox.enqueue("mail", "first", id=penstock.new_id())

        again = store.outbox.enqueue("mail", "second", id=str(id))

        assert again == id
        assert [one.payload for one in store.outbox.list()] == ["first"]

    def test_a_known_dedupe_key_returns_the_first_message(self, store: Store) -> None:
        first = store.outbox.enqueue("mail", "first", dedupe_key="order-7")

        again = store.outbox.enqueue("mail", "second", dedupe_key="order-7")
        other_topic = store.outbox.enqueue("Mail", "third", dedupe_key="order-7")

        assert again == first
        assert other_topic != first

    def test_a_dedupe_key_holds_also_when_the_message_is_done(self, store: Store) -> None:
        first = store.outbox.enqueue("mail", dedupe_key="order-7")
        store.outbox.ack(store.outbox.claim("me"))

        assert store.outbox.enqueue("mail", dedupe_key="order-7") == first

    def test_of_many_at_once_with_one_dedupe_key_one_is_enqueued(self, store: Store) -> None:
        ids = at_once(*[lambda: store.outbox.enqueue("mail", dedupe_key="k")] * 8)

        assert len(set(ids)) == 1
        assert [one.id for one in store.outbox.list()] == [ids[0]]

    def test_in_one_batch_a_dedupe_key_counts_once(self, store: Store) -> None:
        ids = store.outbox.enqueue_many(
            [NewMessage("mail", n, dedupe_key="k" if n % 2 else None) for n in range(4)]
        )

        assert ids[1] == ids[3]
        assert [one.payload for one in store.outbox.list()] == [0, 1, 2]


class TestPayloads:
    @pytest.mark.parametrize(
        "payload",
        ["", "text", "nul \0 too", b"", b"\xff\0", None, {}, [], 0, 1.5, True, {"a": [1]}],
    )
    def test_a_payload_comes_back_as_it_was_given(self, store: Store, payload: Any) -> None:
        id = store.outbox.enqueue("mail", payload)

        claimed = claim_one(store)

        assert (claimed.payload, type(claimed.payload)) == (payload, type(payload))
        assert store.outbox.get(id).payload == payload

    @settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
    @given(some.text(some.characters(codec="utf-8")) | some.binary() | json_values)
    def test_any_payload_does(self, payload: Any) -> None:
        assert decode_payload(*encode_payload(payload)) == payload

    def test_many_payloads_do_through_the_database(self, store: Store) -> None:
        given_payloads = [b"\0" * 1000, "é" * 1000, {"é": [None, 2**62]}, "null", b"null", None]

        ids = store.outbox.enqueue_many([NewMessage("mail", one) for one in given_payloads])

        assert [store.outbox.get(id).payload for id in ids] == given_payloads


class TestClaim:
    def test_due_messages_come_oldest_first_and_no_others(self, store: Store) -> None:
        now = datetime.now(UTC)
        store.outbox.enqueue("mail", "second", due=now - timedelta(minutes=1))
        store.outbox.enqueue("mail", "first", due=now - timedelta(minutes=2))
        store.outbox.enqueue("mail", "not yet", due=now + LATER)

        claimed = store.outbox.claim("me", 10)

        assert [one.payload for one in claimed] == ["first", "second"]

    def test_a_scheduled_message_comes_when_it_is_due(self, store: Store) -> None:
        berlin = timezone(timedelta(hours=2))
        store.outbox.enqueue("mail", due=datetime.now(berlin) + LATER)
        early = store.outbox.claim("me")

        become_due(store)

        assert early == []
        assert len(store.outbox.claim("me")) == 1

    def test_a_claimed_message_is_nobody_elses(self, store: Store) -> None:
        store.outbox.enqueue("mail")

        mine = store.outbox.claim("me")
        yours = store.outbox.claim("you")

        message = store.outbox.get(mine[0].id)
        assert yours == []
        assert (message.state, message.owner, message.attempts) == ("in_progress", "me", 1)
        assert message.lease_until is not None

    def test_many_claimers_share_without_overlap(self, store: Store) -> None:
        ids = store.outbox.enqueue_many([NewMessage("mail", n) for n in range(80)])

        claims = at_once(*[lambda: store.outbox.claim("me", 10)] * 8)

        claimed = [one.id for claim in claims for one in claim]  # type: ignore[union-attr]
        rest = [one.id for one in store.outbox.claim("me", 100)]
        assert sorted(claimed + rest) == sorted(ids)

    def test_a_claim_does_not_wait_for_messages_that_others_lock(self, store: Store) -> None:
        first, second = store.outbox.enqueue_many([NewMessage("mail"), NewMessage("mail")])
        with psycopg.connect(store.settings.conninfo()) as connection:
            connection.execute("select from penstock.outbox where id = %s for update", [first])

            claimed = store.outbox.claim("me", 10)

        assert [one.id for one in claimed] == [second]
        assert [one.id for one in store.outbox.claim("me", 10)] == [first]

    def test_a_message_whose_lease_ended_goes_to_the_next_with_nobodys_help(
        self, store: Store
    ) -> None:
        store.outbox.enqueue("mail")
        before = claim_one(store, "dead")
        end_leases(store)

        after = claim_one(store, "alive")

        assert (after.id, after.attempts) == (before.id, 2)
        assert after.token != before.token

    def test_a_claim_of_topics_gets_these_oldest_first_and_no_others(self, store: Store) -> None:
        for number, topic in enumerate(["b", "a", "c", "A", "b", "a"]):
            store.outbox.enqueue(topic, number)

        claimed = store.outbox.claim("me", 3, topics=["a", "b", "a", "none"])
        rest = store.outbox.claim("me", 3, topics=["b", "a"])

        assert [one.payload for one in claimed] == [0, 1, 4]
        assert [one.payload for one in rest] == [5]

    def test_a_claim_of_topics_goes_on_behind_what_others_have_locked(self, store: Store) -> None:
        store.outbox.enqueue_many([NewMessage("ab"[n % 2], n) for n in range(7)])
        other = store.begin_transaction()
        locked = other.outbox.claim("other", 5)

        claimed = store.outbox.claim("me", 2, topics=["a", "b"])
        other.rollback()

        assert [one.payload for one in locked] == [0, 1, 2, 3, 4]
        assert [one.payload for one in claimed] == [5, 6]

    def test_a_lease_that_ended_is_left_to_its_holder_until_somebody_takes_over(
        self, store: Store
    ) -> None:
        store.outbox.enqueue("mail")
        late = claim_one(store)
        end_leases(store)
        nothing = store.outbox.claim("me", 10, topics=["bill"])

        store.outbox.extend(late)
        store.outbox.ack(late)

        assert nothing == []
        assert store.outbox.get(late.id).state == "done"


def acks(store: Store, held: Any) -> None:
    store.outbox.ack(held)


def fails(store: Store, held: Any) -> None:
    store.outbox.fail(held, "stale")


def abandons(store: Store, held: Any) -> None:
    store.outbox.abandon(held, error="stale")


def extends(store: Store, held: Any) -> None:
    store.outbox.extend(held)


SETTLING: list[Callable[[Store, Any], None]] = [acks, fails, abandons, extends]


class TestSettle:
    def test_an_acknowledged_message_is_done(self, store: Store) -> None:
        store.outbox.enqueue("mail")
        claimed = claim_one(store)

        store.outbox.ack(claimed)

        message = store.outbox.get(claimed.id)
        assert (message.state, message.lease_until) == ("done", None)
        assert message.finished_at is not None
        assert store.outbox.claim("me") == []

    def test_an_abandoned_message_comes_again_after_its_delay(self, store: Store) -> None:
        store.outbox.enqueue("mail")
        store.outbox.abandon(claim_one(store), delay=3600, error="not now")
        early = store.outbox.claim("me")

        become_due(store)
        again = claim_one(store)

        assert early == []
        assert again.attempts == 2
        assert store.outbox.get(again.id).last_error == "not now"

    def test_a_failed_message_keeps_its_error_and_stays(self, store: Store) -> None:
        store.outbox.enqueue("mail")

        store.outbox.fail(claim_one(store), "no such address")

        [message] = store.outbox.list(state="failed")
        assert (message.last_error, message.attempts) == ("no such address", 1)
        assert store.outbox.claim("me") == []

    def test_an_error_is_kept_whatever_is_in_it(self, store: Store) -> None:
        store.outbox.enqueue("mail")

        store.outbox.fail(claim_one(store), "nul \0, half \ud800, long " + "x" * 100_000)

        [message] = store.outbox.list(state="failed")
        assert message.last_error is not None
        assert message.last_error.startswith("nul \\0, half \\ud800, long xxx")

    def test_several_of_several_claims_are_settled_together(self, store: Store) -> None:
        store.outbox.enqueue_many([NewMessage("mail", n) for n in range(4)])
        held = [*store.outbox.claim("me", 2), *store.outbox.claim("me", 2)]

        store.outbox.ack(held)

        assert {one.state for one in store.outbox.list()} == {"done"}

    def test_a_lease_can_be_extended(self, store: Store) -> None:
        store.outbox.enqueue("mail")
        claimed = claim_one(store)
        before = store.outbox.get(claimed.id).lease_until

        store.outbox.extend(claimed, 3600)

        after = store.outbox.get(claimed.id).lease_until
        assert after is not None
        assert before is not None
        assert after > before

    @pytest.mark.parametrize("settle", SETTLING)
    def test_a_stale_owner_gets_an_error_and_changes_nothing(
        self, store: Store, settle: Callable[[Store, Any], None]
    ) -> None:
        store.outbox.enqueue("mail")
        stale = claim_one(store, "slow")
        end_leases(store)
        claim_one(store, "quick")
        before = store.outbox.get(stale.id)

        with pytest.raises(StaleLease) as caught:
            settle(store, stale)

        assert caught.value.message_ids == (str(stale.id),)
        assert store.outbox.get(stale.id) == before

    @pytest.mark.parametrize("settle", [acks, fails, abandons])
    @pytest.mark.parametrize("meanwhile", ["nothing", "claimed by another"])
    def test_the_same_call_again_answers_as_the_first_did_and_changes_nothing(
        self, store: Store, settle: Callable[[Store, Any], None], meanwhile: str
    ) -> None:
        join = store.joins.start(None, 3)
        ids = store.outbox.enqueue_many([NewMessage("mail", n) for n in range(3)], joins=[join])
        claimed = store.outbox.claim("me", 3)
        settle(store, claimed)
        if meanwhile == "claimed by another":
            store.outbox.retry_failed()
            store.outbox.claim("another", 3)
        before = [store.outbox.get(id) for id in ids], store.joins.get(join)

        settle(store, claimed)

        assert ([store.outbox.get(id) for id in ids], store.joins.get(join)) == before

    @pytest.mark.parametrize("settle", [acks, fails, abandons])
    def test_the_same_call_twice_at_once_succeeds_twice(
        self, store: Store, settle: Callable[[Store, Any], None]
    ) -> None:
        store.outbox.enqueue("mail")
        claimed = claim_one(store)

        results = at_once(*[lambda: settle(store, claimed)] * 4)

        assert results == [None] * 4

    @pytest.mark.parametrize("settle", [fails, abandons, extends])
    def test_what_is_finished_cannot_be_settled_otherwise(
        self, store: Store, settle: Callable[[Store, Any], None]
    ) -> None:
        store.outbox.enqueue("mail")
        claimed = claim_one(store)
        store.outbox.ack(claimed)
        before = store.outbox.get(claimed.id)

        with pytest.raises(StaleLease):
            settle(store, claimed)

        assert store.outbox.get(claimed.id) == before

    def test_of_a_batch_the_held_are_settled_and_the_stale_are_named(self, store: Store) -> None:
        store.outbox.enqueue_many([NewMessage("mail", n) for n in range(2)])
        stale = claim_one(store)
        end_leases(store)
        [held, taken] = sorted(store.outbox.claim("me", 2), key=lambda one: one.id == stale.id)

        with pytest.raises(StaleLease) as caught:
            store.outbox.ack([stale, held])

        assert caught.value.message_ids == (str(stale.id),)
        assert store.outbox.get(held.id).state == "done"
        assert store.outbox.get(taken.id).state == "in_progress"

    def test_nobody_took_over_yet_so_a_late_ack_still_counts(self, store: Store) -> None:
        store.outbox.enqueue("mail")
        late = claim_one(store)
        end_leases(store)

        store.outbox.ack(late)

        assert store.outbox.get(late.id).state == "done"

    def test_an_ack_in_a_transaction_is_undone_with_it(self, store: Store) -> None:
        store.outbox.enqueue("mail")
        claimed = claim_one(store)

        transaction = store.begin_transaction()
        transaction.outbox.ack(claimed)
        inside = transaction.outbox.get(claimed.id).state
        transaction.rollback()

        assert inside == "done"
        assert store.outbox.get(claimed.id).state == "in_progress"

    def test_two_who_settle_one_message_at_once_do_not_both_succeed(self, store: Store) -> None:
        store.outbox.enqueue("mail")
        claimed = claim_one(store)

        results = at_once(
            lambda: store.outbox.ack(claimed), lambda: store.outbox.fail(claimed, "no")
        )

        assert sorted(type(one).__name__ for one in results) == ["NoneType", "StaleLease"]


@pytest.mark.parametrize("topics", ["mail", [], [7], [""], 7])
def test_bad_topics_of_a_claim_are_refused(store: Store, topics: Any) -> None:
    with pytest.raises(ValidationError, match="topic"):
        store.outbox.claim("me", topics=topics)


class TestLookAfter:
    def test_reaping_makes_messages_of_the_dead_ready(self, store: Store) -> None:
        store.outbox.enqueue_many([NewMessage("mail", n) for n in range(2)])
        store.outbox.claim("dead", 2)
        nothing_yet = store.outbox.reap_expired()
        end_leases(store)

        reaped = store.outbox.reap_expired()

        assert (nothing_yet, reaped) == (0, 2)
        assert {one.state for one in store.outbox.list()} == {"ready"}

    def test_failed_messages_are_retried_by_id_by_topic_or_all(self, store: Store) -> None:
        ids = [store.outbox.enqueue(topic) for topic in ("a", "a", "b", "c")]
        store.outbox.fail(store.outbox.claim("me", 10), "broken")

        by_id = store.outbox.retry_failed([ids[0]])
        by_topic = store.outbox.retry_failed(topic="b")
        the_rest = store.outbox.retry_failed()

        assert (by_id, by_topic, the_rest) == (1, 1, 2)
        again = store.outbox.claim("me", 10)
        assert [one.attempts for one in again] == [1, 1, 1, 1]
        assert store.outbox.get(ids[0]).last_error == "broken"

    def test_what_was_done_long_ago_is_removed(self, store: Store) -> None:
        topics = ("done long ago", "failed long ago", "done", "ready")
        ids = {topic: store.outbox.enqueue(topic) for topic in topics}
        claimed = {one.topic: one for one in store.outbox.claim("me", 3)}
        store.outbox.ack([claimed["done long ago"], claimed["done"]])
        store.outbox.fail(claimed["failed long ago"], "broken")
        sql(
            store,
            "update penstock.outbox set finished_at = finished_at - interval '8 days'"
            " where topic like '%% long ago'",
        )

        done = store.outbox.clean_up()
        failed = store.outbox.clean_up(failed=True)

        assert (done, failed) == (1, 1)
        assert [one.id for one in store.outbox.list()] == [ids["done"], ids["ready"]]

    def test_messages_are_listed_oldest_first_by_topic_and_state(self, store: Store) -> None:
        ids = [store.outbox.enqueue(topic) for topic in ("a", "b", "a", "a")]
        store.outbox.ack(claim_one(store))

        found = store.outbox.list(topic="a", state="ready")
        limited = store.outbox.list(limit=2)

        assert [one.id for one in found] == [ids[2], ids[3]]
        assert [one.id for one in limited] == ids[:2]

    def test_topics_are_case_sensitive(self, store: Store) -> None:
        store.outbox.enqueue("mail")
        store.outbox.enqueue("Mail")

        assert [one.topic for one in store.outbox.list(topic="Mail")] == ["Mail"]

    def test_the_summary_counts_by_topic_and_state(self, store: Store) -> None:
        store.outbox.enqueue("a", due=PAST)
        store.outbox.enqueue_many([NewMessage("a"), NewMessage("b")])
        store.outbox.ack(claim_one(store))

        summary = [(one.topic, one.state, one.count) for one in store.outbox.summary()]

        assert summary == [("a", "done", 1), ("a", "ready", 1), ("b", "ready", 1)]


@pytest.mark.parametrize("minute", [60, 60.0, timedelta(minutes=1)])
def test_durations_are_seconds_or_timedeltas(store: Store, minute: float | timedelta) -> None:
    id = store.outbox.enqueue("mail")
    claimed = store.outbox.claim("me", 1, minute)
    store.outbox.extend(claimed, minute)
    lease = store.outbox.get(id).lease_until
    store.outbox.abandon(claimed, minute)
    due = store.outbox.get(id).due
    join = store.joins.get(store.joins.start(None, 1, timeout=minute))

    assert store.outbox.clean_up(minute) == 0
    for moment in (lease, due, join.times_out_at):
        assert moment is not None
        assert timedelta(seconds=30) < moment - datetime.now(UTC) <= timedelta(minutes=2)


class TestBadInput:
    @pytest.mark.parametrize(
        "wrong",
        [
            {"topic": ""},
            {"topic": None},
            {"topic": "a\0b"},
            {"topic": "join.wait"},
            {"payload": object()},
            {"payload": {"a": object()}},
            {"payload": float("nan")},
            {"payload": "\ud800"},
            {"payload": {1}},
            {"payload": (1, 2)},
            {"payload": {1: 2}},
            {"payload": {"a": b"x"}},
            {"payload": Decimal("1.5")},
            {"payload": uuid.uuid4()},
            {"payload": PAST},
            {"due": datetime.min.replace(tzinfo=timezone(timedelta(hours=1)))},
            {"due": datetime.max.replace(tzinfo=UTC)},
            {"due": datetime(2030, 1, 1)},  # noqa: DTZ001
            {"due": "tomorrow"},
            {"id": "7"},
            {"dedupe_key": ""},
            {"correlation_id": 7},
            {"joins": ["no id"]},
            {"joins": None},
            {"joins": uuid.uuid4()},
            {"joins": "0190a0a0-0000-7000-8000-000000000000"},
        ],
    )
    def test_a_bad_message_is_refused_and_nothing_is_enqueued(
        self, store: Store, wrong: dict[str, Any]
    ) -> None:
        arguments = {"topic": "mail", "payload": "hello", **wrong}

        with pytest.raises(ValidationError):
            store.outbox.enqueue(**arguments)

        assert store.outbox.list() == []

    @pytest.mark.parametrize(
        "arguments",
        [
            ("",),
            ("me", 0),
            ("me", True),
            ("me", 2**31),
            ("me", 1, 0),
            ("me", 1, -1),
            ("me", 1, float("nan")),
            ("me", 1, float("inf")),
            ("me", 1, "30"),
        ],
    )
    def test_a_bad_claim_is_refused(self, store: Store, arguments: tuple[Any, ...]) -> None:
        store.outbox.enqueue("mail")

        with pytest.raises(ValidationError):
            store.outbox.claim(*arguments)

        assert store.outbox.list()[0].state == "ready"

    @pytest.mark.parametrize(
        "call",
        [
            lambda outbox: outbox.list(state="odd"),
            lambda outbox: outbox.list(limit=0),
            lambda outbox: outbox.get("7"),
            lambda outbox: outbox.ack("7"),
            lambda outbox: outbox.ack([uuid.uuid4()]),
            lambda outbox: outbox.fail(outbox.claim("me"), None),
            lambda outbox: outbox.abandon(outbox.claim("me"), -1),
            lambda outbox: outbox.ack(None),
            lambda outbox: outbox.abandon(uuid.uuid4()),
            lambda outbox: outbox.extend(5),
            lambda outbox: outbox.retry_failed("7"),
            lambda outbox: outbox.retry_failed(uuid.uuid4()),
            lambda outbox: outbox.clean_up(timedelta(-1)),
            lambda outbox: outbox.clean_up("7"),
            lambda outbox: outbox.clean_up(batch_size=0),
            lambda outbox: outbox.clean_up(timedelta.max),
            lambda outbox: outbox.clean_up(timedelta(1), failed="x"),
            lambda outbox: outbox.enqueue_many(None),
            lambda outbox: outbox.enqueue_many(NewMessage("mail")),
            lambda outbox: outbox.enqueue_many([]),
            lambda outbox: outbox.enqueue_many(["mail"]),
        ],
    )
    def test_other_bad_calls_are_refused(self, store: Store, call: Callable[[Any], Any]) -> None:
        store.outbox.enqueue("mail")

        with pytest.raises(ValidationError):
            call(store.outbox)

    def test_a_value_that_cannot_be_shown_is_refused_all_the_same(self, database_url: str) -> None:
        deep: list[Any] = []
        for _ in range(200_000):  # more than any version of Python can write or show
            deep = [deep]

        with (
            penstock.connect(database_url) as store,
            pytest.raises(ValidationError, match="a list that cannot be shown"),
        ):
            store.outbox.enqueue("mail", deep)

    def test_an_unknown_message_is_not_found(self, store: Store) -> None:
        unknown = OutboxMessageId(penstock.new_id())

        with pytest.raises(penstock.errors.OutboxMessageNotFound) as caught:
            store.outbox.get(unknown)

        assert caught.value.message_id == str(unknown)

    def test_a_genuine_message_db_has_no_outbox(self, new_database: Callable[[str], str]) -> None:
        with penstock.connect(new_database("genuine")) as store:
            for call in (
                lambda: store.outbox.enqueue("mail"),
                lambda: store.outbox.claim("me"),
                lambda: store.joins.start(None, 1),
                lambda: store.joins.get(penstock.JoinId(penstock.new_id())),
                lambda: store.joins.cancel(str(penstock.new_id())),
            ):
                with pytest.raises(penstock.errors.UnsupportedEdition):
                    call()
