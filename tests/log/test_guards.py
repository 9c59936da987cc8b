"""A guarded append never commits a decision made on a stale view. Each race is forced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import psycopg
import pytest

import penstock
from penstock import (
    ConcurrentAppendError,
    Guard,
    Message,
    QueryCondition,
    Store,
    Transaction,
    TypedMessage,
    WrongExpectedVersion,
)
from penstock.errors import (
    DuplicateMessageId,
    TransactionConflict,
    UndeclaredAttribute,
    UndeclaredType,
    ValidationError,
    WatermarkRequired,
)
from tests.groups.school import CourseClosed, CourseCreated, UserJoinedCourse, UserRegistered
from tests.racing import wait_until_it_waits

Result = TypeVar("Result")

ALGEBRA = UserJoinedCourse.to_conditions(course_name="Algebra")
JOE_IN_ALGEBRA = UserJoinedCourse.to_conditions(course_name="Algebra", user_id="joe")


def joined(user: str, course: str = "Algebra") -> UserJoinedCourse:
    return UserJoinedCourse(course_name=course, user_id=user)


@pytest.fixture
def school(store: Store) -> Store:
    """A store that knows the school's messages."""
    store.declare(CourseCreated, UserRegistered, UserJoinedCourse, CourseClosed)
    return store


class Waiting:
    """A call in a thread, which waits for a lock of somebody else's."""

    def __init__(self, threads: ThreadPoolExecutor, url: str) -> None:
        self._threads = threads
        self._url = url

    def __call__(self, call: Callable[[], Result]) -> Future[Result]:
        future = self._threads.submit(call)
        wait_until_it_waits(self._url, future)
        return future


@pytest.fixture
def waiting(database_url: str) -> object:
    """Start a call, and return once it waits for a lock."""
    with ThreadPoolExecutor(1) as threads:
        yield Waiting(threads, database_url)


@contextmanager
def impatient(store: Store) -> Iterator[Transaction]:
    """A transaction that fails where it would have to wait for another."""
    with store.transaction() as transaction:
        transaction.connection.execute("set local lock_timeout = '2s'")
        yield transaction


def bulk_of(course: str) -> list[UserJoinedCourse]:
    """More messages than a transaction takes locks."""
    return [joined(f"user {number}", course) for number in range(600)]


def decide_alone(log: Store | Transaction, guard: Guard) -> object:
    return log.append(joined("joe"), guard)


def decide_on_another_type(log: Store | Transaction, guard: Guard) -> object:
    return log.append(CourseClosed(course_name="Algebra"), guard)


def decide_for_elsewhere(log: Store | Transaction, guard: Guard) -> object:
    return log.append(CourseClosed(course_name="History"), guard)


def decide_in_a_batch(log: Store | Transaction, guard: Guard) -> object:
    return log.append([CourseClosed(course_name=name) for name in ("Algebra", "History")], guard)


def write_alone(log: Store | Transaction) -> object:
    return log.append(joined("jake"))


def write_a_batch(log: Store | Transaction) -> object:
    return log.append([joined("jake"), joined("jane")])


def write_a_bulk(log: Store | Transaction) -> object:
    return log.append(bulk_of("Algebra"))


def write_a_guarded_bulk(log: Store | Transaction) -> object:
    physics = UserJoinedCourse.to_conditions(course_name="Physics")
    return log.append(bulk_of("Algebra"), Guard(tuple(physics)))


def insert_some(log: Transaction, count: int = 2) -> object:
    return log.connection.execute(
        "insert into message_store.messages (stream_name, position, type, data)"
        " select 'enrolment-' || gen_random_uuid(), 0, 'user.joined_course',"
        " jsonb_build_object('course_name', 'Algebra', 'user_id', n)"
        " from generate_series(1, %s) n",
        (count,),
    )


def insert_a_bulk(log: Transaction) -> object:
    return insert_some(log, 600)


DECISIONS = [decide_alone, decide_on_another_type, decide_for_elsewhere, decide_in_a_batch]
WRITES = [write_alone, write_a_batch, write_a_bulk, write_a_guarded_bulk]


