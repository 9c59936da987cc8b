"""What a read gives: every message of its target, in any number of parts, up to one watermark."""

from __future__ import annotations

from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

import penstock
from penstock import Message, Store
from penstock.errors import IndexingUnfinished, UndeclaredType, ValidationError, WrongColumns
from penstock.spark.read.columns import MESSAGE
from tests.groups.school import CourseCreated, UserJoinedCourse
from tests.spark.reading import read, reader_of, struct


def positions(table: pa.Table) -> list[int]:
    return list(table.column("global_position").to_pylist())


def as_rows(messages: list[penstock.RecordedMessage]) -> list[dict[str, Any]]:
    """Return messages as the store reads them, in the form of a frame's rows."""
    return [
        {
            "id": str(one.id),
            "stream_name": one.stream_name,
            "type": one.type,
            "position": one.position,
            "global_position": one.global_position,
            "time": one.time,
        }
        for one in messages
    ]


@pytest.fixture
def school(store: Store) -> Store:
    store.append([CourseCreated(course_name="Algebra"), CourseCreated(course_name="Botany")])
    store.append([UserJoinedCourse(course_name="Algebra", user_id="joe")])
    store.append([UserJoinedCourse(course_name="Botany", user_id="joe")])
    return store


def test_a_category_is_read_as_the_store_reads_it(store: Store, database_url: str) -> None:
    for number in range(5):
        store.write_message(f"account-{number % 2}", "Deposited", {"n": number})
        store.write_message("other-1", "Seen", metadata={"m": number})

    table = read(database_url, category="account")

    messages = store.get_category_messages("account")
    assert table.drop_columns(["data", "metadata"]).to_pylist() == as_rows(messages)
    assert table.column("data").to_pylist()[1] == '{"n": 1}'
    assert table.column("metadata").to_pylist()[1] is None


def test_the_whole_log_is_category_all(store: Store, database_url: str) -> None:
    for number in range(4):
        store.write_message(f"c{number}-1", "Seen")

    assert positions(read(database_url, category="$all")) == [1, 2, 3, 4]


def test_one_stream_is_read_by_its_own_positions(store: Store, database_url: str) -> None:
    for number in range(6):
        store.write_message(f"account-{number % 2}", "Seen")

    table = read(database_url, stream="account-1", after="0", until="1")

    assert table.column("position").to_pylist() == [1]
    assert positions(table) == [4]


def test_a_category_of_which_there_is_nothing_is_empty(database_url: str) -> None:
    table = read(database_url, category="nowhere")

    assert table.num_rows == 0
    assert table.column_names == MESSAGE.fieldNames()


def test_a_stream_of_which_there_is_nothing_is_empty(database_url: str) -> None:
    assert read(database_url, stream="nowhere-1").num_rows == 0


def test_types_are_chosen(store: Store, database_url: str) -> None:
    for type in ("Opened", "Closed", "Lost"):
        store.write_message("account-1", type)

    table = read(database_url, category="account", types="Opened, Lost")

    assert table.column("type").to_pylist() == ["Opened", "Lost"]


@pytest.mark.parametrize(
    ("after", "until", "expected"),
    [("1", "3", [2, 3]), ("3", "9", [4]), ("-1", "0", []), ("9", "12", []), ("latest", "9", [])],
)
def test_a_range_is_after_one_position_and_up_to_another(
    store: Store, database_url: str, after: str, until: str, expected: list[int]
) -> None:
    for _ in range(4):
        store.write_message("account-1", "Seen")

    assert positions(read(database_url, category="$all", after=after, until=until)) == expected


