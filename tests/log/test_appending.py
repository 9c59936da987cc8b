"""What an append looks at, and in which order: ids, version, guard. And how little of it."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from penstock import ConcurrentAppendError, Guard, Store, Transaction, WrongExpectedVersion
from penstock.errors import DuplicateMessageId
from penstock.log.append import SEEN_AT_MOST
from penstock.log.guard import ranges_of
from tests.groups.school import UserJoinedCourse

ALGEBRA = UserJoinedCourse.to_conditions(course_name="Algebra")


def joined(user: str, course: str = "Algebra") -> UserJoinedCourse:
    return UserJoinedCourse(course_name=course, user_id=user)


def test_a_retry_returns_the_first_result_where_the_version_no_longer_holds(store: Store) -> None:
    message = joined("joe")
    first = store.append(message, stream_name="enrolment-1", expected_version=-1)

    again = store.append(message, stream_name="enrolment-1", expected_version=-1)

    assert again == first


def test_an_id_that_exists_is_reported_before_the_version_and_the_guard(store: Store) -> None:
    _, guard = store.read(ALGEBRA)
    present = joined("joe")
    store.append(present, stream_name="enrolment-1")

    with pytest.raises(DuplicateMessageId):
        store.append(
            [present, joined("jake")], guard, stream_name="enrolment-1", expected_version=-1
        )

    assert len(store.get_stream_messages("enrolment-1")) == 1


def test_the_version_is_reported_before_the_guard(store: Store) -> None:
    _, guard = store.read(ALGEBRA)
    store.append(joined("joe"), stream_name="enrolment-1")

    with pytest.raises(WrongExpectedVersion):
        store.append(joined("jake"), guard, stream_name="enrolment-1", expected_version=-1)


def test_messages_with_a_key_in_common_that_do_not_match_are_no_conflict(store: Store) -> None:
    # they share the course, so the index has something new; but the user is another
    _, guard = store.read(UserJoinedCourse.to_conditions(course_name="Algebra", user_id="joe"))
    store.append([joined("jake"), joined("mary")])

    assert store.append(joined("joe"), guard).position == 3


def test_two_attributes_with_one_key_are_indexed_once(store: Store, database_url: str) -> None:
    with psycopg.connect(database_url) as connection:  # as if the digests collided
        connection.execute(
            "create or replace function penstock.key_pair(name text, value text) returns bigint"
            " language sql immutable parallel safe as 'select 1::bigint'"
        )

    store.append(joined("joe"))

    assert len(store.read(ALGEBRA)[0]) == 1


@pytest.mark.parametrize("count", [1, 2])
def test_what_a_plain_insert_writes_after_an_append_is_indexed(store: Store, count: int) -> None:
    with store.transaction() as transaction:
        transaction.append([joined(str(number)) for number in range(count)])
        transaction.connection.execute(
            "insert into message_store.messages (stream_name, position, type, data) values"
            " ('enrolment-1', 0, 'user.joined_course', '{\"course_name\": \"Algebra\"}')"
        )

    assert len(store.read(ALGEBRA)[0]) == count + 1


def test_a_chain_of_appends_carries_few_positions_along(store: Store) -> None:
    guard: Guard | None = store.read(ALGEBRA)[1]

    for number in range(2 * SEEN_AT_MOST):
        guard = store.append(joined(str(number)), guard).guard
        store.append(joined(str(number), "History"))  # so that the positions are no single run

    assert guard is not None
    assert len(guard.seen) <= SEEN_AT_MOST
    store.append(joined("a stranger"))
    with pytest.raises(ConcurrentAppendError):
        store.append(joined("joe"), guard)


def long_chain(store: Store) -> Guard:
    """Return a guard that carries as many runs along as it may: others wrote between them."""
    courses = ["Algebra", "History"] * SEEN_AT_MOST
    written = store.append([joined(str(n), course) for n, course in enumerate(courses)])
    return Guard(tuple(ALGEBRA), 0, ranges_of(written.positions[::2]))


def test_a_guard_does_not_move_past_a_writer_that_is_open(store: Store) -> None:
    with store.transaction() as writer:
        late = writer.append(joined("jake", "History"))
        guard = store.append(joined("joe"), long_chain(store)).guard

    assert guard is not None
    assert guard.low < late.position


def test_a_retry_does_not_move_a_guard_past_what_it_has_not_seen(store: Store) -> None:
    guard, message = long_chain(store), joined("joe")
    first = store.append(message, guard)
    store.append(joined("a stranger"))

    again = store.append(message, guard)

    assert again.position == first.position
    with pytest.raises(ConcurrentAppendError):
        store.append(joined("jake"), again.guard)


@pytest.fixture
def long_log(store: Store) -> Store:
    """A log of which the server has no statistics."""
    store.append([joined(str(number), f"course {number}") for number in range(5000)])
    return store


def fresh(tx: Transaction) -> None:
    tx.append(joined("joe"), tx.read(ALGEBRA)[1])


def repeated(tx: Transaction) -> None:
    message, guard = joined("joe"), tx.read(ALGEBRA)[1]
    tx.append(message, guard)
    tx.append(message, guard)


def to_a_stream(tx: Transaction) -> None:
    tx.append([joined("joe"), joined("jake")], stream_name="enrolment-1", expected_version=-1)


@pytest.mark.parametrize("use", [fresh, repeated, to_a_stream])
def test_an_append_does_not_read_the_whole_log(
    long_log: Store, use: Callable[[Transaction], None]
) -> None:
    with long_log.transaction() as transaction:
        use(transaction)
        whole = transaction.connection.execute(
            "select sum(pg_stat_get_xact_numscans(c)) from unnest(array["
            "'message_store.messages', 'penstock.message_attributes']::regclass[]) c"
        ).fetchone()
        transaction.rollback()

    assert whole == (0,)