@pytest.mark.parametrize("decide", DECISIONS)
@pytest.mark.parametrize("write", WRITES)
def test_a_decision_waits_for_open_writers_and_sees_their_messages(
    school: Store,
    waiting: Waiting,
    decide: Callable[[Store, Guard], object],
    write: Callable[[Transaction], object],
) -> None:
    _, guard = school.read(ALGEBRA)
    with school.transaction() as writer:
        write(writer)
        decision = waiting(lambda: decide(school, guard))

    with pytest.raises(ConcurrentAppendError):
        decision.result()


@pytest.mark.parametrize("decide", DECISIONS)
@pytest.mark.parametrize("write", WRITES)
def test_a_writer_waits_for_a_decision_in_flight(
    school: Store,
    waiting: Waiting,
    decide: Callable[[Transaction, Guard], object],
    write: Callable[[Store], object],
) -> None:
    _, guard = school.read(ALGEBRA)
    with school.transaction() as decision:
        decide(decision, guard)
        written = waiting(lambda: write(school))
    written.result()

    with pytest.raises(ConcurrentAppendError):  # it came after the decision
        school.append(joined("mary"), guard)


@pytest.mark.parametrize("decide", DECISIONS)
def test_of_two_decisions_at_once_the_second_is_refused(
    school: Store, waiting: Waiting, decide: Callable[[Store | Transaction, Guard], object]
) -> None:
    _, guard = school.read([*ALGEBRA, QueryCondition("course.closed")])
    with school.transaction() as first:
        decide(first, guard)
        second = waiting(lambda: decide(school, guard))

    with pytest.raises(ConcurrentAppendError):
        second.result()


def test_a_message_appended_between_read_and_append_is_a_conflict(school: Store) -> None:
    _, guard = school.read(ALGEBRA)
    other = school.append(joined("jake"))

    with pytest.raises(ConcurrentAppendError) as raised:
        school.append(joined("joe"), guard)

    assert (raised.value.position, raised.value.type) == (other.position, "user.joined_course")
    assert len(school.read(ALGEBRA)[0]) == 1


def test_a_message_outside_of_the_boundary_is_no_conflict(school: Store) -> None:
    _, guard = school.read(ALGEBRA)
    school.append([joined("jake", "History"), CourseClosed(course_name="Algebra")])

    appended = school.append(joined("joe"), guard)

    assert appended.position == 3


def test_a_writer_that_was_open_at_the_read_is_a_conflict_once_it_commits(school: Store) -> None:
    with school.transaction() as writer:
        late = writer.append(joined("jake"))
        school.append(joined("mary"))
        messages, guard = school.read(ALGEBRA)

    with pytest.raises(ConcurrentAppendError) as raised:
        school.append(joined("joe"), guard)

    assert [one.data["user_id"] for one in messages] == ["mary"]
    assert guard.low < late.position < guard.seen[0][0]
    assert raised.value.position == late.position


WAITS_TO_SEE_HOW_FAR_THE_LOG_IS_COMPLETE = """
    alter function penstock.complete_to() rename to complete_at_once_to;
    create function penstock.complete_to() returns bigint language plpgsql as $$
    begin
      perform pg_advisory_xact_lock_shared(7);
      return penstock.complete_at_once_to();
    end $$
"""


def test_what_commits_while_a_boundary_is_read_is_not_below_low_and_unseen(
    school: Store, database_url: str, waiting: Waiting
) -> None:
    with school.transaction() as writer, psycopg.connect(database_url) as holder:
        holder.execute(WAITS_TO_SEE_HOW_FAR_THE_LOG_IS_COMPLETE)
        holder.commit()
        holder.execute("select pg_advisory_lock(7)")
        writer.append(joined("jake"))
        reading = waiting(lambda: school.read(ALGEBRA))
        writer.commit()
        holder.execute("select pg_advisory_unlock(7)")

    messages, guard = reading.result()
    assert [one.data["user_id"] for one in messages] == ["jake"]
    assert school.append(joined("joe"), guard).position == 2


def test_a_writer_that_was_open_at_the_read_and_rolls_back_is_no_conflict(school: Store) -> None:
    writer = school.begin_transaction()
    writer.append(joined("jake"))
    school.append(joined("mary"))
    _, guard = school.read(ALGEBRA)
    writer.rollback()

    assert school.append(joined("joe"), guard).position == 3


