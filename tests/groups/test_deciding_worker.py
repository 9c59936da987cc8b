"""A worker with a decider: many commands, one transaction. With a `Worker` and an `AsyncWorker`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock
from penstock import (
    Decider,
    FailurePolicy,
    Interceptor,
    Message,
    QueryCondition,
    Store,
    TypedMessage,
    Worker,
)
from penstock.errors import UnknownMessageType, ValidationError
from penstock.message.conditions import matches
from tests import both_ways
from tests.both_ways import Way, way_of

store = both_ways.store


class SeatAsked(TypedMessage, type="deciding.seat_asked"):
    course: str
    user: str = ""


class SeatTaken(TypedMessage, type="deciding.seat_taken"):
    course: str
    user: str
    number: int = 0


class SeatRefused(TypedMessage, type="deciding.seat_refused"):
    course: str
    user: str


class Unrelated(TypedMessage, type="deciding.unrelated"):
    note: str


SEATS = 3


def take(users: list[str], event: SeatTaken) -> list[str]:
    users.append(event.user)
    return users


def ask(users: list[str], command: SeatAsked) -> Iterator[TypedMessage | Message]:
    """Give a seat to each user once; an unknown one is poison."""
    if command.user == "poison":
        raise ArithmeticError("no such user")
    if command.user == "unappendable":
        yield Message("not-a-category", {})
    if command.user not in users and len(users) < SEATS:
        yield SeatTaken(course=command.course, user=command.user, number=len(users))
    else:
        yield SeatRefused(course=command.course, user=command.user)
    yield Unrelated(note="asked")


ENROLMENT = Decider[list[str], SeatAsked](initial=[], evolve=take, decide=ask)


def worker(store: Store, decider: Any = ENROLMENT, **options: Any) -> Worker:
    given: dict[str, Any] = {
        "partition_by": "course",
        "handled_types": [SeatAsked],
        "decides_on": [SeatTaken],
        "on_failure": FailurePolicy.park(attempts=2, delay=0),
        **options,
    }
    made: Worker = way_of(store).Worker(store, "group", decider, **given)
    return made


def asked(store: Store, *users: str) -> None:
    store.append([SeatAsked(course="Algebra", user=user) for user in users])


def outcomes(store: Store) -> list[tuple[str, str]]:
    """Types and users of the outcomes, in the order of the log."""
    return [
        (message.type.removeprefix("deciding.seat_"), message.data["user"])
        for message in store.get_category_messages("$all", position=1)
        if message.type in ("deciding.seat_taken", "deciding.seat_refused")
    ]


def transactions(url: str) -> int:
    """How many transactions have written outcomes."""
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "select count(distinct xmin::text) from message_store.messages"
            " where type <> 'deciding.seat_asked'"
        ).fetchone()
    assert row is not None
    return int(row[0])


@pytest.fixture
def rival(database_url: str) -> Iterator[Store]:
    with penstock.connect(database_url) as store:
        yield store


def test_commands_are_decided_in_turn_and_their_outcomes_appended_at_once(
    store: Store, database_url: str
) -> None:
    asked(store, "joe", "joe", "jake", "mary", "ann")

    handled = worker(store).run_until_idle()

    assert handled == 1
    assert outcomes(store) == [
        *(("taken", "joe"), ("refused", "joe"), ("taken", "jake")),
        *(("taken", "mary"), ("refused", "ann")),
    ]
    assert transactions(database_url) == 1


def test_the_next_claim_begins_with_the_state_of_the_last(store: Store) -> None:
    one = worker(store)
    asked(store, "joe", "jake")
    one.run_until_idle()
    asked(store, "mary", "ann")

    one.run_until_idle()

    assert outcomes(store)[2:] == [("taken", "mary"), ("refused", "ann")]


def test_outcomes_of_others_are_in_the_state(store: Store, rival: Store) -> None:
    one = worker(store)
    asked(store, "joe")
    one.run_until_idle()
    rival.append([SeatTaken(course="Algebra", user=user) for user in ("x", "y")])
    asked(store, "ann")

    one.run_until_idle()

    assert outcomes(store)[-1] == ("refused", "ann")


def test_poison_keeps_nothing_from_those_before_it_and_stops_its_partition(
    store: Store, database_url: str
) -> None:
    asked(store, "joe", "jake", "poison", "mary")
    store.append(SeatAsked(course="History", user="ann"))

    worker(store).run_until_idle()

    assert sorted(outcomes(store)) == [("taken", "ann"), ("taken", "jake"), ("taken", "joe")]
    (parked,) = store.groups.parked("group")
    assert parked.partition_key == "course:Algebra"
    assert "ArithmeticError: no such user" in (parked.error or "")
    assert transactions(database_url) == 2


def test_an_outcome_that_cannot_be_appended_keeps_nothing_from_those_before_it(
    store: Store,
) -> None:
    asked(store, "joe", "jake", "unappendable", "mary")

    worker(store).run_until_idle()

    assert outcomes(store) == [("taken", "joe"), ("taken", "jake")]
    (parked,) = store.groups.parked("group")
    assert "not-a-category" in (parked.error or "")


def test_a_conflict_is_decided_again_and_nothing_is_appended_twice(
    store: Store, rival: Store
) -> None:
    asked(store, "joe", "jake", "mary")
    others = iter(["x", "y"])

    def interrupted(users: list[str], command: SeatAsked) -> list[Any]:
        for user in others:
            rival.append(SeatTaken(course="Algebra", user=user))
            break
        return list(ask(users, command))

    worker(store, Decider([], take, interrupted)).run_until_idle()

    assert outcomes(store) == [
        *(("taken", "x"), ("taken", "y"), ("taken", "joe")),
        *(("refused", "jake"), ("refused", "mary")),
    ]


def test_nothing_to_append_is_acknowledged(store: Store) -> None:
    asked(store, "joe", "jake")

    handled = worker(store, Decider([], take, lambda users, command: [])).run_until_idle()

    assert handled == 1
    assert outcomes(store) == []
    assert store.groups.list()[0].pending == 0


def test_a_snapshot_is_saved_and_used(store: Store, rival: Store) -> None:
    decider = Decider[list[str], SeatAsked](
        initial=[], evolve=take, decide=ask, name="enrolment", snapshot_every=2
    )
    asked(store, "joe", "jake")
    worker(store, decider).run_until_idle()
    asked(store, "joe")
    worker(store, decider).run_until_idle()

    (saved,) = store.admin.snapshots()
    assert (saved.decider, saved.boundaries) == ("enrolment", 1)
    asked(store, "mary", "ann")
    worker(rival, decider).run_until_idle()
    assert outcomes(store)[-2:] == [("taken", "mary"), ("refused", "ann")]


class Upper(Interceptor):
    """Changes what is written, so that the outcome of a command is not known before."""

    def on_write(self, stream_name: str, message: Message) -> Message:
        if message.type != "deciding.seat_taken":
            return message
        data = {**(message.data or {}), "user": message.data["user"].upper()}  # type: ignore[index]
        return Message(message.type, data, message.metadata, id=message.id)


def test_where_an_interceptor_changes_messages_each_outcome_is_read_first(
    way: Way, database_url: str
) -> None:
    with way.connect(database_url, interceptors=[Upper()]) as store:
        asked(store, "joe", "JOE", "jake")

        handled = worker(store).run_until_idle()

        assert handled == 3
        assert outcomes(store) == [("taken", "JOE"), ("refused", "JOE"), ("taken", "JAKE")]


def test_a_plain_outcome_evolves_the_state_as_a_typed_one(store: Store) -> None:
    def plain(users: list[str], command: SeatAsked) -> list[Message]:
        data = {"course": "Algebra", "user": f"{command.user} after {len(users)}"}
        return [Message("deciding.seat_taken", data)]

    asked(store, "joe", "jake")

    handled = worker(store, Decider([], take, plain)).run_until_idle()

    assert handled == 1
    assert outcomes(store) == [("taken", "joe after 0"), ("taken", "jake after 1")]


def test_outcomes_outside_the_partition_do_not_evolve_its_state(store: Store) -> None:
    def elsewhere(users: list[str], command: SeatAsked) -> list[SeatTaken]:
        return [SeatTaken(course="History", user=f"{command.user} after {len(users)}")]

    asked(store, "joe", "jake")

    worker(store, Decider([], take, elsewhere)).run_until_idle()

    assert outcomes(store) == [("taken", "joe after 0"), ("taken", "jake after 0")]


def test_where_an_attribute_is_no_plain_value_the_outcome_is_read_first(store: Store) -> None:
    def odd(users: list[str], command: SeatAsked) -> list[Message]:
        return [Message("deciding.seat_taken", {"course": 0.5, "user": command.user})]

    asked(store, "joe", "jake")

    handled = worker(store, Decider([], take, odd)).run_until_idle()

    assert handled == 2
    assert outcomes(store) == [("taken", "joe"), ("taken", "jake")]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"decides_on": None}, "decides_on must be given together with a Decider"),
        ({"decides_on": []}, "a list of at least one type"),
        ({"decides_on": [int]}, "a typed message class"),
        ({"decides_on": [Unrelated]}, "types that index one of the attributes of partition_by"),
        ({"decider": lambda claim: None}, "decides_on must be given together with a Decider only"),
        ({"decider": None}, "handler"),
    ],
)
def test_a_worker_that_could_not_decide_is_refused(
    store: Store, options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ValidationError, match=complaint):
        worker(store, **options)


def test_a_type_without_a_class_cannot_be_decided_on(store: Store) -> None:
    with pytest.raises(UnknownMessageType, match="nothing"):
        worker(store, decides_on=["deciding.nothing"])


VALUES = st.sampled_from(["Algebra", "History", "1", 1, True, "true", None])


@given(
    data=st.dictionaries(st.sampled_from(["course", "user", "number"]), VALUES),
    conditions=st.lists(
        st.one_of(
            st.builds(
                QueryCondition,
                st.just("deciding.seat_taken"),
                st.sampled_from(["course", "user", "number"]),
                st.sampled_from(["Algebra", "1", "true"]),
            ),
            st.just(QueryCondition("deciding.seat_refused", "course", "Algebra")),
            st.just(QueryCondition("deciding.seat_taken")),
        ),
        min_size=1,
        max_size=4,
    ),
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_matches_is_what_the_log_finds(
    rival: Store, data: dict[str, Any], conditions: list[QueryCondition]
) -> None:
    rival.declare(SeatTaken, SeatRefused)
    with rival.transaction() as transaction:
        _, before = transaction.read([QueryCondition("deciding.seat_taken")])
        transaction.append(Message("deciding.seat_taken", data))
        found, _ = transaction.read(conditions, after=before.low)
        transaction.rollback()

    assert matches(conditions, "deciding.seat_taken", data) == bool(found)
