"""Pipelines of every kind, each with messages for a step or two, and what must come of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import penstock
from penstock import RecordedMessage, Store, lake
from penstock.pipeline import Delivery, Pipeline
from tests.pipeline.steps.running import Harness, numbered, renumbered

Declare = Callable[[Pipeline, str], None]
SHAPES: dict[str, Declare] = {}
#: the queues that are filled: each shape has its own, so that all can live in one database
INPUTS: dict[str, tuple[int, ...]] = {
    "one_in": (1, 2),
    "left_in": (1, 2),
    "right_in": (10, 20),
    "urgent_in": (),
    "normal_in": (1, 2),
    "sort_in": (1, 2),
    "drop_in": (1, 2),
    "poison_in": (1, 2),
    "column_in": (1, 2),
    "sink_in": (1, 2, 3, 4),
    "file_in": (1, 2),
    "fold_in-1": (1, 2, 3),
    "rows_in": (1, 2, 3),
    "state_in": (1, 2, 1, 2),
    "part_in": (1, 2, 3),
}


def shape(declare: Declare) -> Declare:
    SHAPES[declare.__name__] = declare
    return declare


def connect(url: str, folder: str) -> Store:
    """Connect to a database whose tables of the lake are in that folder, too."""
    return penstock.connect(url, warehouse=f"file://{folder}/lake")


def pipeline(name: str, folder: str) -> Pipeline:
    """Return a pipeline, which has one processor; its files, if it writes any, go to a folder."""
    pipe = Pipeline(name)
    SHAPES[name](pipe, folder)
    (processor,) = pipe.processors.values()
    for queue in processor.reads:
        pipe.schema(queue)
    return pipe


def fill(store: Store) -> None:
    """Write what the shapes read."""
    harness = Harness(store, None)  # type: ignore[arg-type]
    for queue, numbers in INPUTS.items():
        harness.write(queue, *numbers)


def result(harness: Harness, name: str, folder: str) -> dict[str, Any]:
    """Return what came of a pipeline: its messages, its tailers, its rows, its files."""
    pipe = pipeline(name, folder)
    (processor,) = pipe.processors.values()
    found: dict[str, Any] = {
        queue: [(one.type, one.data) for one in harness.messages(queue)]
        for queue in processor.publishes
    }
    found["each once"] = _each_attempt_is_the_only_one(harness, pipe)
    found["tailers"] = [(one.queue, one.position) for one in harness.status(pipe).tailers]
    for table in ("totals", "states"):
        if processor.name == table:
            found["rows"] = sorted(harness.rows(f"select * from {table}"))
    if processor.name == "archive":
        found["files"] = sorted(_lines(Path(folder)))
    if processor.lake is not None:
        found["rows"], found["each snapshot once"] = _in_the_lake(harness, processor.lake.name)
    return found


@shape
def one_input(pipe: Pipeline, folder: str) -> None:
    @pipe.stream(inputs="one_in", output="one_out")
    def copy(one_in: DataFrame) -> DataFrame:
        in_two_tasks = numbered(one_in).repartition(2, "n")
        return renumbered(in_two_tasks, "n * 2")


@shape
def several_inputs(pipe: Pipeline, folder: str) -> None:
    @pipe.stream(inputs=["left_in", "right_in"], output="pair_out")
    def pair(left_in: DataFrame, right_in: DataFrame) -> DataFrame:
        right = numbered(right_in).selectExpr("n / 10 as m", "n as other")
        return renumbered(numbered(left_in).join(right, f.expr("n = m")), "n + other")


@shape
def alternatives(pipe: Pipeline, folder: str) -> None:
    @pipe.stream(alts=["urgent_in", "normal_in"], output="served_out")
    def serve(messages: DataFrame, delivery: Delivery) -> DataFrame:
        return renumbered(numbered(messages), type=delivery.input or "")


@shape
def several_outputs(pipe: Pipeline, folder: str) -> None:
    @pipe.stream(inputs="sort_in", output=["odd_out", "even_out"])
    def sort(sort_in: DataFrame) -> dict[str, DataFrame]:
        found = numbered(sort_in)
        return {
            "odd_out": renumbered(found.where("n % 2 = 1")),
            "even_out": renumbered(found.where("n % 2 = 0")),
        }


@shape
def no_output(pipe: Pipeline, folder: str) -> None:
    @pipe.stream(inputs="drop_in", output="drop_out")
    def drop(drop_in: DataFrame) -> DataFrame:
        return drop_in.where("false")


@shape
def error_output(pipe: Pipeline, folder: str) -> None:
    @pipe.stream(inputs="poison_in", output="cured_out", errors="poison_lost")
    def cure(poison_in: DataFrame) -> DataFrame:
        return renumbered(numbered(poison_in), "if(n = 2, cast('poison' as int), n)")


@shape
def error_column(pipe: Pipeline, folder: str) -> None:
    @pipe.stream(inputs="column_in", output="column_out", errors="column_lost")
    def check(column_in: DataFrame) -> DataFrame:
        even = f.expr("if(get_json_object(data, '$.n') % 2 = 0, 'even', null)")
        return column_in.withColumn("error", even)


@shape
def sink_with_upsert(pipe: Pipeline, folder: str) -> None:
    @pipe.sink(inputs="sink_in", limit=2)
    def totals(sink_in: DataFrame, delivery: Delivery) -> None:
        sums = numbered(sink_in).groupBy().sum("n").selectExpr("'all' as name", "`sum(n)` as n")
        delivery.upsert(sums, "totals", key="name", add=["n"])


@shape
def sink_with_files(pipe: Pipeline, folder: str) -> None:
    @pipe.sink(inputs="file_in")
    def archive(file_in: DataFrame, delivery: Delivery) -> None:
        delivery.write_files(numbered(file_in).select("n"), folder, format="json")


@shape
def projection(pipe: Pipeline, folder: str) -> None:
    @pipe.project("fold_in", into="states", columns="sum int, count int", limit=2)
    def states(state: dict[str, int] | None, message: RecordedMessage) -> dict[str, int]:
        before = state or {"sum": 0, "count": 0}
        return {"sum": before["sum"] + message.data["n"], "count": before["count"] + 1}


@shape
def source_with_cursor(pipe: Pipeline, folder: str) -> None:
    @pipe.source(output="source_out")
    def bring(spark: SparkSession, delivery: Delivery) -> DataFrame | None:
        number = delivery.cursor or 1
        if number > 2:
            return None
        delivery.advance(number + 1)
        row = ("Brought", json.dumps({"n": number}))
        return spark.createDataFrame([row], "type string, data string")


@shape
def table_append(pipe: Pipeline, folder: str) -> None:
    @pipe.table("crash.appended", inputs="rows_in", partition_by="n", limit=2)
    def append(rows_in: DataFrame) -> DataFrame:
        return numbered(rows_in).select("n").repartition(2, "n")


@shape
def table_upsert(pipe: Pipeline, folder: str) -> None:
    @pipe.table("crash.merged", inputs="state_in", key="n", limit=2)
    def merge(state_in: DataFrame) -> DataFrame:
        last = "if(n = 1 and position = 1, null, position) as last"  # null: the row is deleted
        return numbered(state_in).selectExpr("n", last).repartition(2, "n")


@shape
def table_overwrite(pipe: Pipeline, folder: str) -> None:
    @pipe.table("crash.replaced", inputs="part_in", mode="overwrite", partition_by="odd", limit=2)
    def replace(part_in: DataFrame) -> DataFrame:
        return numbered(part_in).selectExpr("n", "n % 2 = 1 as odd").repartition(2, "n")


def _in_the_lake(harness: Harness, name: str) -> tuple[list[str], bool]:
    """Return the rows of a table, and whether no step has two snapshots."""
    table = lake.catalog(harness.store).load_table(name)
    steps = [one.summary["delivery"] for one in table.snapshots() if one.summary is not None]
    rows = sorted(json.dumps(one) for one in table.scan().to_arrow().to_pylist())
    return rows, len(steps) == len(set(steps))


def _lines(folder: Path) -> list[str]:
    """Return what a reader of a folder sees, who passes over hidden files and folders."""
    return [
        line
        for one in folder.rglob("*.json")
        if "lake" not in one.relative_to(folder).parts  # metadata of tables
        if not any(part.startswith(("_", ".")) for part in one.relative_to(folder).parts)
        for line in one.read_text().splitlines()
    ]


def _each_attempt_is_the_only_one(harness: Harness, pipe: Pipeline) -> bool:
    """Whether each attempt has a snapshot of its own, and each message such an attempt."""
    records = harness.records(pipe)
    attempts = [one.data["hash"] for one in records if one.type != "Snapshot"]
    snapshots = {one.data["hash"] for one in records if one.type == "Snapshot"}
    (processor,) = pipe.processors.values()
    delivered = {
        (one.metadata or {})["delivery"]
        for queue in processor.publishes
        for one in harness.messages(queue)
    }
    return len(attempts) == len(set(attempts)) and delivered <= set(attempts) <= snapshots