def test_what_was_seen_above_low_is_no_conflict(school: Store) -> None:
    with school.transaction() as writer:
        writer.append(joined("jake", "History"))
        seen = school.append(joined("mary"))
        _, guard = school.read(ALGEBRA)

    appended = school.append(joined("joe"), guard)

    assert guard.seen == ((seen.position, seen.position),)
    assert appended.guard is not None
    assert appended.guard.seen == ((seen.position, appended.position),)


def test_a_guard_waits_for_a_writer_that_is_open_and_then_sees_its_message(
    school: Store, waiting: Waiting
) -> None:
    _, guard = school.read(ALGEBRA)
    with school.transaction() as writer:
        writer.append(joined("jake"))
        decision = waiting(lambda: school.append(joined("joe"), guard))

    with pytest.raises(ConcurrentAppendError):
        decision.result()


def test_a_second_decision_on_the_same_boundary_waits_for_the_first(
    school: Store, waiting: Waiting
) -> None:
    _, guard = school.read(ALGEBRA)
    with school.transaction() as first:
        first.append(joined("jake"), guard)
        second = waiting(lambda: school.append(joined("joe"), guard))

    with pytest.raises(ConcurrentAppendError):
        second.result()


def test_a_message_that_has_one_of_two_attributes_only_is_a_conflict(
    school: Store, waiting: Waiting
) -> None:
    # plain messages of a declared type may lack attributes
    _, guard = school.read(JOE_IN_ALGEBRA)
    with school.transaction() as writer:
        writer.append(Message("user.joined_course", {"user_id": "joe"}))
        decision = waiting(lambda: school.append(joined("joe"), guard))

    with pytest.raises(ConcurrentAppendError):
        decision.result()


@pytest.mark.parametrize("count", [1, 2])
def test_decisions_on_disjoint_boundaries_do_not_wait_for_each_other(
    school: Store, count: int
) -> None:
    _, algebra = school.read(ALGEBRA)
    _, history = school.read(UserJoinedCourse.to_conditions(course_name="History"))

    with school.transaction() as first:
        first.append([joined(str(number)) for number in range(count)], algebra)
        with impatient(school) as second:
            appended = second.append(
                [joined(str(number), "History") for number in range(count)], history
            )

    assert appended.position == 2 * count


def test_a_condition_without_attributes_watches_the_whole_type(school: Store) -> None:
    _, guard = school.read([QueryCondition("user.joined_course")])
    school.append(joined("jake", "History"))

    with pytest.raises(ConcurrentAppendError):
        school.append(joined("joe"), guard)


def write_message(connection: psycopg.Connection) -> None:
    connection.execute(
        "select message_store.write_message(%s, 'enrolment-1', 'user.joined_course', %s)",
        (str(penstock.new_id()), '{"course_name": "Algebra", "user_id": "jake"}'),
    )


def insert(connection: psycopg.Connection) -> None:
    connection.execute(
        "insert into message_store.messages (id, stream_name, position, type, data)"
        " values (%s, 'enrolment-2', 0, 'user.joined_course', %s)",
        (penstock.new_id(), '{"course_name": "Algebra", "user_id": "jake"}'),
    )


def copy(connection: psycopg.Connection) -> None:
    with connection.cursor().copy(
        "copy message_store.messages (id, stream_name, position, type, data) from stdin"
    ) as rows:
        rows.write_row(
            (
                penstock.new_id(),
                "enrolment-3",
                0,
                "user.joined_course",
                '{"course_name": "Algebra", "user_id": "jake"}',
            )
        )


@pytest.mark.parametrize("write", [write_message, insert, copy])
@pytest.mark.parametrize("edition", ["penstock", "beside"])
def test_a_write_past_penstock_is_a_conflict(
    write: Callable[[psycopg.Connection], None],
    edition: str,
    new_database: Callable[[str], str],
) -> None:
    url = new_database(edition)
    with penstock.connect(url) as store, psycopg.connect(url) as writer:
        writer.execute("set search_path = message_store, public")  # for the genuine functions
        store.declare(UserJoinedCourse)
        _, guard = store.read(ALGEBRA)

        write(writer)
        with ThreadPoolExecutor(1) as threads:
            decision = threads.submit(store.append, joined("joe"), guard)
            wait_until_it_waits(url, decision)
            writer.commit()

        with pytest.raises(ConcurrentAppendError):
            decision.result()


