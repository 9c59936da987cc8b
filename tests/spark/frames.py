"""Load and save frames in the format `penstock`."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession


def load(spark: SparkSession, url: str, schema: str | None = None, **options: str) -> DataFrame:
    """Return a frame of messages."""
    reader = spark.read.format("penstock").options(url=url, **options)
    return (reader.schema(schema) if schema else reader).load()


def save(frame: DataFrame, url: str, mode: str | None = "append", **options: str) -> None:
    """Write a frame of messages."""
    writer = frame.write.format("penstock").options(url=url, **options)
    (writer.mode(mode) if mode else writer).save()


def frame_of(spark: SparkSession, schema: str, *rows: tuple[Any, ...]) -> DataFrame:
    """Return a small frame."""
    return spark.createDataFrame(list(rows), schema)


def in_order(frame: DataFrame) -> list[Row]:
    """Return the rows of a frame in the order of the log."""
    return frame.orderBy("global_position").collect()


def last_line(error: BaseException) -> str:
    """Return the line of Spark's error text that says what happened."""
    lines = [line for line in str(error).splitlines() if not line.startswith(" SQLSTATE")]
    return lines[-1]
