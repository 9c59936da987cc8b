"""Each mode of a table, written by the driver and by executors, against a recomputation."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pyspark.sql import DataFrame

from penstock.pipeline import Delivery, Pipeline
from tests.pipeline.lake.lake_harness import LakeHarness, fields, ordered, sales

Rows = list[dict[str, Any]]


def messages(count: int = 30) -> Rows:
    chosen = random.Random(7)
    return [
        {
            "n": chosen.randrange(8),
            "part": chosen.choice(["a", "b", None]),
            "v": chosen.choice(["x", "y", None]),
        }
        for _ in range(count)
    ]


def pipeline(mode: str, table: str = "shop.sale") -> Pipeline:
    pipe = sales()
    key = "n" if mode == "upsert" else None

    @pipe.table(table, inputs="sale", partition_by="part", key=key, mode=mode, limit=10)
    def keep(sale: DataFrame) -> DataFrame:
        return fields(sale)

    return pipe


def expected(rows: Rows, mode: str, step: int = 10) -> Rows:
    """Return what a table must hold after steps of so many messages, without any of our code."""
    kept: dict[Any, Rows] = {}
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        if mode == "append":
            kept[start] = part
        elif mode == "overwrite":
            kept |= {p: [r for r in part if r["part"] == p] for p in {r["part"] for r in part}}
        else:
            kept |= {row["n"]: [row] for row in part}
    found = [row for group in kept.values() for row in group]
    if mode == "upsert":  # of the last one of each key
        found = [row for row in found if row["part"] is not None or row["v"] is not None]
    return ordered(found)


@pytest.mark.parametrize("mode", ["append", "upsert", "overwrite"])
def test_a_table_equals_a_recomputation(lake: LakeHarness, shape: str, mode: str) -> None:
    lake.send(*messages())

    reports = lake.steps(pipeline(mode))

    assert [one.messages_in for one in reports] == [10, 10, 10]
    assert lake.lake_rows("shop.sale") == expected(lake.sent(), mode)


def test_a_snapshot_names_its_step(lake: LakeHarness, shape: str) -> None:
    lake.send(*messages(3))
    pipe = pipeline("append")

    (report,) = lake.steps(pipe)

    (snapshot,) = lake.table("shop.sale").snapshots()
    assert snapshot.summary is not None
    named = {key: snapshot.summary[key] for key in ("pipeline", "processor", "delivery")}
    (attempt,) = [one for one in lake.records(pipe) if one.type != "Snapshot"]
    delivery = attempt.data["hash"]
    assert named == {"pipeline": "shop", "processor": "keep", "delivery": delivery}
    assert report.messages_out == 3


def test_a_step_without_rows_moves_on(lake: LakeHarness, shape: str) -> None:
    pipe = sales()

    @pipe.table("shop.sale", inputs="sale", key="n")
    def keep(sale: DataFrame) -> DataFrame:
        return fields(sale).where("n > 5")

    lake.send({"n": 1})
    lake.steps(pipe)
    lake.send({"n": 6, "v": "x"})
    lake.steps(pipe)

    assert [row["n"] for row in lake.lake_rows("shop.sale")] == [6]
    assert lake.status(pipe).tailers[0].lag == 0


def test_a_function_that_returns_nothing_moves_on(lake: LakeHarness) -> None:
    pipe = sales()

    @pipe.table("shop.sale", inputs="sale")
    def keep(sale: DataFrame) -> None:
        return None

    lake.send({"n": 1})

    (report,) = lake.steps(pipe)

    assert (report.messages_in, report.messages_out) == (1, 0)
    assert not lake.catalog.namespace_exists("shop")


def test_a_step_of_deletions_only(lake: LakeHarness, shape: str) -> None:
    pipe = sales()

    @pipe.table("shop.sale", inputs="sale", key="n")
    def keep(sale: DataFrame) -> DataFrame:
        return fields(sale)

    lake.send({"n": 1, "v": "x"}, {"n": 2, "v": "y"})
    lake.steps(pipe)
    lake.send({"n": 1}, {"n": 3})

    lake.steps(pipe)

    assert [row["n"] for row in lake.lake_rows("shop.sale")] == [2]


def test_the_columns_of_a_later_frame(lake: LakeHarness, shape: str) -> None:
    def keeping(*columns: str) -> Pipeline:
        pipe = sales()

        @pipe.table("shop.sale", inputs="sale")
        def keep(sale: DataFrame) -> DataFrame:
            return fields(sale).selectExpr(*columns)

        return pipe

    lake.send({"n": 1, "v": "x"})
    lake.steps(keeping("v", "cast(n as int) as n"))
    lake.send({"n": 2, "v": "y"})

    lake.steps(keeping("n", "struct(v as a, array(n) as b) as new"))

    assert lake.lake_rows("shop.sale") == ordered(
        [
            {"v": "x", "n": 1, "new": None},
            {"v": None, "n": 2, "new": {"a": "y", "b": [2]}},
        ]
    )
    assert str(lake.table("shop.sale").schema().find_type("n")) == "long"


def test_values_of_spark_types(lake: LakeHarness, shape: str) -> None:
    columns = (
        "n", "cast(1.5 as decimal(10, 2)) as dec", "date'1969-07-20' as day", "X'00ff' as bin",
        "timestamp'2026-01-01 12:00:00Z' as at", "timestamp_ntz'2026-01-01 12:00:00' as local",
        "map('k', array(1, null)) as nested", "cast(null as array<struct<a:int>>) as nothing",
        "cast(7 as tinyint) as tiny",
    )  # fmt: skip
    pipe = sales()

    @pipe.table("shop.sale", inputs="sale", partition_by=["day(at)", "bucket(4, n)"])
    def keep(sale: DataFrame) -> DataFrame:
        return fields(sale).selectExpr(*columns)

    lake.send(*({"n": number} for number in range(4)))
    lake.spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        lake.steps(pipe)
    finally:
        lake.spark.conf.set("spark.sql.session.timeZone", "UTC")

    # Spark reads the files by itself
    paths = sorted(lake.files())
    found = lake.spark.read.parquet(*paths).orderBy("n").selectExpr("to_json(struct(*)) as j")
    assert [row.j for row in found.collect()] == [
        f'{{"n":{number},"dec":1.50,"day":"1969-07-20","bin":"AP8=",'
        '"at":"2026-01-01T12:00:00.000Z","local":"2026-01-01T12:00:00.000",'
        '"nested":{"k":[1,null]},"tiny":7}'
        for number in range(4)
    ]
    assert lake.table("shop.sale").scan(row_filter="at >= '2026-01-01T12:00:00+00:00'").count() == 4


def test_what_a_function_upserts_is_committed_with_its_rows(lake: LakeHarness) -> None:
    pipe = sales()

    @pipe.table("shop.sale", inputs="sale")
    def keep(sale: DataFrame, delivery: Delivery) -> DataFrame:
        rows = fields(sale)
        sums = rows.groupBy().sum("n").selectExpr("1 as k", "`sum(n)` as n")
        delivery.upsert(sums, "totals", key="k", add=["n"])
        return rows

    lake.send({"n": 1}, {"n": 2})

    lake.steps(pipe)

    assert lake.rows("select n from totals") == [(3,)]
    assert len(lake.lake_rows("shop.sale")) == 2


def test_processors_that_create_tables_of_one_namespace_at_once(lake: LakeHarness) -> None:
    pipe = sales()
    for number in range(4):

        @pipe.table(f"shop.sale_{number}", inputs="sale", name=f"keep_{number}")
        def keep(sale: DataFrame) -> DataFrame:
            return fields(sale)

    lake.send({"n": 1, "v": "x"}, {"n": 2, "v": "y"})

    summary = lake.run(pipe)

    assert summary.errors == {}
    for number in range(4):
        assert [row["n"] for row in lake.lake_rows(f"shop.sale_{number}")] == [1, 2]