@pytest.mark.parametrize("write", [write_message, insert, copy])
def test_a_write_past_penstock_waits_for_a_decision_in_flight(
    write: Callable[[psycopg.Connection], None],
    school: Store,
    database_url: str,
    waiting: Waiting,
) -> None:
    _, guard = school.read(ALGEBRA)
    with psycopg.connect(database_url) as writer:
        with school.transaction() as decision:
            decided = decision.append(joined("joe"), guard)
            written = waiting(lambda: write(writer))
        written.result()

    assert len(school.read(ALGEBRA)[0]) == 2
    with pytest.raises(ConcurrentAppendError):  # the writer's message came after the decision
        school.append(joined("mary"), decided.guard)


def test_a_bulk_append_is_a_conflict_for_each_guard_that_it_touches(
    school: Store, waiting: Waiting
) -> None:
    _, guard = school.read(ALGEBRA)
    with school.transaction() as bulk:
        bulk.append([joined(f"user {number}", f"course {number}") for number in range(600)])
        bulk.append(joined("jake"))
        decision = waiting(lambda: school.append(joined("joe"), guard))

    with pytest.raises(ConcurrentAppendError):
        decision.result()


def test_a_bulk_append_waits_for_a_decision_in_flight(school: Store, waiting: Waiting) -> None:
    _, guard = school.read(ALGEBRA)
    with school.transaction() as decision:
        decided = decision.append(joined("joe"), guard)
        bulk = waiting(lambda: school.append([joined(f"user {number}") for number in range(600)]))
    bulk.result()

    with pytest.raises(ConcurrentAppendError):
        school.append(joined("mary"), decided.guard)


def test_a_bulk_append_of_100_000_takes_few_locks_and_keeps_its_attributes(
    school: Store, database_url: str
) -> None:
    many = 100_000
    with school.transaction() as bulk:
        appended = bulk.append([joined(f"user {n}", f"course {n % 1000}") for n in range(many)])
        with psycopg.connect(database_url) as connection:
            row = connection.execute("select count(*) from pg_locks where locktype = 'advisory'")
            (locks,) = row.fetchone() or (None,)

    assert locks < 10
    assert len(appended.positions) == many
    for n in (0, 50_000, many - 1):
        found, _ = school.read(UserJoinedCourse.to_conditions(user_id=f"user {n}"))
        assert [one.global_position for one in found] == [appended.positions[n]]
    assert len(school.read(UserJoinedCourse.to_conditions(course_name="course 7"))[0]) == 100


def test_many_writes_past_penstock_in_one_transaction_take_a_bounded_number_of_locks(
    school: Store, database_url: str
) -> None:
    with psycopg.connect(database_url) as writer:
        writer.execute(
            "do $$ begin for n in 1 .. 1000 loop insert into message_store.messages"
            " (stream_name, position, type, data) values ('enrolment-' || n, 0,"
            " 'user.joined_course', jsonb_build_object('course_name', n, 'user_id', n));"
            " end loop; end $$"
        )
        row = writer.execute("select count(*) from pg_locks where locktype = 'advisory'")
        (locks,) = row.fetchone() or (None,)

    assert locks < 600


def test_two_guarded_bulk_appends_run_one_after_the_other(school: Store, waiting: Waiting) -> None:
    _, guard = school.read(ALGEBRA)
    with school.transaction() as first:
        first.append([joined(f"user {number}") for number in range(600)], guard)
        second = waiting(
            lambda: school.append([joined(f"user {number}") for number in range(600)], guard)
        )

    with pytest.raises(ConcurrentAppendError):
        second.result()


def test_guarded_bulk_appends_that_waited_together_run_one_after_the_other(
    school: Store, database_url: str
) -> None:
    closed = [CourseClosed(course_name="Drawing") for _ in range(600)]
    bulks: list[list[TypedMessage]] = [[*bulk_of("Drawing")], [*closed]]
    history = Guard(tuple(UserJoinedCourse.to_conditions(course_name="History")))
    with ThreadPoolExecutor(2) as threads:
        with school.transaction() as decision:
            decision.append(Message("note"), school.read(ALGEBRA)[1])
            both = [threads.submit(school.append, bulk, history) for bulk in bulks]
            wait_until_it_waits(database_url, both[0], 2)

        assert sorted(one.result().position for one in both) == [601, 1201]


