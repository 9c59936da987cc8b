"""Spark's own frames and streams on a log of which a part is archived."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock import Store
from penstock.log.retention import Keep
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
