"""Spark's own frames and streams on a log of which a part is archived."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import penstock
from penstock import Store
from penstock.errors import ArchiveUnreachable
from penstock.lake import catalog
from penstock.lake.compaction import compact
from penstock.log.retention import Keep
from penstock.spark import Frames, history
from tests.log.archiving import archived, store_with_warehouse
from tests.spark.frames import in_order, last_line, load

COUNT = 40
TYPED = "global_position long, data struct<n: long, text: string>"


@pytest.fixture
def store(database_url: str, tmp_path: Path) -> Iterator[Store]:
    with store_with_warehouse(database_url, tmp_path / "lake") as store:
        (tmp_path / "lake").mkdir()
        for number in range(COUNT):
            store.write_message(f"order-{number % 4}", "Placed", {"n": number, "text": "ü"})
        yield store


def test_frames_are_the_same_before_and_after(
    spark: SparkSession, store: Store, database_url: str, tmp_path: Path
) -> None:
    frames = [
        load(spark, database_url, category="order"),
        load(spark, database_url, TYPED, category="order", after="3"),
        load(spark, database_url, stream="order-1"),
    ]
    before = [in_order(one) for one in frames]
    archived(store, "order", Keep(count=10))

    after = [in_order(one) for one in frames]

    assert after == before
    shutil.move(tmp_path / "lake", tmp_path / "away")
    with pytest.raises(PySparkException) as raised:
        load(spark, database_url, category="order").collect()
    assert "ArchiveUnreachable" in str(raised.value), last_line(raised.value)
    assert load(spark, database_url, category="order", after="30").count() == 10


def test_a_stream_from_the_beginning_sees_every_message_once_in_order(
    spark: SparkSession, store: Store, database_url: str, tmp_path: Path
) -> None:
    archived(store, "order", Keep(count=30))
    seen: list[int] = []

    def see(batch: DataFrame, number: int) -> None:
        seen.extend(row.global_position for row in in_order(batch))
        archived(store, "order", Keep(count=max(1, 25 - 8 * number)))

    read = spark.readStream.format("penstock").schema("global_position long")
    read.options(url=database_url, category="order", maxRowsPerBatch=15).load().writeStream.option(
        "checkpointLocation", str(tmp_path / "checkpoint")
    ).foreachBatch(see).trigger(availableNow=True).start().awaitTermination()

    assert seen == list(range(1, COUNT + 1))


class TestSparkReadsTheFilesItself:
    """`Frames`: Spark's own Parquet reader for what is archived, our source for the rest."""

    READS: tuple[dict[str, Any], ...] = (
        {},
        {"types": ["Paid"], "columns": ["type", "time"]},
        {"after": 3, "until": 27, "columns": ["id", "metadata"]},
        {"after": 35},
        {"after": "latest"},
        {"until": 2},
    )

    @pytest.fixture
    def store(self, store: Store) -> Store:
        for number in range(4):
            store.write_message(f"order-{number}", "Paid", metadata={"by": "me"})
        return store

    def frames(self, spark: SparkSession, store: Store) -> list[DataFrame]:
        read = Frames(store, spark).read
        return [
            *(read.category("order", **options) for options in self.READS),
            read.category("$all"),
            read.category("order", "time timestamp_ntz, data struct<n: long>"),
            read.stream("order-1"),
            read.stream("order-1", after=2, until=6, columns=["position", "data"]),
        ]

    def test_frames_are_the_same_before_and_after(self, spark: SparkSession, store: Store) -> None:
        before = [(one.schema, in_some_order(one)) for one in self.frames(spark, store)]
        archived(store, "order", Keep(count=10))

        frames = self.frames(spark, store)

        assert [(one.schema, in_some_order(one)) for one in frames] == before
        assert [reads_files(one) for one in frames] == [
            True, True, True, False, False, True, True, False, True, True
        ]  # fmt: skip

    def test_messages_that_are_archived_before_the_action_are_in_the_frame_once(
        self, spark: SparkSession, store: Store
    ) -> None:
        archived(store, "order", Keep(count=30))
        frames = [Frames(store, spark).read.category("order") for _ in range(2)]
        assert all(map(reads_files, frames))
        archived(store, "order", Keep(count=20), batch_size=5)

        after_a_run = in_order(frames[0])
        compact(catalog(store), "penstock.archive", small_files=2)
        archived(store, "order", Keep(count=10))

        expected = list(range(1, COUNT + 5))
        assert [row.global_position for row in after_a_run] == expected
        assert [row.global_position for row in in_order(frames[1])] == expected
        assert frames[0].where("type = 'Paid'").count() == 4

    def test_each_core_gets_several_tasks_whatever_the_session_is_set_to(
        self, spark: SparkSession, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        archived(store, "order", Keep(count=10))
        monkeypatch.setattr(history, "SMALLEST_TASK", 256)
        name = "spark.sql.files.openCostInBytes"
        before = spark.conf.get(name)

        frame = Frames(store, spark).read.category("order")

        assert frame.rdd.getNumPartitions() > 2 * spark.sparkContext.defaultParallelism
        assert frame.count() == COUNT + 4
        assert frame.sparkSession is spark
        assert spark.conf.get(name) == before

    def test_however_many_files_there_are_no_job_lists_them(
        self, spark: SparkSession, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for kept in (30, 20, 10):
            archived(store, "order", Keep(count=kept))
        name = "spark.sql.sources.parallelPartitionDiscovery.threshold"
        spark.conf.set(name, 1)
        try:
            jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(None)
            frame = Frames(store, spark).read.category("order")
            found = spark.sparkContext.statusTracker().getJobIdsForGroup(None)
        finally:
            spark.conf.unset(name)

        assert reads_files(frame)
        assert sorted(found) == sorted(jobs)

    @pytest.mark.parametrize(("folder", "is_plain"), [("a%20b", True), ("lake*", False)])
    def test_files_that_spark_would_take_for_a_pattern_are_read_by_the_source(
        self, spark: SparkSession, store: Store, tmp_path: Path, folder: str, is_plain: bool
    ) -> None:
        url, warehouse = store.settings.conninfo(), f"file://{tmp_path}/{folder}"
        with penstock.connect(url, warehouse=warehouse) as other:
            archived(other, "order")

            found = Frames(other, spark).read.category("order")

            assert reads_files(found) is is_plain
            assert found.count() == COUNT + 4

    def test_without_its_files_a_frame_fails_at_once(
        self, spark: SparkSession, store: Store, tmp_path: Path
    ) -> None:
        archived(store, "order", Keep(count=10))
        shutil.move(tmp_path / "lake", tmp_path / "away")

        with pytest.raises(ArchiveUnreachable):
            Frames(store, spark).read.category("order")

        assert Frames(store, spark).read.category("order", after=35).count() == COUNT + 4 - 35


def reads_files(frame: DataFrame) -> bool:
    plan = frame._jdf.queryExecution().executedPlan().toString()
    return "parquet" in plan.lower()


def in_some_order(frame: DataFrame) -> list[str]:
    return sorted(map(str, frame.collect()))