def test_columns_are_chosen_by_name_or_by_a_schema(store: Store, database_url: str) -> None:
    store.write_message("account-1", "Seen")

    named = read(database_url, category="account", columns="global_position, type")
    typed = read(database_url, struct(type="string", time="timestamp_ntz"), category="account")

    assert named.to_pylist() == [{"global_position": 1, "type": "Seen"}]
    assert typed.column("time").to_pylist()[0].tzinfo is None


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (struct(amount="integer"), "there is no column amount"),
        (struct(position="integer"), "column position cannot be read as int; it is bigint"),
        (struct(type="integer"), "column type cannot be read as int; it is string"),
        (struct(time="date"), "column time cannot be read as date; it is timestamp"),
        (struct(data="integer"), "column data cannot be read as int; it is string, a struct"),
    ],
)
def test_a_schema_that_no_message_has_is_refused(
    database_url: str, schema: StructType, problem: str
) -> None:
    with pytest.raises(WrongColumns, match=problem):
        reader_of(database_url, schema, category="a")


def test_a_column_that_no_message_has_is_refused(database_url: str) -> None:
    with pytest.raises(ValidationError, match="columns must be among id, stream_name"):
        reader_of(database_url, category="a", columns="id,amount")
    with pytest.raises(ValidationError, match="columns must be named once; got 'id'"):
        reader_of(database_url, category="a", columns="id,type,id")
    twice = StructType([MESSAGE["type"], MESSAGE["type"]])
    with pytest.raises(WrongColumns, match="column type is there twice"):
        read(database_url, twice, category="a")


def test_messages_are_found_by_an_attribute(school: Store, database_url: str) -> None:
    table = read(database_url, attributes='{"course_name": "Algebra"}')

    assert table.column("type").to_pylist() == ["course.created", "user.joined_course"]
    assert positions(table) == [1, 3]


def test_attributes_and_types_are_found_together(school: Store, database_url: str) -> None:
    wanted = '{"course_name": ["Algebra", "Botany"], "user_id": "joe"}'

    joined = read(database_url, attributes=wanted, types="user.joined_course")

    assert positions(joined) == [3, 4]
    assert positions(read(database_url, attributes=wanted)) == [1, 2, 3, 4]
    assert positions(read(database_url, attributes=wanted, after="2", until="3")) == [3]


def test_an_attribute_that_no_type_declares_is_an_error(school: Store, database_url: str) -> None:
    with pytest.raises(UndeclaredType, match="colour"):
        read(database_url, attributes='{"colour": "red"}')


def test_an_attribute_that_is_still_being_indexed_is_an_error(
    store: Store, database_url: str
) -> None:
    store.append([Message("course.created", {"course_name": "Algebra"})])
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("select penstock.declare_type('course.created', '{course_name}')")

    with pytest.raises(IndexingUnfinished):
        read(database_url, attributes='{"course_name": "Algebra"}')


def test_a_message_that_is_not_committed_hides_itself_and_all_later_ones(
    store: Store, database_url: str
) -> None:
    store.write_message("account-1", "Seen")
    with psycopg.connect(database_url) as late:
        late.execute(
            "select message_store.write_message(gen_random_uuid()::text, 'a-1', 'T', '{}')"
        )
        store.write_message("account-1", "Seen")

        assert positions(read(database_url, category="$all")) == [1]
        assert positions(read(database_url, category="account")) == [1]
        assert positions(read(database_url, stream="account-1")) == [1, 3]

    assert positions(read(database_url, category="$all")) == [1, 2, 3]


@pytest.mark.parametrize(
    "target", [{"category": "account"}, {"attributes": '{"course_name": "Algebra"}'}]
)
def test_nor_is_it_passed_by_who_says_how_far_to_read(
    store: Store, database_url: str, target: dict[str, str]
) -> None:
    store.declare(CourseCreated)
    store.write_message("account-1", "course.created", {"course_name": "Algebra"})
    with store.transaction() as late:
        late.write_message("a-1", "T")
        store.write_message("account-1", "course.created", {"course_name": "Algebra"})

        assert positions(read(database_url, None, until="9", **target)) == [1]


def test_what_is_written_after_the_plan_is_not_read(store: Store, database_url: str) -> None:
    store.write_message("account-1", "Seen")
    reader = reader_of(database_url, category="account")

    [part] = reader.partitions()
    store.write_message("account-1", "Seen")
    [batch] = reader.read(part)

    assert batch.num_rows == 1
