"""Staged rows become messages in one go, once, or not at all."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import psycopg
import pytest

from penstock import Store
from penstock.errors import (
    DuplicateMessageId,
    StagingLost,
    WatermarkRequired,
    WrongExpectedVersion,
)
from penstock.spark.sink import StagedPart
from penstock.spark.source import PenstockDataSource
from penstock.spark.write.staging import Published, clean_up
from tests.groups.school import CourseCreated
from tests.spark.faults.waiting import wait_until_blocked
from tests.spark.reading import read, struct
from tests.spark.writing import IDENTIFIED, MESSAGE, VERSIONED, Writer


def test_staged_rows_become_messages_and_leave_the_staging(writer: Writer, store: Store) -> None:
    store.write_message("a-1", "Before")
    staged = writer.stage(MESSAGE, ("a-1", "T", '{"n": 1}'), ("b-1", "T", None))

    published = writer.publish(staged)

    assert published == Published(2, 2, 3)
    assert [(m.type, m.position) for m in store.get_stream_messages("a-1")] == [
        ("Before", 0),
        ("T", 1),
    ]
    assert (writer.count("penstock.staged"), writer.count("penstock.stagings")) == (0, 0)


def test_tokens_are_published_in_the_order_they_are_given(writer: Writer, store: Store) -> None:
    second = writer.stage(MESSAGE, ("a-1", "T", '{"n": 3}'))
    first = writer.stage(MESSAGE, ("a-1", "T", '{"n": 1}'), ("a-1", "T", '{"n": 2}'))

    writer.publish(first, second)

    assert [m.data["n"] for m in store.get_stream_messages("a-1")] == [1, 2, 3]


def test_an_order_holds_across_tokens(writer: Writer, store: Store) -> None:
    schema = struct(stream_name="string", type="string", data="string", at="double")
    some = writer.stage(schema, ("a-1", "T", "{}", 2.5), ("a-1", "T", "{}", None), order_by="at")
    others = writer.stage(schema, ("a-1", "U", "{}", -1.0), ("a-1", "U", "{}", 3.0), order_by="at")

    writer.publish(some, others)

    assert [m.type for m in store.get_stream_messages("a-1")] == ["U", "T", "U", "T"]


def test_only_the_tokens_that_are_named_count(writer: Writer, store: Store) -> None:
    writer.stage(MESSAGE, ("a-1", "Lost", "{}"))
    kept = writer.stage(MESSAGE, ("a-1", "Kept", "{}"))

    writer.publish(kept)

    assert [m.type for m in store.get_category_messages("a")] == ["Kept"]
    assert writer.count("penstock.staged") == 1


def test_a_delivery_is_published_once(writer: Writer, store: Store) -> None:
    first = writer.publish(writer.stage(MESSAGE, ("a-1", "T", "{}")), source="job")

    again = writer.publish(writer.stage(MESSAGE, ("a-1", "T", "{}")), source="job")

    assert again == Published(first.count, first.first_position, first.last_position, True)
    assert len(store.get_category_messages("a")) == 1
    assert writer.count("penstock.staged") == 0


@pytest.mark.parametrize("batch", [0, 2])
def test_a_twin_waits_and_finds_the_delivery_made(
    writer: Writer, store: Store, database_url: str, batch: int
) -> None:
    for earlier in range(batch):
        writer.publish(writer.stage(MESSAGE, ("a-1", "T", "{}")), source="job", batch=earlier)
    with (
        psycopg.connect(database_url, autocommit=True) as connection,
        ThreadPoolExecutor() as threads,
    ):
        twin = Writer(connection)
        other = twin.stage(MESSAGE, ("a-1", "T", "{}"))
        with writer.connection.transaction():
            writer.publish(writer.stage(MESSAGE, ("a-1", "T", "{}")), source="job", batch=batch)
            waiting = threads.submit(twin.publish, other, source="job", batch=batch)
            wait_until_blocked(database_url, 1, waiting)

    assert waiting.result().repeated
    assert len(store.get_category_messages("a")) == batch + 1


def test_two_deliveries_to_one_stream_come_one_after_the_other(
    writer: Writer, store: Store, database_url: str
) -> None:
    with (
        psycopg.connect(database_url, autocommit=True) as connection,
        ThreadPoolExecutor() as threads,
    ):
        other = Writer(connection)
        second = other.stage(MESSAGE, ("a-1", "Second", "{}"))
        with writer.connection.transaction():
            writer.publish(writer.stage(MESSAGE, ("a-1", "First", "{}")))
            waiting = threads.submit(other.publish, second)
            wait_until_blocked(database_url, 1, waiting)

    assert waiting.result().count == 1
    found = [(m.position, m.type) for m in store.get_stream_messages("a-1")]
    assert found == [(0, "First"), (1, "Second")]


def test_a_delivery_waits_for_who_has_its_category_alone(
    writer: Writer, store: Store, database_url: str
) -> None:
    staged = writer.stage(MESSAGE, ("a-1", "Second", "{}"))
    with ThreadPoolExecutor() as threads, store.transaction() as busy:
        busy.lock_categories("a")
        waiting = threads.submit(writer.publish, staged)
        wait_until_blocked(database_url, 1, waiting)
        busy.write_message("a-1", "First")

    assert waiting.result().count == 1
    assert [m.type for m in store.get_stream_messages("a-1")] == ["First", "Second"]


def test_a_delivery_to_many_streams_holds_a_bounded_number_of_locks(writer: Writer) -> None:
    staged = writer.stage(MESSAGE, *((f"a-{number}", "T", "{}") for number in range(1000)))

    with writer.connection.transaction():
        writer.publish(staged)
        held = writer.connection.execute(
            "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()"
        ).fetchone()

    assert held is not None
    assert held[0] < 100


def test_statistics_of_a_staging_that_was_nearly_empty_do_not_make_it_quadratic(
    writer: Writer,
) -> None:
    writer.stage(MESSAGE, ("a-1", "T", "{}"))
    writer.connection.execute("analyze penstock.staged")  # as autovacuum does, whenever it likes
    staged = writer.stage(MESSAGE, *((f"a-{number}", "T", "{}") for number in range(1000)))
    plans: list[str] = []
    writer.connection.add_notice_handler(lambda notice: plans.append(notice.message_detail or ""))
    writer.connection.execute("set client_min_messages = log; set debug_print_plan = on")

    writer.publish(staged)

    [insert] = [one for one in plans if ":hasModifyingCTE true" in one]
    assert "HASHJOIN" in insert  # a nested loop would compare each row with each stream


def test_a_delivery_is_not_published_on_an_old_snapshot(writer: Writer, store: Store) -> None:
    staged = writer.stage(VERSIONED, ("a-1", "T", "{}", -1))
    writer.connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ

    with pytest.raises(WatermarkRequired), writer.connection.transaction():
        writer.publish(staged, source="job")

    assert store.get_category_messages("$all") == []


def test_batches_of_a_delivery_go_forward_only(writer: Writer, store: Store) -> None:
    for batch in (0, 1, 1, 0, 5, 4):
        writer.publish(writer.stage(MESSAGE, ("a-1", "T", "{}")), source="query", batch=batch)

    assert len(store.get_category_messages("a")) == 3


def test_a_batch_of_a_query_that_spark_runs_again_is_published_once(
    writer: Writer, store: Store, database_url: str
) -> None:
    source = PenstockDataSource({"url": database_url})

    for batch in (0, 0, 1):
        sink = source.streamWriter(MESSAGE, overwrite=False)
        part = StagedPart(writer.stage(MESSAGE, ("a-1", "T", "{}")), 0, "query-1")
        sink.commit([part], batch)

    assert len(store.get_category_messages("a")) == 2


def test_a_delivery_of_nothing_is_a_delivery(writer: Writer) -> None:
    nothing = writer.publish(writer.stage(MESSAGE), source="job")

    assert nothing == Published(0, None, None)
    assert writer.publish(source="job").repeated
    assert writer.publish() == Published(0, None, None)


def test_a_delivery_that_failed_may_come_again(writer: Writer, store: Store) -> None:
    wrong = writer.stage(VERSIONED, ("a-1", "T", "{}", 7))
    with pytest.raises(WrongExpectedVersion):
        writer.publish(wrong, source="job")

    published = writer.publish(writer.stage(VERSIONED, ("a-1", "T", "{}", -1)), source="job")

    assert not published.repeated
    assert len(store.get_category_messages("a")) == 1


def test_the_right_version_of_a_stream_is_that_before_the_delivery(
    writer: Writer, store: Store
) -> None:
    store.write_message("a-1", "Before")
    staged = writer.stage(
        VERSIONED, ("a-1", "T", "{}", 0), ("a-1", "T", "{}", None), ("b-1", "T", "{}", -1)
    )

    assert writer.publish(staged).count == 3


@pytest.mark.parametrize("versions", [(1, 1), (0, -1), (-1, 0)])
def test_a_wrong_version_stops_the_whole_delivery_and_names_the_stream(
    writer: Writer, store: Store, versions: tuple[int, int]
) -> None:
    store.write_message("b-1", "Before")
    fine = writer.stage(VERSIONED, ("a-1", "T", "{}", -1))
    staged = writer.stage(VERSIONED, *(("b-1", "T", "{}", version) for version in versions))

    with pytest.raises(WrongExpectedVersion) as raised:
        writer.publish(fine, staged)

    assert (raised.value.stream_name, raised.value.actual) == ("b-1", 0)
    assert raised.value.expected in versions
    assert raised.value.expected != 0
    assert len(store.get_category_messages("$all")) == 1


def test_an_id_that_is_there_twice_stops_the_delivery(writer: Writer, store: Store) -> None:
    id = str(uuid4())
    staged = writer.stage(IDENTIFIED, (id, "a-1", "T", "{}"), (id, "a-2", "T", "{}"))

    with pytest.raises(DuplicateMessageId, match=id):
        writer.publish(staged)

    assert store.get_category_messages("$all") == []


def test_an_id_of_a_message_in_the_log_stops_the_delivery(writer: Writer, store: Store) -> None:
    id = str(uuid4())
    store.write_message("a-1", "Before", id=id)
    staged = writer.stage(IDENTIFIED, (None, "b-1", "T", "{}"), (id.upper(), "a-1", "T", "{}"))

    with pytest.raises(DuplicateMessageId, match=id):
        writer.publish(staged)

    assert len(store.get_category_messages("$all")) == 1


def test_rows_that_a_crash_took_are_missed(writer: Writer, store: Store) -> None:
    staged = writer.stage(MESSAGE, ("a-1", "T", "{}"), ("a-2", "T", "{}"))
    writer.connection.execute("delete from penstock.staged where stream_name = 'a-2'")

    with pytest.raises(StagingLost):
        writer.publish(staged, source="job")

    assert store.get_category_messages("$all") == []
    assert writer.count("penstock.deliveries") == 0


def test_attributes_of_what_is_published_are_indexed(writer: Writer, store: Store) -> None:
    store.declare(CourseCreated)
    staged = writer.stage(MESSAGE, (None, "course.created", '{"course_name": "Algebra"}'))

    writer.publish(staged)

    found = read(writer.connection.info.dsn, attributes='{"course_name": "Algebra"}')
    assert found.num_rows == 1


def test_what_was_given_up_is_forgotten(writer: Writer) -> None:
    staged = writer.stage(MESSAGE, ("a-1", "T", "{}"))

    clean_up(writer.connection, [staged])

    assert (writer.count("penstock.staged"), writer.count("penstock.stagings")) == (0, 0)


def test_what_nobody_published_for_a_day_is_swept_by_the_next_write(writer: Writer) -> None:
    writer.stage(MESSAGE, ("old-1", "T", "{}"))
    writer.connection.execute(
        "update penstock.stagings set staged_at = now() - interval '25 hours'"
    )
    writer.stage(MESSAGE, ("recent-1", "T", "{}"))

    writer.publish(writer.stage(MESSAGE, ("a-1", "T", "{}")))

    left = writer.connection.execute("select stream_name from penstock.staged").fetchall()
    assert left == [("recent-1",)]
