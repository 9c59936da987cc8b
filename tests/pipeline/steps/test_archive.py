"""Pipelines on a log of which a part is archived, and pipelines that archive."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import penstock
from penstock import Store
from penstock.errors import ArchiveUnreachable, GraphError, NoWarehouse
from penstock.log.archive import archive
from penstock.log.retention import Keep
from penstock.pipeline import Latest, Pipeline, Runner, messages
from penstock.pipeline.status import processors
from tests.log.archiving import archived, in_table, store_with_warehouse
from tests.pipeline.steps.running import Harness, numbers_in

COUNT = 40


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def store(database_url: str, warehouse: Path) -> Iterator[Store]:
    """A store with forty numbers in four streams, half of them archived."""
    with store_with_warehouse(database_url, warehouse) as store:
        for number in range(COUNT):
            store.write_message(f"number-{number % 4}", "Counted", {"n": number})
        yield store


def half(store: Store) -> None:
    archived(store, "number", Keep(count=COUNT // 2), batch_size=7)


def doubling(limit: int = 1000) -> Pipeline:
    pipe = Pipeline("shop")
    pipe.schema("number", "n long")

    @pipe.stream(inputs="number", output="double", limit=limit)
    def double(number: DataFrame) -> DataFrame:
        rows = number.select("global_position", "id", (f.col("data.n") * 2).alias("n"))
        return messages(rows, type="Doubled", data=["n"])

    return pipe


def numbers_of(store: Store, category: str) -> list[int]:
    return [message.data["n"] for message in store.get_category_messages(category)]


class TestReads:
    def test_steps_of_limited_size_read_every_message_once_in_order(
        self, store: Store, harness: Harness, shape: str
    ) -> None:
        half(store)
        pipe = doubling(limit=7)

        counts = []
        while (report := harness.step(pipe)) is not None:
            counts.append(report.messages_in)

        assert counts == [7, 7, 7, 7, 7, 5]
        assert sorted(numbers_of(store, "double")) == [2 * number for number in range(COUNT)]

    def test_from_scratch_a_pipeline_publishes_the_same_again(
        self, store: Store, spark: SparkSession
    ) -> None:
        runner = Runner(doubling(), store, spark)
        runner.run_until_idle()
        half(store)
        archived(store, "double")

        runner.from_scratch()
        runner.run_until_idle()

        published = numbers_of(store, "double")
        assert published[:COUNT] == published[COUNT:] == [2 * one for one in range(COUNT)]

    def test_tables_are_whole(self, store: Store, harness: Harness, shape: str) -> None:
        half(store)
        seen = []
        pipe = Pipeline("shop")
        pipe.schema("call")
        pipe.schema("number")

        @pipe.stream(inputs="call", tables=["number"], output="out", name="whole")
        def whole(call: DataFrame, number: DataFrame) -> None:
            seen.append(numbers_in(number))

        @pipe.stream(inputs="call", tables=[Latest("number")], output="out", name="latest")
        def latest(call: DataFrame, number: DataFrame) -> None:
            seen.append(numbers_in(number))

        store.write_message("call-1", "Called", {"n": 1})
        harness.step(pipe, "whole")
        harness.step(pipe, "latest")

        assert [sorted(one) for one in seen] == [list(range(COUNT)), [36, 37, 38, 39]]

    def test_a_projection_is_rebuilt_from_the_archive(
        self, store: Store, spark: SparkSession
    ) -> None:
        pipe = Pipeline("shop")
        pipe.schema("number", "n long")

        @pipe.project("number", into="total", columns="sum long")
        def total(state: dict[str, int] | None, message: object) -> dict[str, int]:
            return {"sum": (state or {"sum": 0})["sum"] + message.data["n"]}  # type: ignore[attr-defined]

        runner = Runner(pipe, store, spark)
        runner.run_until_idle()
        before = totals(store)
        half(store)

        runner.from_scratch()
        runner.run_until_idle()

        assert totals(store) == before == [(f"number-{n}", sum(range(n, 40, 4))) for n in range(4)]

    def test_an_archived_message_goes_to_the_errors_queue_once(
        self, store: Store, spark: SparkSession
    ) -> None:
        half(store)
        pipe = Pipeline("shop")
        pipe.schema("number", "n long")

        @pipe.stream(inputs="number", output="inverse", errors="wrong")
        def invert(number: DataFrame) -> DataFrame:
            poison = f.when(f.col("data.n") == 3, f.raise_error("poison")).otherwise(
                f.col("data.n")
            )
            return messages(number.withColumn("n", poison), type="Inverted", data=["n"])

        Runner(pipe, store, spark).run_until_idle()

        [failed] = store.get_category_messages("wrong")
        assert failed.data == {"n": 3}
        assert failed.metadata is not None
        assert failed.metadata["failed_global_position"] == 4
        assert sorted(numbers_of(store, "inverse")) == [n for n in range(COUNT) if n != 3]

    def test_an_error_column_names_archived_messages(
        self, store: Store, harness: Harness, shape: str
    ) -> None:
        half(store)
        pipe = Pipeline("shop")
        pipe.schema("number", "n long")

        @pipe.stream(inputs="number", output="even", errors="odd")
        def check(number: DataFrame) -> DataFrame:
            rows = number.withColumn("n", f.col("data.n"))
            odd = f.when(f.col("n") % 2 == 1, f.lit("odd"))
            return messages(rows, type="Even", data=["n"], error=odd)

        harness.step(pipe)

        assert sorted(numbers_of(store, "odd")) == list(range(1, COUNT, 2))
        assert sorted(numbers_of(store, "even")) == list(range(0, COUNT, 2))

    def test_the_lag_counts_archived_messages(self, store: Store, harness: Harness) -> None:
        pipe = doubling(limit=5)
        harness.step(pipe)
        archived_all(store)

        [found] = processors(store)

        assert found.lag == COUNT - 5

    def test_without_its_files_a_step_that_needs_them_waits(
        self, store: Store, harness: Harness, warehouse: Path
    ) -> None:
        half(store)
        shutil.move(warehouse / "penstock", warehouse / "away")

        with pytest.raises(ArchiveUnreachable):
            harness.step(doubling())
        shutil.move(warehouse / "away", warehouse / "penstock")
        harness.step(doubling())

        assert len(numbers_of(store, "double")) == COUNT


class TestArchives:
    def test_a_run_archives_what_its_readers_have_read(
        self, store: Store, spark: SparkSession
    ) -> None:
        pipe = doubling()
        pipe.archive("number", older_than="0s")

        Runner(pipe, store, spark).run_until_idle()

        status = {one.processor: one for one in processors(store)}
        assert status["archive_number"].messages_out == COUNT - 4
        assert status["archive_number"].kind == "archive"
        assert len([one for one in in_table(store) if one <= COUNT]) == 4
        assert numbers_of(store, "number") == list(range(COUNT))

    def test_what_somebody_has_not_read_stays_and_the_status_says_who(
        self, store: Store, spark: SparkSession
    ) -> None:
        Runner(doubling(limit=5), store, spark).run_once()
        archiving = Pipeline("keeping")
        archiving.archive("number", older_than="0s")
        Runner(archiving, store, spark).run_until_idle()

        [found] = [one for one in processors(store) if one.kind == "archive"]
        assert "shop.double" in (found.error or "")
        assert in_table(store)[:COUNT] == list(range(1, COUNT + 1))

    def test_without_a_warehouse_it_is_refused(
        self, database_url: str, spark: SparkSession, store: Store
    ) -> None:
        pipe = Pipeline("keeping")
        pipe.archive("number", older_than=timedelta(days=90), every=60)

        with penstock.connect(database_url) as bare, pytest.raises(NoWarehouse):
            Runner(pipe, bare, spark)

    @pytest.mark.parametrize(
        ("category", "older_than"),
        [("number-1", "90d"), ("$all", "90d"), ("number", "90 years"), ("number", -1)],
    )
    def test_a_declaration_that_cannot_be_is_refused(
        self, category: str, older_than: str | int
    ) -> None:
        with pytest.raises(GraphError, match=r"test_archive\.py"):
            Pipeline("keeping").archive(category, older_than=older_than)


def archived_all(store: Store) -> None:
    archive(store.context, "number", Keep(age=timedelta(0)), ignore_consumers=True)


def totals(store: Store) -> list[tuple[str, int]]:
    with store.transaction() as transaction:
        rows = transaction.connection.execute("select stream_name, sum from total order by 1")
        return list(rows.fetchall())
