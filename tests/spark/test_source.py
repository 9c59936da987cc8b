"""`spark.read.format("penstock")`: what a PySpark user gets."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal

import psycopg
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from penstock import Store
from tests.groups.school import CourseCreated
from tests.spark.frames import in_order, last_line, load

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
MANY = """
insert into message_store.messages (stream_name, type, position, data)
select 'many-' || n % 10, 'Counted', n / 10, jsonb_build_object('n', n)
from generate_series(0, 29999) n
"""
EVERYTHING = {
    "whole": 12,
    "price": 1.25,
    "day": "2026-01-31",
    "at": "2026-01-31T10:00:00+02:00",
    "raw": "AAE=",
    "yes": True,
    "owner": {"name": "Ann", "age": None},
    "tags": ["a", "b"],
    "lines": [{"sku": "x", "count": 2}],
    "stock": {"x": 3},
}
TYPED = """
global_position bigint,
data struct<whole: int, price: decimal(6,2), day: date, at: timestamp, raw: binary, yes: boolean,
            owner: struct<name: string, age: int>, tags: array<string>,
            lines: array<struct<sku: string, count: int>>, stock: map<string, int>,
            missing: int>
"""


@pytest.fixture(params=["true", "false"], ids=["pushing", "not pushing"])
def pushing(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[bool]:
    """Whether Spark is set to push filters into a source of Python's: it is not by itself."""
    before = spark.conf.get(PUSHDOWN)
    spark.conf.set(PUSHDOWN, request.param)
    yield request.param == "true"
    spark.conf.set(PUSHDOWN, str(before))


def test_a_frame_has_what_the_store_reads(
    spark: SparkSession, store: Store, database_url: str
) -> None:
    for number in range(3):
        store.write_message(f"account-{number}", "Opened", {"n": number}, metadata={"by": "me"})
    store.write_message("other-1", "Seen")

    rows = in_order(load(spark, database_url, category="account"))

    messages = store.get_category_messages("account")
    assert [
        (
            row.id,
            row.stream_name,
            row.type,
            row.position,
            row.global_position,
            row.data,
            row.metadata,
        )
        for row in rows
    ] == [
        (str(m.id), m.stream_name, "Opened", 0, m.global_position, f'{{"n": {n}}}', '{"by": "me"}')
        for n, m in enumerate(messages)
    ]
    assert [row.time.replace(tzinfo=UTC) for row in rows] == [m.time for m in messages]


def test_data_is_typed_by_a_schema(spark: SparkSession, store: Store, database_url: str) -> None:
    store.write_message("thing-1", "Seen", EVERYTHING)
    store.write_message("thing-1", "Seen", {})

    full, empty = in_order(load(spark, database_url, TYPED, category="thing"))

    assert full.data.asDict(recursive=True) == {
        "whole": 12,
        "price": Decimal("1.25"),
        "day": date(2026, 1, 31),
        "at": datetime(2026, 1, 31, 8),  # noqa: DTZ001
        "raw": bytearray(b"\x00\x01"),
        "yes": True,
        "owner": {"name": "Ann", "age": None},
        "tags": ["a", "b"],
        "lines": [{"sku": "x", "count": 2}],
        "stock": {"x": 3},
        "missing": None,
    }
    assert set(empty.data) == {None}


def test_times_are_instants_in_a_session_of_any_time_zone(
    spark: SparkSession, store: Store, database_url: str
) -> None:
    store.write_message("thing-1", "Seen", {"at": "2026-01-31T10:00:00+02:00"})
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        frame = load(spark, database_url, "data struct<at: timestamp>", category="thing")
        [row] = frame.selectExpr("string(data.at) as at").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")

    assert row.at == "2026-01-31 17:00:00"


def test_a_value_of_the_wrong_type_is_named_or_null(
    spark: SparkSession, store: Store, database_url: str
) -> None:
    store.write_message("thing-1", "Seen", {"whole": "a dozen"})
    wrong = "data struct<whole: int>"

    with pytest.raises(PySparkException) as raised:
        load(spark, database_url, wrong, category="thing").collect()

    assert last_line(raised.value) == (
        "[PENSTOCK.WrongValue] data.whole of the message at 1 is 'a dozen', which does not read as "
        'int; spark.read with option onWrongType="null" reads it as null'
    )
    nulls = load(spark, database_url, wrong, category="thing", onWrongType="null")
    assert nulls.collect() == [Row(data=Row(whole=None))]


def test_a_loaded_frame_stays_as_it_was_at_its_first_action(
    spark: SparkSession, store: Store, database_url: str
) -> None:
    store.write_message("account-1", "Opened")
    frame = load(spark, database_url, category="account")

    before = frame.count()
    store.write_message("account-1", "Closed")

    assert before == 1
    assert frame.where("type like '%ed'").count() == 1
    assert load(spark, database_url, category="account").count() == 2


def test_a_frame_can_be_filtered_in_several_ways(
    spark: SparkSession, store: Store, database_url: str, pushing: bool
) -> None:
    """Spark 4.3.0 would mix them up, had the reader taken the filters."""
    for type in ("Opened", "Closed", "Opened", "Lost"):
        store.write_message("account-1", type)
    frame = load(spark, database_url, category="account")

    opened = frame.where("type = 'Opened' and time > timestamp'2020-01-01 00:00'")
    late = frame.where("global_position > 3")

    assert opened.count() == 2
    assert frame.count() == 4
    assert [row.global_position for row in in_order(opened.union(late))] == [1, 3, 4]


def test_filters_that_only_spark_can_apply_are_applied(
    spark: SparkSession, store: Store, database_url: str, pushing: bool
) -> None:
    for type in ("Opened", "Closed"):
        store.write_message("account-1", type, {"type": type})

    frame = load(spark, database_url, "type string, data struct<type: string>", category="account")
    found = frame.where("type > 'D' and data.type = 'Opened' and type not in ('x')").collect()

    assert [row.type for row in found] == ["Opened"]


def test_parts_are_tasks(spark: SparkSession, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(MANY.encode())

    frame = load(spark, database_url, category="many", partitions="3")

    assert frame.rdd.getNumPartitions() == 3
    [counted] = frame.selectExpr("count(*)", "count(distinct id)").collect()
    assert tuple(counted) == (30_000, 30_000)


def test_one_stream_attributes_and_types_are_targets_too(
    spark: SparkSession, store: Store, database_url: str
) -> None:
    store.append([CourseCreated(course_name="Algebra"), CourseCreated(course_name="Botany")])
    store.write_message("account-1", "Opened")

    course = load(spark, database_url, attributes='{"course_name": "Botany"}')
    stream = load(spark, database_url, stream="account-1", columns="type, position")
    opened = load(spark, database_url, category="$all", types="Opened", columns="type")

    assert [row.global_position for row in course.collect()] == [2]
    assert stream.collect() == [Row(type="Opened", position=0)]
    assert opened.collect() == [Row(type="Opened")]
