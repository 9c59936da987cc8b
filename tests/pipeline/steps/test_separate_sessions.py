"""Processors do not see each other's temporary views, functions and settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Barrier
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.pipeline import Pipeline
from tests.pipeline.steps.running import Harness, numbered, renumbered

SECONDS = 120  # for two processors to meet


def use_view(number: DataFrame, spark: SparkSession, meet: Barrier, name: str) -> DataFrame:
    numbered(number).createOrReplaceTempView("batch")
    meet.wait(SECONDS)
    return renumbered(spark.table("batch"))


def use_function(number: DataFrame, spark: SparkSession, meet: Barrier, name: str) -> DataFrame:
    factor = {"a": 1, "b": 1_000}[name]
    spark.udf.register("scaled", lambda n: n * factor, "long")
    meet.wait(SECONDS)
    return renumbered(numbered(number), "scaled(n) div scaled(1)").where(f"scaled(1) = {factor}")


def use_setting(number: DataFrame, spark: SparkSession, meet: Barrier, name: str) -> DataFrame:
    zone = {"a": "Asia/Tokyo", "b": "America/Lima"}[name]
    spark.conf.set("spark.sql.session.timeZone", zone)
    meet.wait(SECONDS)
    return renumbered(numbered(number)).where(f"current_timezone() = '{zone}'")


@pytest.mark.parametrize("use", [use_view, use_function, use_setting])
def test_what_a_function_sets_is_its_processor_s_own(
    harness: Harness, use: Callable[..., DataFrame]
) -> None:
    pipe, meet = Pipeline("shop"), Barrier(2)
    zone = harness.spark.conf.get("spark.sql.session.timeZone")
    for name in ("a", "b"):
        add_stream(pipe, name, lambda *given, name=name: use(*given, meet, name))
    harness.write("a", 1, 2)
    harness.write("b", 3)

    summary = harness.run(pipe)

    assert summary.succeeded, summary.errors
    assert sorted(harness.numbers("a_out")) == [1, 2]
    assert harness.numbers("b_out") == [3]
    assert not harness.spark.catalog.tableExists("batch")
    assert harness.spark.conf.get("spark.sql.session.timeZone") == zone


@pytest.fixture
def prepared(spark: SparkSession) -> Iterator[SparkSession]:
    """A session with a view, a function and a setting of the user's."""
    spark.createDataFrame([(1, "one"), (2, "two")], "n long, word string").createTempView("words")
    spark.udf.register("twice", lambda n: 2 * n, "long")
    before = str(spark.conf.get("spark.sql.session.timeZone"))
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", before)
    spark.catalog.dropTempView("words")


def test_what_the_user_has_set_and_registered_before_is_there(
    harness: Harness, prepared: SparkSession
) -> None:
    pipe, seen = Pipeline("shop"), list[Any]()
    outside = prepared.createDataFrame([(1, "uno"), (2, "dos")], "n long, other string")

    def join(a: DataFrame, spark: SparkSession) -> DataFrame:
        seen.append(spark.conf.get("spark.sql.session.timeZone"))
        joined = numbered(a).join(spark.table("words"), "n").join(outside, "n")
        seen.extend(sorted((row.word, row.other) for row in joined.collect()))
        return renumbered(joined, "twice(n)")

    add_stream(pipe, "a", join)
    harness.write("a", 1, 2)

    summary = harness.run(pipe)

    assert summary.succeeded, summary.errors
    assert seen == ["Asia/Tokyo", ("one", "uno"), ("two", "dos")]
    assert sorted(harness.numbers("a_out")) == [2, 4]


def add_stream(
    pipe: Pipeline, queue: str, use: Callable[[DataFrame, SparkSession], DataFrame]
) -> None:
    pipe.schema(queue)

    @pipe.stream(alts=queue, output=f"{queue}_out", name=queue)
    def stream(messages: DataFrame, spark: SparkSession) -> DataFrame:
        return use(messages, spark)
