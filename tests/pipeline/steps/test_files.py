"""Files of a sink's steps: readers of the folder see each committed row exactly once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock
from penstock.errors import StepFailed
from penstock.pipeline import Delivery, Pipeline, Runner
from penstock.pipeline.step import run_step
from tests.conftest import Server
from tests.pipeline.steps.running import Harness, Stop, numbered, pipeline, stop


def seen(folder: Path) -> list[int]:
    """Return the numbers that a reader of the folder sees, by the names that readers pass over."""
    found = [
        one
        for one in folder.rglob("*.json")
        if not any(part.startswith(("_", ".")) for part in one.relative_to(folder).parts)
    ]
    return sorted(json.loads(line)["n"] for one in found for line in one.read_text().splitlines())


def archive(pipe: Pipeline, folder: Path, errors: str | None = None) -> None:
    """Declare a sink that writes numbers to files, and fails after it for numbers of "bad" text."""

    @pipe.sink(inputs="number", limit=4, errors=errors)
    def write(number: DataFrame, delivery: Delivery) -> None:
        delivery.write_files(numbered(number).select("n"), str(folder), format="json")
        for row in number.collect():
            int(json.loads(row.data).get("text", "0"))


def test_files_are_seen_once_their_step_is_committed(harness: Harness, tmp_path: Path) -> None:
    pipe, places = pipeline(), []

    @pipe.sink(inputs="number", limit=2)
    def write(number: DataFrame, delivery: Delivery) -> None:
        found = numbered(number).select("n")
        places.append(delivery.write_files(found, str(tmp_path), format="json"))
        if len(places) == 1:
            raise Stop

    harness.write("number", 1, 2, 3)
    with pytest.raises(Stop):
        harness.step(pipe)
    assert seen(tmp_path) == []

    harness.steps(pipe)

    assert seen(tmp_path) == [1, 2, 3]
    assert sorted(row.n for row in harness.spark.read.json(str(tmp_path)).collect()) == [1, 2, 3]
    assert places[0] == places[1]
    hashes = {one.data["hash"] for one in harness.records(pipe)}
    assert {Path(one).name.split(".")[-1] for one in places} == hashes
    assert all(Path(one).name.startswith("delivery=shop.write.") for one in places)


def test_two_pipelines_of_one_database_share_a_folder(harness: Harness, tmp_path: Path) -> None:
    harness.write("number", 1, 2)
    for name in ("shop", "store"):
        pipe = Pipeline(name)
        pipe.schema("number")
        archive(pipe, tmp_path)
        harness.steps(pipe)

    assert seen(tmp_path) == [1, 1, 2, 2]


def test_two_databases_share_a_folder(
    harness: Harness, server: Server, spark: SparkSession, tmp_path: Path
) -> None:
    name = server.create_database(server.template("penstock"))
    try:
        with penstock.connect(server.url(name)) as other:
            tenant = Harness(other, spark)
            for number, one in enumerate((harness, tenant)):
                one.write("number", number)
                pipe = pipeline()
                archive(pipe, tmp_path)
                one.steps(pipe)
            tenant.close()
    finally:
        server.drop_database(name)

    assert seen(tmp_path) == [0, 1]


def test_two_calls_of_one_step_keep_both(harness: Harness, tmp_path: Path) -> None:
    pipe = pipeline()
    places: list[str] = []

    @pipe.sink(inputs="number")
    def write(number: DataFrame, delivery: Delivery) -> None:
        found = numbered(number).select("n")
        parts = (found.where("n % 2 = 0"), found.where("n % 2 = 1"))
        places.extend(delivery.write_files(one, str(tmp_path), format="json") for one in parts)

    harness.write("number", 1, 2, 3)
    harness.steps(pipe)

    assert seen(tmp_path) == [1, 2, 3]
    assert len(set(places)) == 2


def test_from_scratch_leaves_no_row_twice(harness: Harness, tmp_path: Path) -> None:
    pipe = pipeline()
    archive(pipe, tmp_path)
    harness.write("number", 1, 2, 3)
    harness.steps(pipe)
    other = tmp_path / "delivery=of-somebody-else"
    other.mkdir()

    Runner(pipe, harness.store, harness.spark).from_scratch()
    harness.steps(pipe)

    assert seen(tmp_path) == [1, 2, 3]
    assert other.exists()


def test_a_step_that_fails_after_its_files_and_is_split(harness: Harness, tmp_path: Path) -> None:
    pipe = pipeline()
    archive(pipe, tmp_path, errors="lost")
    for number in range(6):
        harness.write("number", number, text="bad" if number == 2 else "1")
    harness.steps(pipe)

    assert harness.numbers("lost") == [2]
    assert seen(tmp_path) == [0, 1, 3, 4, 5]


def test_a_step_that_is_refused_at_its_commit_leaves_nothing_to_see(
    harness: Harness, tmp_path: Path
) -> None:
    pipe = pipeline()

    @pipe.sink(inputs="number")
    def write(number: DataFrame, delivery: Delivery) -> None:
        found = numbered(number).select("n")
        delivery.write_files(found, str(tmp_path), format="json")
        delivery.upsert(found.selectExpr("n", "'x' as more"), "kept", key="n")

    harness.execute("create table kept (n bigint primary key)")
    harness.write("number", 1)
    with pytest.raises(StepFailed, match="column"):
        harness.steps(pipe)

    assert seen(tmp_path) == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_between_commit_and_files_it_is_made_good(
    harness: Harness, tmp_path: Path, when: str
) -> None:
    pipe = pipeline()
    archive(pipe, tmp_path)
    harness.write("number", 1, 2)

    if when == "before":
        with pytest.raises(Stop):
            run_step(harness.context(pipe, after_commit=stop))
    else:
        run_step(harness.context(pipe))
    assert [one.type for one in harness.records(pipe)] == ["Snapshot", "NilAttempt"]
    assert seen(tmp_path) == ([] if when == "before" else [1, 2])

    harness.write("number", 3)
    harness.steps(pipe)

    assert seen(tmp_path) == [1, 2, 3]


@pytest.mark.parametrize("folder", ["", None])
def test_without_a_folder_it_is_refused(harness: Harness, folder: str) -> None:
    pipe = pipeline()

    @pipe.sink(inputs="number")
    def write(number: DataFrame, delivery: Delivery) -> None:
        delivery.write_files(number, folder)

    harness.write("number", 1)
    with pytest.raises(StepFailed, match="folder must be the path of a folder"):
        harness.step(pipe)
