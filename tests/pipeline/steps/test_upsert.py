"""Rows for a table of this database, in the transaction of the step: exactly once."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import StepFailed
from penstock.pipeline import Delivery
from penstock.pipeline.step import run_step
from tests.pipeline.steps.running import Harness, Stop, numbered, pipeline, stop


class TestUpsert:
    @pytest.mark.parametrize("when", ["before", "after"])
    def test_rows_are_there_exactly_once_whatever_was_run_again(
        self, harness: Harness, when: str
    ) -> None:
        pipe, calls = pipeline(), []

        @pipe.sink(inputs="number", limit=2)
        def total(number: DataFrame, delivery: Delivery) -> None:
            sums = numbered(number).groupBy().sum("n").selectExpr("'all' as name", "`sum(n)` as n")
            delivery.upsert(sums, "totals", key="name", add=["n"])
            calls.append(1)

        harness.write("number", *range(1, 7))
        before, after = (stop, None) if when == "before" else (None, stop)
        for _ in range(2):
            with pytest.raises(Stop):
                run_step(harness.context(pipe, before_commit=before, after_commit=after))
        harness.steps(pipe)

        assert harness.rows("select * from totals") == [("all", 21)]
        assert len(calls) == (5 if when == "before" else 3)

    def test_a_step_that_fails_when_it_commits_leaves_nothing(self, harness: Harness) -> None:
        pipe = pipeline()

        @pipe.sink(inputs="number")
        def keep(number: DataFrame, delivery: Delivery) -> None:
            delivery.upsert(numbered(number).select("n"), "kept", key="n")

        harness.write("number", 1)
        with pytest.raises(Stop):
            run_step(harness.context(pipe, before_commit=stop))

        assert harness.rows("select to_regclass('kept') is null") == [(True,)]
        harness.step(pipe)
        assert harness.rows("select n from kept") == [(1,)]

    def test_a_row_replaces_the_one_with_its_key_but_for_what_is_added(
        self, harness: Harness
    ) -> None:
        pipe = pipeline()

        @pipe.sink(inputs="number", limit=1)
        def keep(number: DataFrame, delivery: Delivery) -> None:
            rows = numbered(number).selectExpr("'a' as x", "'b' as y", "n as last", "n as total",
                                               "nullif(n, 1) as seldom")  # fmt: skip
            delivery.upsert(rows, "kept", key=["x", "y"], add=["total", "seldom"])

        harness.write("number", 1, 5, 3)
        harness.steps(pipe)

        assert harness.rows("select * from kept") == [("a", "b", 3, 9, 8)]

    def test_a_table_of_keys_alone_keeps_each_once(self, harness: Harness) -> None:
        pipe = pipeline()

        @pipe.sink(inputs="number", limit=2)
        def keep(number: DataFrame, delivery: Delivery) -> None:
            delivery.upsert(numbered(number).selectExpr("n % 3 as n").distinct(), "kept", key="n")

        harness.write("number", *range(6))
        harness.steps(pipe)

        assert sorted(harness.rows("select n from kept")) == [(0,), (1,), (2,)]

    def test_several_tables_change_together(self, harness: Harness) -> None:
        pipe, seen = pipeline(), []

        @pipe.sink(inputs="number")
        def keep(number: DataFrame, delivery: Delivery) -> None:
            delivery.upsert(numbered(number).select("n"), "one", key="n")
            delivery.upsert(numbered(number).selectExpr("2 * n as n"), "public.two", key="n")

        def look() -> None:
            seen.extend(harness.rows("select to_regclass('one'), to_regclass('two')"))

        harness.write("number", 1, 2)
        run_step(harness.context(pipe, before_commit=look))

        assert seen == [(None, None)]
        assert sorted(harness.rows("select n from one")) == [(1,), (2,)]
        assert sorted(harness.rows("select n from two")) == [(2,), (4,)]

    def test_each_type_of_spark_arrives_as_postgresql_has_it(
        self, harness: Harness, spark: SparkSession
    ) -> None:
        pipe = pipeline()
        schema = (
            "k string, flag boolean, small smallint, number double, amount decimal(10,2), day date,"
            " at timestamp, local timestamp_ntz, tags array<string>, facts struct<a: int, b: int>"
        )
        at = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
        local = at.replace(tzinfo=None)
        values: list[tuple[Any, ...]] = [
            (
                'q"',
                True,
                7,
                0.5,
                Decimal("12.30"),
                date(2026, 1, 2),
                at,
                local,
                ["x", 'y"'],
                (1, 2),
            ),
            ("", None, None, None, None, None, None, None, None, None),
        ]

        @pipe.sink(inputs="number")
        def keep(number: DataFrame, delivery: Delivery) -> None:
            delivery.upsert(spark.createDataFrame(values, schema), "kept", key="k")

        harness.write("number", 1)
        harness.step(pipe)

        full = (*values[0][:8], ["x", 'y"'], {"a": 1, "b": 2})
        assert harness.rows("select * from kept order by k desc") == [full, values[1]]

    @pytest.mark.parametrize(
        ("key", "problem"),
        [
            ("m", "there is no column m"),
            ((), "key must be the columns that identify a row"),
            ("one", "several rows for kept have the same one; a step needs one row for each key"),
        ],
    )
    def test_a_key_that_does_not_tell_rows_apart_is_refused(
        self, harness: Harness, key: str, problem: str
    ) -> None:
        pipe = pipeline()

        @pipe.sink(inputs="number")
        def keep(number: DataFrame, delivery: Delivery) -> None:
            delivery.upsert(numbered(number).selectExpr("n", "1 as one"), "kept", key=key)

        harness.write("number", 1, 2)
        with pytest.raises(StepFailed, match=problem):
            harness.step(pipe)

        assert problem in (harness.status(pipe).error or "")
        assert harness.rows("select to_regclass('kept') is null") == [(True,)]

    @pytest.mark.parametrize(
        ("value", "problem"),
        [
            ("interval '1' day", "column v is interval day, which has no form in JSON"),
            ("parse_json('{}')", "column v is variant, which has no form in JSON"),
            ("struct(parse_json('{}') as w)", "column v.w is variant, which has no form in JSON"),
        ],
    )
    def test_a_type_that_neither_postgresql_nor_json_has_is_refused(
        self, harness: Harness, value: str, problem: str
    ) -> None:
        pipe = pipeline()

        @pipe.sink(inputs="number")
        def keep(number: DataFrame, delivery: Delivery) -> None:
            delivery.upsert(numbered(number).selectExpr("n", f"{value} as v"), "kept", key="n")

        harness.write("number", 1)
        with pytest.raises(StepFailed, match=problem):
            harness.step(pipe)

    def test_a_table_of_other_columns_is_refused_and_nothing_moves_on(
        self, harness: Harness
    ) -> None:
        pipe = pipeline()

        @pipe.sink(inputs="number")
        def keep(number: DataFrame, delivery: Delivery) -> None:
            delivery.upsert(numbered(number).select("n", "type"), "kept", key="n")

        harness.execute("create table kept (n bigint primary key)")
        harness.write("number", 1)
        with pytest.raises(StepFailed, match=r'column "type" does not exist'):
            harness.step(pipe)

        assert [one.type for one in harness.records(pipe)] == ["Snapshot"]
        assert [one.position for one in harness.status(pipe).tailers] == [0]