@pytest.mark.parametrize("write", [write_alone, write_a_batch, insert_some])
def test_writers_of_messages_with_the_same_attributes_do_not_wait_for_each_other(
    school: Store, write: Callable[[Transaction], object]
) -> None:
    with school.transaction() as first:
        write(first)
        with impatient(school) as second:
            write(second)
        committed = len(school.read(ALGEBRA)[0])

    assert len(school.read(ALGEBRA)[0]) == 2 * committed > 0


@pytest.mark.parametrize("count", [1, 2])
def test_decisions_on_the_same_attributes_in_opposite_orders_do_not_deadlock(
    school: Store, database_url: str, count: int
) -> None:
    courses = ["Algebra", "History", "Physics"]

    def decide(store: Store, order: list[str]) -> int:
        watched = [QueryCondition("user.joined_course", "course_name", one) for one in order]
        notes = [Message("note") for _ in range(count)]
        return len(store.append(notes, Guard(tuple(watched))).positions)

    # of one store, the second would wait for the first in the process
    with penstock.connect(database_url) as other, ThreadPoolExecutor(2) as threads:
        with psycopg.connect(database_url) as holder:
            holder.execute(
                "select pg_advisory_xact_lock(penstock.key_pair('course_name', %s))", (courses[1],)
            )
            both = [
                threads.submit(decide, school, courses),
                threads.submit(decide, other, courses[::-1]),
            ]
            wait_until_it_waits(database_url, both[0], 2)

        assert [one.result() for one in both] == [count, count]


@pytest.mark.parametrize("count", [400, 600])
def test_a_bulk_append_takes_few_locks(school: Store, count: int) -> None:
    with school.transaction() as bulk:
        bulk.append([joined(f"user {number}", f"course {number}") for number in range(count)])
        row = bulk.connection.execute(
            "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()"
        ).fetchone()

    assert row is not None
    assert row[0] < 10


@pytest.mark.parametrize("write", [write_a_bulk, insert_a_bulk])
def test_bulk_writers_of_different_types_do_not_wait_for_each_other(
    school: Store, write: Callable[[Transaction], object]
) -> None:
    with school.transaction() as first:
        write(first)
        with impatient(school) as second:
            second.append([CourseClosed(course_name="Algebra") for _ in range(600)])

    assert len(school.get_category_messages("course.closed")) == 600


def test_a_guard_and_an_expected_version_go_together(school: Store) -> None:
    _, guard = school.read(ALGEBRA)
    school.append(joined("joe"), guard, stream_name="enrolment-joe", expected_version=-1)

    with pytest.raises(WrongExpectedVersion):
        school.append(joined("jake", "History"), stream_name="enrolment-joe", expected_version=-1)

    assert [one.position for one in school.get_stream_messages("enrolment-joe")] == [0]


def test_a_decision_with_a_stream_waits_for_the_one_before(school: Store, waiting: Waiting) -> None:
    _, guard = school.read(ALGEBRA)
    with school.transaction() as first:
        first.append(joined("jake"), guard, stream_name="enrolment-jake")
        second = waiting(lambda: school.append(joined("joe"), guard, stream_name="enrolment-joe"))

    with pytest.raises(ConcurrentAppendError):
        second.result()


def test_a_decision_late_in_a_transaction_does_not_wait_but_asks_to_be_retried(
    school: Store,
) -> None:
    _, guard = school.read(ALGEBRA)
    with school.transaction() as first:
        first.append(joined("jake"), guard)
        late = school.begin_transaction()
        late.write_message("account-1", "Opened")
        late.connection.execute("set local lock_timeout = '2s'")
        with pytest.raises(TransactionConflict, match="a lock on the same boundary") as raised:
            late.append(joined("joe"), guard)
        late.rollback()

    assert raised.value.retryable


