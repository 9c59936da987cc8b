"""`frame.write.format("penstock")`: all of a frame becomes messages, or nothing of it."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import psycopg
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock import Store
from tests.groups.school import CourseCreated
from tests.spark.frames import frame_of, last_line, load, save

TEXT = "stream_name string, type string, data string"


def written(store: Store, stream_name: str) -> list[Any]:
    """Return the data of a stream's messages."""
    return [message.data for message in store.get_stream_messages(stream_name)]


def staged(url: str) -> int:
    """Return how many rows lie in the staging."""
    with psycopg.connect(url) as connection:
        row = connection.execute("select count(*) from penstock.staged").fetchone()
    return int(row[0]) if row else -1


def test_json_text_and_structs_become_data(
    spark: SparkSession, store: Store, database_url: str
) -> None:
    id = str(uuid4())
    texts = frame_of(
        spark, f"{TEXT}, metadata string, id string", ("a-1", "T", '{"n": 1}', "{}", id)
    )
    structs = texts.selectExpr(
        "'b-1' as stream_name",
        "type",
        "named_struct('n', 2, 'deep', named_struct('list', array(1.5D), 'nothing', null)) as data",
        "map('by', 'me') as metadata",
    )

    save(texts, database_url)
    save(structs, database_url)

    [first, second] = store.get_category_messages("$all")
    assert (str(first.id), first.data, first.metadata) == (id, {"n": 1}, {})
    assert (second.data, second.metadata) == ({"n": 2, "deep": {"list": [1.5]}}, {"by": "me"})
    assert staged(database_url) == 0


def test_the_tasks_of_a_write_are_ordered_by_a_column(
    spark: SparkSession, store: Store, database_url: str
) -> None:
    numbers = spark.range(0, 100, 1, 4).selectExpr(
        "'a-1' as stream_name", "'T' as type", "to_json(named_struct('n', id)) as data",
        "99 - id as ordinal", "cast(100 + id as string) as label",
        "timestamp_seconds(1000 - id) as at",
    )  # fmt: skip

    save(numbers.drop("label", "at"), database_url)
    save(numbers.drop("ordinal", "at"), database_url, order_by="label")
    save(numbers.drop("ordinal", "label"), database_url, orderBy="at")

    found = [data["n"] for data in written(store, "a-1")]
    assert found == [*reversed(range(100)), *range(100), *reversed(range(100))]


def test_what_was_written_without_streams_is_removed_by_retention(
    spark: SparkSession, store: Store, database_url: str
) -> None:
    save(spark.range(0, 100, 1, 4).selectExpr("'counted' as type", "'{}' as data"), database_url)

    retained = store.admin.retain("counted", keep_count=10)

    assert retained.removed == 90
    assert len(store.get_category_messages("counted")) == 10


def test_a_message_without_a_stream_gets_one_of_its_own_and_is_indexed(
    spark: SparkSession, store: Store, database_url: str
) -> None:
    store.declare(CourseCreated)
    courses = frame_of(
        spark, "type string, data struct<course_name: string>", ("course.created", ("Algebra",))
    )

    save(courses, database_url)

    found = load(spark, database_url, attributes='{"course_name": "Algebra"}').collect()
    assert [row.stream_name for row in found] == [f"course.created-{found[0].id}"]


def test_a_delivery_is_written_once_and_a_write_without_one_each_time(
    spark: SparkSession, store: Store, database_url: str
) -> None:
    one = frame_of(spark, TEXT, ("a-1", "T", "{}"))

    for _ in range(2):
        save(one, database_url, delivery="2026-01-01")
    assert len(written(store, "a-1")) == 1

    for _ in range(2):
        save(one, database_url)
    assert len(written(store, "a-1")) == 3


def test_an_empty_frame_writes_nothing(
    spark: SparkSession, store: Store, database_url: str
) -> None:
    save(frame_of(spark, TEXT, ("a-1", "T", "{}")).limit(0), database_url, delivery="d")

    assert store.get_category_messages("$all") == []


def test_a_wrong_version_stops_the_whole_write_and_names_the_stream(
    spark: SparkSession, store: Store, database_url: str
) -> None:
    store.write_message("b-1", "Before")
    schema = f"{TEXT}, expected_version long"
    rows = frame_of(spark, schema, ("a-1", "T", "{}", -1), ("b-1", "T", "{}", -1))

    with pytest.raises(PySparkException) as raised:
        save(rows, database_url)

    assert last_line(raised.value) == (
        "[PENSTOCK.WrongExpectedVersion] stream b-1 is at version 0, not -1"
    )
    assert len(store.get_category_messages("$all")) == 1
    save(rows.where("stream_name = 'a-1'"), database_url)
    assert len(written(store, "a-1")) == 1


def test_an_id_that_exists_stops_the_whole_write_and_is_named(
    spark: SparkSession, store: Store, database_url: str
) -> None:
    id = str(uuid4())
    store.write_message("b-1", "Before", id=id)
    rows = frame_of(spark, f"{TEXT}, id string", ("a-1", "T", "{}", None), ("b-1", "T", "{}", id))

    with pytest.raises(PySparkException) as raised:
        save(rows, database_url)

    assert "DuplicateMessageId" in last_line(raised.value)
    assert id in last_line(raised.value)
    assert len(store.get_category_messages("$all")) == 1


def test_what_is_read_can_be_written_again(
    spark: SparkSession, store: Store, database_url: str
) -> None:
    store.write_message("a-1", "T", {"n": 1}, metadata={"by": "me"})
    frame = load(spark, database_url, category="a")

    save(
        frame.selectExpr("'copy-1' as stream_name", "type", "data", "metadata", "time"),
        database_url,
    )

    [copy] = store.get_stream_messages("copy-1")
    assert (copy.data, copy.metadata) == ({"n": 1}, {"by": "me"})
