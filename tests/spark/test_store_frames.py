"""The messages of a store as frames, without naming the format or the address."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock
from penstock import (
    Call,
    Interceptor,
    JsonSerializer,
    Message,
    RecordedMessage,
    SerializerByType,
    Store,
)
from penstock.errors import UnsupportedBySpark, ValidationError
from penstock.spark import Frames
from tests.groups.school import CourseCreated
from tests.spark.frames import frame_of, in_order

AMOUNTS = "type string, global_position long, data struct<amount: int>"


@pytest.fixture
def frames(shared_store: Store, spark: SparkSession) -> Frames:
    return Frames(shared_store, spark)


def amounts(frame: DataFrame) -> list[int]:
    return [row["data"]["amount"] for row in in_order(frame)]


class TestReading:
    def test_a_category_has_the_columns_of_a_message(
        self, shared_store: Store, frames: Frames
    ) -> None:
        shared_store.write_message("plain-1", "Paid", {"amount": 5})

        [row] = frames.read.category("plain").collect()

        assert (row["stream_name"], row["type"], row["data"]) == (
            "plain-1",
            "Paid",
            '{"amount": 5}',
        )

    def test_a_schema_and_options_are_passed_on(self, shared_store: Store, frames: Frames) -> None:
        for amount in range(4):
            type = "Paid" if amount % 2 else "Refunded, in cash"
            shared_store.write_message("typed-1", type, {"amount": amount})
        first = min(one.global_position for one in shared_store.read_category("typed"))

        def read(**options: Any) -> list[int]:
            return amounts(frames.read.category("typed", AMOUNTS, **options))

        assert read() == [0, 1, 2, 3]
        assert read(types=["Refunded, in cash"]) == [0, 2]
        assert read(after=first, until=first + 1) == [1]
        assert read(after="latest") == []
        assert read(partitions=2, types=None) == [0, 1, 2, 3]

    def test_a_stream_is_read_by_its_positions(self, shared_store: Store, frames: Frames) -> None:
        for amount in range(3):
            shared_store.write_message("one-1", "Paid", {"amount": amount})
        shared_store.write_message("one-2", "Paid")

        found = frames.read.stream("one-1", after=0, columns=["position"])

        assert sorted(row["position"] for row in found.collect()) == [1, 2]
        assert found.columns == ["position"]

    def test_attributes_are_values_of_python(self, shared_store: Store, frames: Frames) -> None:
        names = ("Algebra", "Botany", "Chemistry")
        shared_store.append([CourseCreated(course_name=name) for name in names])

        found = frames.read.attributes(
            {"course_name": ["Algebra", "Botany"]}, "data struct<course_name: string>"
        )

        assert sorted(row["data"]["course_name"] for row in found.collect()) == [
            "Algebra",
            "Botany",
        ]

    def test_a_value_of_the_wrong_type_may_be_null(
        self, shared_store: Store, frames: Frames
    ) -> None:
        shared_store.write_message("wrong-1", "Paid", {"amount": "a lot"})

        found = frames.read.category("wrong", AMOUNTS, on_wrong_type="null")

        assert amounts(found) == [None]

    def test_an_option_is_refused_before_spark_is_asked(self, frames: Frames) -> None:
        with pytest.raises(ValidationError, match="category"):
            frames.read.category("order-1")
        with pytest.raises(ValidationError, match="partitions must be a whole number from 1"):
            frames.read.category("order", partitions=0)
        with pytest.raises(ValidationError, match="option must be one of"):
            frames.read.category("order", limit=3)  # type: ignore[call-arg]

    def test_a_thread_needs_no_session_of_its_own(
        self, shared_store: Store, frames: Frames
    ) -> None:
        shared_store.write_message("thread-1", "Paid")

        with ThreadPoolExecutor(1) as thread:
            count = thread.submit(lambda: frames.read.category("thread").count()).result()

        assert count == 1


class TestWriting:
    def test_a_frame_is_written_once_for_a_delivery(
        self, spark: SparkSession, shared_store: Store, frames: Frames
    ) -> None:
        rows = [("sold-1", "Sold", '{"n": 2}', 2), ("sold-1", "Sold", '{"n": 1}', 1)]
        frame = frame_of(spark, "stream_name string, type string, data string, line int", *rows)

        for _ in range(2):
            frames.write(frame, delivery="sold", order_by="line")

        assert [one.data["n"] for one in shared_store.read_stream("sold-1")] == [1, 2]

    def test_a_large_delivery_may_be_one_transaction_or_several(
        self, spark: SparkSession, shared_store: Store, frames: Frames
    ) -> None:
        frame = spark.range(5).selectExpr(
            "'bulk-1' as stream_name", "'Counted' as type", "struct(id) as data"
        )

        frames.write(frame, delivery="sliced", rows_per_transaction=2)
        frames.write(frame, delivery="whole", atomic=True)

        assert shared_store.stream_version("bulk-1") == 9

    def test_an_option_is_refused_before_spark_is_asked(
        self, spark: SparkSession, frames: Frames
    ) -> None:
        frame = frame_of(spark, "type string, data string", ("Sold", "{}"))

        with pytest.raises(ValidationError, match="rowsPerTransaction"):
            frames.write(frame, rows_per_transaction=5)


def test_a_stream_goes_from_log_to_log(shared_store: Store, frames: Frames, tmp_path: Path) -> None:
    for amount in (1, 50, 2, 60):
        shared_store.write_message("till-1", "Paid", {"amount": amount})
    paid = frames.read_stream.category("till", AMOUNTS, types=["Paid"], max_rows_per_batch=3)
    large = paid.where("data.amount > 10").selectExpr(
        "'large-1' as stream_name", "'Noticed' as type", "data"
    )

    query = frames.write_stream(large).trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path)).start().awaitTermination()

    assert paid.isStreaming
    assert [one.data["amount"] for one in shared_store.read_stream("large-1")] == [50, 60]


class Masking(Interceptor):
    def on_read(self, message: RecordedMessage) -> RecordedMessage:
        return message


class Stamping(Interceptor):
    def on_write(self, stream_name: str, message: Message) -> Message:
        return message


class Watching(Interceptor):
    @contextmanager
    def around(self, call: Call) -> Iterator[None]:
        yield


class Encrypting(JsonSerializer):
    """Stands for any serializer that is not the default one."""


class TestWhatSparkCannotApply:
    @pytest.mark.parametrize(
        ("options", "named"),
        [
            ({"serializer": Encrypting()}, "serializer Encrypting"),
            ({"serializer": SerializerByType({})}, "serializer SerializerByType"),
            ({"interceptors": [Watching(), Masking()]}, "interceptor Masking.on_read"),
        ],
        ids=["serializer", "by type", "interceptor"],
    )
    def test_is_refused_when_read(
        self, spark: SparkSession, shared_url: str, options: dict[str, Any], named: str
    ) -> None:
        with penstock.connect(shared_url, **options) as store:
            frames = Frames(store, spark)

            with pytest.raises(UnsupportedBySpark, match=named):
                frames.read.category("order")
            with pytest.raises(UnsupportedBySpark, match=named):
                frames.read_stream.category("order")

    @pytest.mark.parametrize(
        ("options", "named"),
        [
            ({"serializer": Encrypting()}, "serializer Encrypting"),
            ({"interceptors": [Stamping()]}, "interceptor Stamping.on_write"),
        ],
        ids=["serializer", "interceptor"],
    )
    def test_is_refused_when_written(
        self, spark: SparkSession, shared_url: str, options: dict[str, Any], named: str
    ) -> None:
        frame = frame_of(spark, "type string, data string", ("Sold", "{}"))

        with penstock.connect(shared_url, **options) as store:
            with pytest.raises(UnsupportedBySpark, match=named):
                Frames(store, spark).write(frame)
            with pytest.raises(UnsupportedBySpark, match=named):
                Frames(store, spark).write_stream(frame)

    def test_is_no_obstacle_in_the_other_direction_nor_where_it_only_watches(
        self, spark: SparkSession, shared_url: str
    ) -> None:
        frame = frame_of(spark, "stream_name string, type string, data string", ("ok-1", "T", "{}"))

        with penstock.connect(shared_url, interceptors=[Watching(), Masking()]) as store:
            Frames(store, spark).write(frame)
        with penstock.connect(shared_url, interceptors=[Watching(), Stamping()]) as store:
            assert Frames(store, spark).read.category("ok").count() == 1

    def test_a_default_serializer_may_have_a_function_for_python_values(
        self, spark: SparkSession, shared_url: str
    ) -> None:
        with penstock.connect(shared_url, serializer=JsonSerializer(repr)) as store:
            assert Frames(store, spark).read.category("nothing").count() == 0


async def test_an_async_store_has_frames_too(spark: SparkSession, shared_url: str) -> None:
    async with await penstock.connect_async(shared_url) as store:
        assert Frames(store, spark).read.category("nothing").count() == 0


def test_a_transaction_has_no_frames(spark: SparkSession, shared_store: Store) -> None:
    with (
        shared_store.transaction() as transaction,
        pytest.raises(ValidationError, match="a Store or an AsyncStore"),
    ):
        Frames(transaction, spark)  # type: ignore[arg-type]
