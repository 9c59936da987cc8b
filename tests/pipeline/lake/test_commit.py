"""A table's snapshot is committed with its step: once, whoever else writes, and whatever dies."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from penstock.database.server_errors import typed_errors
from penstock.errors import StepSuperseded
from penstock.lake.catalog_rows import lock_table
from penstock.pipeline import Pipeline, Runner
from penstock.pipeline.restart import restart
from penstock.pipeline.step import run_step
from tests.pipeline.lake.lake_harness import LakeHarness, fields, sales
from tests.pipeline.steps.running import Stop, stop
from tests.racing import at_once, wait_until_it_waits

MODES = {"append": None, "upsert": "n", "overwrite": None}


def keeping(mode: str = "append", calls: list[int] | None = None, limit: int = 100) -> Pipeline:
    pipe = sales()

    @pipe.table("shop.sale", inputs="sale", key=MODES[mode], mode=mode, limit=limit)
    def keep(sale: DataFrame) -> DataFrame:
        if calls is not None:
            calls.append(1)
        return fields(sale)

    return pipe


def numbers(lake: LakeHarness) -> list[int]:
    return sorted(row["n"] for row in lake.lake_rows("shop.sale"))


@pytest.mark.parametrize("mode", MODES)
def test_a_run_that_ends_before_the_commit_is_repeated_and_leaves_one_copy(
    lake: LakeHarness, mode: str
) -> None:
    lake.send({"n": 1, "v": "a"})
    lake.steps(keeping(mode))
    lake.send({"n": 2, "v": "b"})
    for moment in ("before_commit", "after_commit"):
        with pytest.raises(Stop):
            run_step(lake.context(keeping(mode), **{moment: stop}))  # type: ignore[arg-type]

    lake.steps(keeping(mode))

    assert numbers(lake) == ([2] if mode == "overwrite" else [1, 2])
    assert len(lake.table("shop.sale").snapshots()) == 2


@pytest.mark.parametrize("mode", MODES)
def test_others_who_commit_between_staging_and_commit_cost_no_second_call(
    lake: LakeHarness, mode: str
) -> None:
    calls: list[int] = []
    lake.send({"n": 1, "v": "a"})
    lake.steps(keeping(mode))
    lake.send({"n": 2, "v": "b"})
    url = lake.database.settings.conninfo()
    columns = {
        "n": [2, 3],
        "part": [None, None],
        "v": ["other", "other"],
        "global_position": [0, 0],
    }

    with psycopg.connect(url) as connection, ThreadPoolExecutor(1) as thread:
        lock_table(connection, "shop.sale")  # so that the step waits once it is staged
        step = thread.submit(lake.steps, keeping(mode, calls))
        wait_until_it_waits(url, step)
        other = lake.catalog.on(connection).load_table("shop.sale")
        other.append(pa.table(columns).cast(other.schema().as_arrow()))
        connection.commit()
        step.result()

    found = sorted((row["n"], row["v"]) for row in lake.lake_rows("shop.sale"))
    assert calls == [1]
    assert (
        found
        == {
            "append": [(1, "a"), (2, "b"), (2, "other"), (3, "other")],
            "upsert": [(1, "a"), (2, "b"), (3, "other")],
            "overwrite": [(2, "b")],
        }[mode]
    )


def test_of_two_runs_at_one_step_one_commits(lake: LakeHarness) -> None:
    barrier, pipe = Barrier(2), sales()

    @pipe.table("shop.sale", inputs="sale")
    def keep(sale: DataFrame) -> DataFrame:
        barrier.wait()
        return fields(sale)

    lake.send({"n": 1}, {"n": 2})
    first, second = lake.context(pipe), lake.context(pipe)

    with typed_errors("here"):
        became = at_once(lambda: run_step(first), lambda: run_step(second))

    assert [type(one) for one in became if isinstance(one, Exception)] == [StepSuperseded]
    assert numbers(lake) == [1, 2]
    assert len(lake.table("shop.sale").snapshots()) == 1


def test_messages_that_fail_go_to_the_errors_queue_and_the_others_to_the_table(
    lake: LakeHarness,
) -> None:
    pipe = sales()

    @pipe.table("shop.sale", inputs="sale", errors="lost")
    def keep(sale: DataFrame) -> DataFrame:
        return fields(sale).selectExpr("cast(v as int) as n")

    lake.send({"v": "1"}, {"v": "poison"}, {"v": "3"})

    lake.steps(pipe)

    assert numbers(lake) == [1, 3]
    assert [one.data["v"] for one in lake.messages("lost")] == ["poison"]
    rows = {task.file.file_path for task in lake.table("shop.sale").scan().plan_files()}
    assert {f"file://{one}" for one in lake.files()} == rows  # rehearsals left none


class TestFromScratch:
    """A new table is built beside the old one, and takes its place in a transaction."""

    @staticmethod
    def rebuild(lake: LakeHarness, pipe: Pipeline) -> None:
        restart(lake.context(pipe).connection, pipe)

    def test_readers_see_the_old_table_until_the_new_one_has_caught_up(
        self, lake: LakeHarness
    ) -> None:
        lake.send({"n": 1}, {"n": 2}, {"n": 3})
        lake.steps(keeping())
        old, pipe, seen = lake.table("shop.sale"), keeping(limit=2), []
        self.rebuild(lake, pipe)

        while lake.step(pipe):
            seen.append((lake.status(pipe).rebuilding, lake.table("shop.sale").metadata.table_uuid))

        new = lake.table("shop.sale")
        assert seen == [(True, old.metadata.table_uuid), (False, new.metadata.table_uuid)]
        assert new.location() != old.location()
        assert numbers(lake) == [1, 2, 3]
        assert not lake.catalog.table_exists("shop.sale__next")

    def test_other_columns_partitions_and_keys_take_the_place_of_the_old_ones(
        self, lake: LakeHarness
    ) -> None:
        lake.send({"n": 1, "v": "x"}, {"n": 1, "v": "y"})
        lake.steps(keeping())
        pipe = sales()

        @pipe.table("shop.sale", inputs="sale", key="n", partition_by="bucket(2, n)")
        def keep(sale: DataFrame) -> DataFrame:
            return sale.selectExpr("string(data.n) as n", "data.v", "global_position")

        runner = Runner(pipe, lake.store, lake.spark)
        runner.from_scratch()
        runner.run_until_idle()

        (row,) = lake.lake_rows("shop.sale")
        assert (row["n"], row["v"]) == ("1", "y")

    def test_a_run_that_ends_before_the_switch_is_committed_leaves_the_old_table(
        self, lake: LakeHarness
    ) -> None:
        lake.send({"n": 1}, {"n": 2})
        lake.steps(keeping())
        old = lake.table("shop.sale").metadata_location
        self.rebuild(lake, keeping())

        with pytest.raises(Stop):
            run_step(lake.context(keeping(), before_commit=stop))
        during = lake.table("shop.sale").metadata_location
        lake.steps(keeping())

        assert during == old
        assert numbers(lake) == [1, 2]
        assert lake.table("shop.sale").metadata_location != old

    def test_a_rebuild_that_was_broken_off_begins_anew(self, lake: LakeHarness) -> None:
        lake.send({"n": 1}, {"n": 2})
        lake.steps(keeping())
        self.rebuild(lake, keeping(limit=1))
        lake.step(keeping(limit=1))

        self.rebuild(lake, keeping(limit=1))
        lake.steps(keeping(limit=1))

        assert numbers(lake) == [1, 2]

    def test_messages_that_come_meanwhile_do_not_put_it_off(self, lake: LakeHarness) -> None:
        pipe = sales()

        @pipe.table("shop.sale", inputs="sale")
        def keep(sale: DataFrame) -> DataFrame:
            lake.send({"n": 2})  # while it is written
            return fields(sale)

        lake.send({"n": 1})
        lake.step(pipe)
        self.rebuild(lake, pipe)

        lake.step(pipe)

        assert not lake.status(pipe).rebuilding
        assert numbers(lake) == [1, 2]

    def test_without_messages_the_old_table_leaves(self, lake: LakeHarness) -> None:
        lake.send({"n": 1})
        lake.steps(keeping())
        other = sales()

        @other.table("shop.sale", inputs="sale", types=["Other"])
        def keep(sale: DataFrame) -> DataFrame:
            return fields(sale)

        self.rebuild(lake, other)
        lake.steps(other)

        assert not lake.catalog.table_exists("shop.sale")