def test_a_guard_locked_first_lets_the_decision_come_late(school: Store, waiting: Waiting) -> None:
    def decide() -> None:
        with school.transaction() as late:
            late.lock(ALGEBRA)
            _, guard = late.read(ALGEBRA)
            late.write_message("account-1", "Opened")
            late.append(joined("joe"), guard)

    with school.transaction() as first:
        first.lock(ALGEBRA)
        first.append(joined("jake"))
        second = waiting(decide)
    second.result()

    assert [one.data["user_id"] for one in school.read(ALGEBRA)[0]] == ["jake", "joe"]


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
@pytest.mark.parametrize("decide", DECISIONS)
def test_a_guard_is_refused_where_the_transaction_keeps_its_snapshot(
    school: Store, isolation: str, decide: Callable[[Transaction, Guard], object]
) -> None:
    _, guard = school.read(ALGEBRA)

    with pytest.raises(WatermarkRequired), school.transaction(isolation) as transaction:
        decide(transaction, guard)

    with pytest.raises(WatermarkRequired), school.transaction(isolation) as transaction:
        transaction.lock(guard)

    with pytest.raises(WatermarkRequired), school.transaction(isolation) as transaction:
        transaction.read(ALGEBRA)

    assert school.read(ALGEBRA)[0] == []


@pytest.mark.parametrize("count", [1, 2])
def test_a_retry_while_the_first_append_is_under_way_returns_the_first_result(
    school: Store, waiting: Waiting, count: int
) -> None:
    messages = [joined(str(number)) for number in range(count)]
    with school.transaction() as first:
        appended = first.append(messages)
        again = waiting(lambda: school.append(messages))

    assert again.result() == appended


@pytest.mark.parametrize("make", [joined, Message])
def test_a_retry_of_a_part_of_an_append_is_refused(
    school: Store, make: Callable[[str], UserJoinedCourse | Message]
) -> None:
    first, second = make("joe"), make("jake")
    school.append(first)

    with pytest.raises(DuplicateMessageId):
        school.append([first, second])

    assert len(school.get_category_messages("$all")) == 1


def test_an_id_that_exists_in_another_stream_is_refused(school: Store) -> None:
    message = joined("joe")
    school.append(message)

    with pytest.raises(DuplicateMessageId):
        school.append(message, stream_name="enrolment-joe")


def test_a_condition_on_what_nobody_declared_is_refused(school: Store) -> None:
    with pytest.raises(UndeclaredType):
        school.read([QueryCondition("nobody.knows", "course_name", "Algebra")])

    with pytest.raises(UndeclaredAttribute):
        school.read([QueryCondition("course.created", "user_id", "joe")])

    guard = Guard((QueryCondition("course.created", "user_id", "joe"),))
    with pytest.raises(UndeclaredAttribute):
        school.append(joined("joe"), guard)

    assert school.read(ALGEBRA)[0] == []


@pytest.mark.parametrize("count", [1, 2])
def test_a_guard_on_the_whole_of_a_type_that_nobody_declared_is_refused(
    school: Store, count: int
) -> None:
    guard = Guard((QueryCondition("nobody.knows"),))

    with pytest.raises(UndeclaredType):
        school.append([joined(str(number)) for number in range(count)], guard)

    assert school.read(ALGEBRA)[0] == []


def test_what_is_no_guard_is_refused(school: Store) -> None:
    with pytest.raises(ValidationError):
        school.append(joined("joe"), guard=ALGEBRA)  # type: ignore[arg-type]

    with pytest.raises(ValidationError):
        school.append([])


def test_a_rolled_back_append_leaves_nothing(school: Store) -> None:
    _, guard = school.read(ALGEBRA)
    transaction = school.begin_transaction()
    transaction.append(joined("joe"), guard)
    transaction.rollback()

    school.append(joined("jake"), guard)

    assert [one.data["user_id"] for one in school.read(ALGEBRA)[0]] == ["jake"]


async def test_it_is_the_same_from_async_code(async_store: penstock.AsyncStore) -> None:
    await async_store.declare(UserJoinedCourse)
    _, guard = await async_store.read(ALGEBRA)
    await async_store.append(joined("jake"), guard)

    with pytest.raises(ConcurrentAppendError):
        await async_store.append(joined("joe"), guard)
