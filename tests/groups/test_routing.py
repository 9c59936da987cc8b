"""Each message reaches every partition it belongs to: no wake-up is lost, whoever is under way."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

import penstock
from penstock import Claim, Message, Store, TypedMessage
from tests.groups.school import (
    CourseClosed,
    CourseCreated,
    DeviceRemoved,
    DeviceSeen,
    UserJoinedCourse,
    UserRegistered,
    claim_device,
    claim_student,
    positions,
)
from tests.racing import wait_until_it_waits


@pytest.fixture
def group(store: Store) -> Store:
    store.groups.register("group")
    store.declare(DeviceSeen, DeviceRemoved, CourseCreated, UserRegistered)
    store.declare(UserJoinedCourse, CourseClosed)
    return store


def drain(store: Store, claim: Callable[[Store], Claim | None] = claim_device) -> list[list[int]]:
    """Claim and acknowledge until nothing is left; return the positions of each claim."""
    seen = []
    while (found := claim(store)) is not None:
        seen.append(positions(found))
        store.groups.ack(found)
    return seen


def test_a_message_that_commits_late_is_delivered_in_its_place(group: Store) -> None:
    writer = group.begin_transaction()
    writer.append(DeviceSeen(device_id="a"))
    group.append(DeviceSeen(device_id="a"))
    before = claim_device(group)
    writer.commit()

    assert before is None
    assert drain(group) == [[1, 2]]


def test_a_message_routed_while_an_ack_is_open_wakes_the_partition(group: Store) -> None:
    group.append(DeviceSeen(device_id="a"))
    claim = claim_device(group)
    assert claim is not None
    with group.transaction() as acknowledging:
        acknowledging.groups.ack(claim)  # has looked, found nothing more, and is not committed
        group.append(DeviceSeen(device_id="a"))
        assert claim_device(group) is None  # routes the message, but cannot lock the partition

    assert drain(group) == [[2]]


def test_an_ack_while_a_router_is_open_waits_and_sees_what_it_routed(
    group: Store, database_url: str
) -> None:
    group.append(DeviceSeen(device_id="a"))
    claim = claim_device(group)
    assert claim is not None
    group.append(DeviceSeen(device_id="a"))
    with ThreadPoolExecutor(1) as threads:
        with group.transaction() as routing:
            assert claim_device(routing) is None  # type: ignore[arg-type]
            acknowledging = threads.submit(group.groups.ack, claim)
            wait_until_it_waits(database_url, acknowledging)
        acknowledging.result()

    assert drain(group) == [[2]]


def test_an_ack_that_did_not_see_an_open_routers_rows_is_made_good(group: Store) -> None:
    group.append([UserJoinedCourse(course_name="Algebra", user_id="joe")])
    claim = claim_student(group)
    assert claim is not None
    group.append(CourseClosed(course_name="Algebra"))  # goes to a feed with a gap
    with group.transaction() as routing:
        routing.append(DeviceSeen(device_id="x"))
        claim_student(routing)  # type: ignore[arg-type]
    group.groups.ack(claim, 1)

    assert drain(group, claim_student) == [[2]]


def test_a_routing_that_is_rolled_back_is_done_again(group: Store) -> None:
    group.append(DeviceSeen(device_id="a"))

    routing = group.begin_transaction()
    assert claim_device(routing) is not None  # type: ignore[arg-type]
    routing.rollback()

    assert drain(group) == [[1]]


def test_while_somebody_else_routes_a_claim_gets_what_is_routed_already(group: Store) -> None:
    group.append([DeviceSeen(device_id="a"), DeviceSeen(device_id="b")])
    assert claim_device(group) is not None
    group.append(DeviceSeen(device_id="c"))

    with group.transaction() as routing:
        routing.append(CourseCreated(course_name="Algebra"))
        routing.groups.claim_next("group", partition_by="device_id", handled_types=[DeviceSeen])
        third = claim_device(group)

    assert third is None or third.partition_key != "device_id:a"


def test_partial_messages_before_and_after_a_partition_appears_reach_it_in_order(
    group: Store,
) -> None:
    group.append([CourseCreated(course_name="Algebra"), UserRegistered(user_id="joe", name="Joe")])
    assert claim_student(group) is None  # routed before there is a partition
    group.append(UserJoinedCourse(course_name="Algebra", user_id="joe"))
    group.append(CourseClosed(course_name="Algebra"))

    assert drain(group, claim_student) == [[1, 2, 3, 4]]


def test_a_message_for_more_partitions_than_fit_one_routing_reaches_all(
    group: Store, database_url: str
) -> None:
    group.append([UserJoinedCourse(course_name="Algebra", user_id=f"user {n}") for n in range(12)])
    drain(group, claim_student)
    group.append(CourseClosed(course_name="Algebra"))

    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("select penstock.route(g, 5) from penstock.consumer_groups g")
    pending = group.groups.list()[0].pending

    assert pending == 5
    assert drain(group, claim_student) == [[13]] * 12


def test_many_partial_messages_are_fanned_out_without_falling_behind(group: Store) -> None:
    group.append(
        [UserJoinedCourse(course_name=f"course {n}", user_id=f"user {n}") for n in range(300)]
    )
    group.append([CourseClosed(course_name=f"course {n}") for n in range(300)])

    first = claim_student(group)

    assert positions(first) == [1, 301]
    assert group.groups.list()[0].pending == 300


def test_a_type_that_is_handled_later_is_routed_from_the_start(group: Store) -> None:
    group.append([DeviceSeen(device_id="a"), DeviceRemoved(device_id="b")])
    assert claim_device(group, types=[DeviceSeen]) is not None  # and nobody handles b

    claim = claim_device(group)

    assert claim is not None
    assert (claim.partition_key, positions(claim)) == ("device_id:b", [2])


def test_a_claim_at_the_moment_of_a_reset_loses_nothing(group: Store, database_url: str) -> None:
    group.append(DeviceSeen(device_id="a"))
    drain(group)

    with ThreadPoolExecutor(1) as threads, group.transaction() as resetting:
        resetting.groups.reset("group")
        claiming = threads.submit(claim_device, group, types=[DeviceSeen])
        meanwhile = claiming.result()

    assert meanwhile is None
    assert drain(group) == [[1]]


def test_a_type_that_reveals_partitions_and_is_declared_later_does_so(store: Store) -> None:
    class StudentMoved(TypedMessage, type="student.moved"):
        course_name: str
        user_id: str

    store.groups.register("group")
    store.append([CourseCreated(course_name="Algebra")])
    store.append(Message("student.moved", {"course_name": "Algebra", "user_id": "joe"}))
    assert claim_student(store) is None

    store.declare(StudentMoved)

    assert drain(store, claim_student) == [[1]]


def test_an_attribute_that_is_kept_out_of_the_index_does_not_partition(store: Store) -> None:
    class CourseNoted(TypedMessage, type="course.noted", unindexed=["course_name"]):
        course_name: str
        note_id: str

    store.groups.register("group")
    store.append(CourseNoted(course_name="Algebra", note_id="n"))

    claim = store.groups.claim_next(
        "group", partition_by="course_name", handled_types=[CourseNoted]
    )

    assert claim is None


def test_a_worker_is_not_starved_by_partitions_that_wait_for_other_types(group: Store) -> None:
    group.append([DeviceRemoved(device_id=f"gone {number}") for number in range(50)])
    group.append(DeviceSeen(device_id="here"))
    group.groups.claim_next(
        "group", partition_by="device_id", handled_types=[DeviceSeen, DeviceRemoved]
    )

    claim = claim_device(group, types=[DeviceSeen])

    assert claim is not None
    assert claim.partition_key == "device_id:here"


def test_a_value_too_long_for_an_index_does_not_stop_the_group(group: Store) -> None:
    long = "".join(chr(0x4E00 + number * 7919 % 20_000) for number in range(10_000))
    group.append([DeviceSeen(device_id=long), DeviceSeen(device_id="a")])

    assert drain(group) == [[1], [2]]


def test_messages_that_were_removed_are_passed_over(group: Store, database_url: str) -> None:
    group.append([DeviceSeen(device_id=device) for device in ("a", "a", "b")])
    claim = claim_device(group)
    assert claim is not None
    group.groups.release(claim)

    with psycopg.connect(database_url) as connection:
        connection.execute("delete from message_store.messages where global_position in (1, 3)")

    assert drain(group) == [[2]]
    assert group.groups.list()[0].pending == 0


def test_messages_that_were_removed_before_they_were_routed_are_passed_over(
    group: Store, database_url: str
) -> None:
    group.append([DeviceSeen(device_id=device) for device in ("a", "a", "b")])

    with psycopg.connect(database_url) as connection:
        connection.execute("delete from message_store.messages where global_position in (1, 3)")

    assert drain(group) == [[2]]


def test_two_groups_do_not_disturb_each_other(group: Store) -> None:
    group.groups.register("other")
    group.append(DeviceSeen(device_id="a"))

    assert drain(group) == [[1]]

    other = claim_device(group, group_id="other")
    assert positions(other) == [1]
    group.groups.reset("group")
    assert other is not None
    group.groups.ack(other)


def test_messages_of_plain_writers_are_delivered_too(
    new_database: Callable[[str], str],
) -> None:
    with penstock.connect(new_database("beside")) as store:
        store.declare(DeviceSeen, DeviceRemoved)
        store.groups.register("group")
        store.write_message("device-1", Message("device.seen", {"device_id": "a"}))
        store.write_messages(
            "device-1",
            [Message("device.seen", {"device_id": "a"}), Message("other", {"device_id": "a"})],
        )

        assert drain(store) == [[1, 2]]


def test_a_partitions_values_belong_to_their_names_however_the_database_sorts_these(
    group: Store, database_url: str
) -> None:
    assert claim_student(group) is None  # binds the group to its attributes
    with psycopg.connect(database_url) as connection:  # as a database of another collation would
        connection.execute(
            "update penstock.consumer_groups set partition_by = '{user_id,course_name}'"
        )
    group.append(UserJoinedCourse(course_name="Algebra", user_id="joe"))

    claim = claim_student(group)

    assert claim is not None
    assert claim.partition_value == {"course_name": "Algebra", "user_id": "joe"}
    assert claim.partition_key == "user_id:joe|course_name:Algebra"


@pytest.mark.parametrize(
    "call",
    [
        lambda transaction, claim: transaction.groups.ack(claim),
        lambda transaction, claim: transaction.groups.release(claim),
        lambda transaction, claim: transaction.groups.extend(claim),
        lambda transaction, claim: transaction.groups.resume("group"),
        lambda transaction, claim: transaction.groups.reset("group"),
        lambda transaction, claim: claim_device(transaction),
    ],
)
def test_what_needs_to_know_the_newest_is_refused_in_an_old_snapshot(
    group: Store, call: Callable[[penstock.Transaction, Claim], object]
) -> None:
    group.append(DeviceSeen(device_id="a"))
    claim = claim_device(group)
    assert claim is not None
    with group.transaction("repeatable read") as transaction:
        transaction.stream_version("device-1")  # the snapshot is of now
        group.append(DeviceSeen(device_id="a"))
        assert claim_device(group) is None  # but it was routed
        with pytest.raises(penstock.errors.WatermarkRequired), transaction.nested():
            call(transaction, claim)

    group.groups.ack(claim)

    assert drain(group) == [[2]]


def test_a_message_that_waits_while_another_is_removed_is_delivered(
    group: Store, database_url: str
) -> None:
    group.append([DeviceSeen(device_id="a"), DeviceSeen(device_id="b")])
    claim = claim_device(group)
    assert claim is not None
    group.groups.release(claim)  # both partitions are there now, with a message each
    group.append(DeviceSeen(device_id="b"))
    routing = group.begin_transaction()
    assert positions(claim_device(routing)) == [1]  # type: ignore[arg-type] # has looked at b, too

    def remove() -> None:
        with psycopg.connect(database_url) as connection:
            connection.execute("delete from message_store.messages where global_position = 2")

    with ThreadPoolExecutor() as threads:
        removing = threads.submit(remove)
        wait_until_it_waits(database_url, removing)
        routing.commit()
        removing.result()

    assert drain(group) == [[3]]


def test_a_parked_partition_whose_message_was_removed_goes_on_with_the_next(
    group: Store, database_url: str
) -> None:
    group.append(DeviceSeen(device_id="a"))
    claim = claim_device(group)
    assert claim is not None
    group.groups.release(claim, error="it failed", park=True)
    with psycopg.connect(database_url) as connection:
        connection.execute("delete from message_store.messages")
    (status,) = group.groups.list()
    group.append(DeviceSeen(device_id="a"))

    assert status.pending == 0
    assert group.groups.resume("group") == 1
    assert drain(group) == [[2]]


def test_the_claim_of_a_dead_worker_whose_messages_were_removed_is_given_up(
    group: Store, database_url: str
) -> None:
    group.append(DeviceSeen(device_id="a"))
    claim = group.groups.claim_next(
        "group", partition_by="device_id", handled_types=[DeviceSeen], lease=0.001
    )
    assert claim is not None
    with psycopg.connect(database_url) as connection:
        connection.execute("delete from message_store.messages")

    assert claim_device(group) is None
    (status,) = group.groups.list()
    assert (status.claimed, status.pending) == (0, 0)


def test_an_attribute_that_is_declared_later_partitions_what_was_routed_without_it(
    group: Store,
) -> None:
    def moved(*unindexed: str) -> type[TypedMessage]:
        class Moved(TypedMessage, type="routing.moved", unindexed=unindexed):
            course_name: str
            user_id: str

        return Moved

    def claim(store: Store) -> Claim | None:
        return store.groups.claim_next(
            "group",
            partition_by=["course_name", "user_id"],
            handled_types=["routing.moved", UserJoinedCourse],
        )

    first = moved("user_id")
    group.append([first(course_name="Algebra", user_id="joe")])
    group.append([UserJoinedCourse(course_name="Algebra", user_id="jake")])
    before = claim(group)
    assert positions(before) == [1, 2]  # joe's message concerns everybody in Algebra
    assert before is not None
    group.groups.release(before)

    group.declare(moved())

    assert sorted(drain(group, claim)) == [[1], [2]]


def test_a_type_that_is_handled_later_holds_retention_back(group: Store) -> None:
    group.append(DeviceRemoved(device_id="a"), stream_name="device-1")
    group.append(DeviceSeen(device_id="a"), stream_name="device-1")
    group.append(DeviceSeen(device_id="a"), stream_name="device-1")
    claim = claim_device(group, types=[DeviceSeen])
    assert claim is not None
    group.groups.release(claim)
    found = claim_device(group)  # now the other type is routed, too
    assert positions(found) == [1, 2, 3]

    assert group.admin.retain("device-1", keep_count=1).removed == 0


def test_after_a_reset_retention_still_spares_what_the_group_needs(group: Store) -> None:
    for _ in range(3):
        group.append(DeviceSeen(device_id="a"), stream_name="device-1")
    claim = group.groups.claim_next(
        "group", partition_by="device_id", handled_types=[DeviceSeen], batch_size=1
    )
    assert claim is not None
    group.groups.ack(claim)

    group.groups.reset("group")

    assert group.admin.retain("device-1", keep_count=1).removed == 0
    assert drain(group) == [[1], [2, 3]]  # the first was handled before


def test_a_partition_that_makes_progress_has_all_its_attempts(group: Store) -> None:
    for _ in range(3):
        group.append(DeviceSeen(device_id="a"))
        claim = claim_device(group)
        assert claim is not None
        assert claim.attempts == 1
        group.groups.ack(claim)


def test_a_younger_message_that_was_seen_beside_an_open_writer_is_no_conflict(
    group: Store,
) -> None:
    group.append(DeviceSeen(device_id="a"))
    writer = group.begin_transaction()
    writer.append(DeviceSeen(device_id="other"))  # holds the watermark back
    group.append(DeviceSeen(device_id="a"))
    claim = claim_device(group)
    assert claim is not None

    appended = group.append(DeviceRemoved(device_id="a"), claim.guard)
    writer.rollback()

    assert positions(claim) == [1]
    assert appended.position == 4


def test_clearing_leaves_nothing_behind(group: Store, database_url: str) -> None:
    group.append(UserJoinedCourse(course_name="Algebra", user_id="joe"))
    group.append(CourseClosed(course_name="Algebra"))
    assert claim_student(group) is not None

    group.groups.clear()

    with psycopg.connect(database_url) as connection:
        for table in (
            "consumer_groups", "group_progress", "partitions", "partition_states", "claim_cursors",
            "group_feeds", "feed_partitions",
        ):  # fmt: skip
            left = connection.execute(f"select count(*) from penstock.{table}".encode()).fetchone()
            assert left == (0,), table


def test_a_claims_messages_may_be_used_up(group: Store) -> None:
    group.append([DeviceSeen(device_id="a"), DeviceSeen(device_id="a")])
    claim = claim_device(group)
    assert claim is not None

    while claim.messages:
        claim.messages.pop()
    group.groups.ack(claim)

    assert claim.last_position == 2
    assert claim_device(group) is None
