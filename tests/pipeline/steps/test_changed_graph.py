"""A graph that changes between runs: what each processor goes on with, and what begins anew.

A tailer belongs to a processor's name and a queue's name. A step that was begun and not committed
is taken up again only if it still fits; else nothing of it was published, and another one takes its
place.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.errors import GraphError
from penstock.pipeline import Delivery, Pipeline
from penstock.pipeline.restart import restart
from tests.pipeline.steps.running import Harness, Stop, numbered, numbers_in, renumbered


def merging(
    inputs: Sequence[str],
    seen: list[dict[str, list[int]]],
    *,
    name: str = "merge",
    tables: Sequence[str] = (),
    stops: bool = False,
) -> Pipeline:
    """Return a pipeline that notes what it reads of its inputs."""
    pipe = Pipeline("shop")
    for queue in (*inputs, *tables):
        pipe.schema(queue)

    def merge(**frames: DataFrame) -> None:
        seen.append({queue: numbers_in(frame) for queue, frame in sorted(frames.items())})
        if stops:
            raise Stop

    pipe.stream(inputs=inputs, tables=tables, output="out", name=name)(merge)
    return pipe


def test_an_added_input_is_read_from_its_beginning(harness: Harness) -> None:
    seen: list[dict[str, list[int]]] = []
    harness.write("a", 1)
    harness.write("b", 10)
    harness.steps(merging(["a"], seen))
    harness.write("a", 2)

    harness.steps(merging(["a", "b"], seen))

    assert seen == [{"a": [1]}, {"a": [2], "b": [10]}]


def test_a_removed_input_is_no_longer_waited_for_and_its_place_is_kept(harness: Harness) -> None:
    seen: list[dict[str, list[int]]] = []
    harness.write("a", 1)
    harness.write("b", 10)
    harness.steps(merging(["a", "b"], seen))
    harness.write("a", 2)
    harness.steps(merging(["a"], seen))
    harness.write("a", 3)
    harness.write("b", 11)

    harness.steps(merging(["a", "b"], seen))

    assert seen == [{"a": [1], "b": [10]}, {"a": [2]}, {"a": [3], "b": [11]}]


def test_a_renamed_input_is_another_queue(harness: Harness) -> None:
    seen: list[dict[str, list[int]]] = []
    harness.write("a", 1)
    harness.write("c", 10)
    harness.steps(merging(["a"], seen))

    harness.steps(merging(["c"], seen))

    assert seen == [{"a": [1]}, {"c": [10]}]


def test_a_renamed_processor_is_another_one(harness: Harness) -> None:
    seen: list[dict[str, list[int]]] = []
    harness.write("a", 1)
    harness.steps(merging(["a"], seen))

    harness.steps(merging(["a"], seen, name="combine"))

    assert seen == [{"a": [1]}, {"a": [1]}]


@pytest.mark.parametrize(
    ("inputs", "tables", "expected"),
    [
        (["a", "b"], (), {"a": [1, 2], "b": [10]}),
        (["b"], (), {"b": [10]}),
        (["a"], ["b"], {"a": [1, 2], "b": [10]}),
        (["a"], (), {"a": [1]}),
    ],
    ids=["added", "renamed", "table added", "the same"],
)
def test_a_step_that_was_begun_is_taken_up_only_if_it_fits(
    harness: Harness, inputs: list[str], tables: list[str], expected: dict[str, list[int]]
) -> None:
    seen: list[dict[str, list[int]]] = []
    harness.write("a", 1)
    harness.write("b", 10)
    with pytest.raises(Stop):
        harness.step(merging(["a"], seen, stops=True))
    harness.write("a", 2)

    harness.step(merging(inputs, seen, tables=tables))

    assert seen[1] == expected
    attempt, snapshot = harness.records(merging(inputs, seen))[:-3:-1]
    assert attempt.data["hash"] == snapshot.data["hash"]


def test_a_step_that_was_begun_before_a_start_from_scratch_is_not_taken_up(
    harness: Harness,
) -> None:
    seen: list[dict[str, list[int]]] = []
    harness.write("a", 1)
    harness.steps(merging(["a"], seen))
    harness.write("a", 2)
    with pytest.raises(Stop):
        harness.step(merging(["a"], seen, stops=True))
    pipe = merging(["a"], seen)
    restart(harness.context(pipe).connection, pipe)

    harness.steps(pipe)

    assert seen == [{"a": [1]}, {"a": [2]}, {"a": [1, 2]}]


class TestFromScratch:
    @staticmethod
    def chain() -> Pipeline:
        pipe = Pipeline("shop")
        pipe.schema("a")

        @pipe.stream(inputs="a", output="b", errors="lost")
        def first(a: DataFrame) -> DataFrame:
            return renumbered(numbered(a), "n * 10")

        @pipe.stream(inputs="b", tables="lost", output="c")
        def second(b: DataFrame, lost: DataFrame) -> DataFrame:
            return renumbered(numbered(b), "n + 1")

        return pipe

    def test_streams_publish_anew_and_who_reads_them_here_sees_it_once(
        self, harness: Harness
    ) -> None:
        pipe = self.chain()
        harness.write("a", 1, 2)
        harness.run(pipe)

        restart(harness.context(pipe).connection, pipe)
        harness.run(pipe)

        assert harness.numbers("b") == 2 * [10, 20]
        assert harness.numbers("c") == 2 * [11, 21]

    def test_it_can_be_done_again_and_again(self, harness: Harness) -> None:
        pipe = self.chain()
        harness.write("a", 1)
        for _ in range(3):
            restart(harness.context(pipe).connection, pipe)
            restart(harness.context(pipe).connection, pipe)
            harness.run(pipe)

        assert harness.numbers("c") == 3 * [11]
        assert harness.status(pipe, "second").generation == 6

    def test_what_a_sink_put_into_the_errors_queue_is_seen_once_too(self, harness: Harness) -> None:
        pipe, seen = Pipeline("shop"), []
        pipe.schema("a")

        @pipe.sink(inputs="a", errors="lost")
        def refuse(a: DataFrame) -> None:
            if a.count():
                raise ValueError("never")

        @pipe.sink(inputs="lost")
        def mourn(lost: DataFrame) -> None:
            seen.append(numbers_in(lost))

        harness.write("a", 1)
        for _ in range(2):
            harness.run(pipe)
            restart(harness.context(pipe).connection, pipe)
        harness.run(pipe)

        assert seen == [[1], [1], [1]]

    @pytest.mark.parametrize("by", ["others", "a source"])
    def test_a_queue_that_others_write_to_as_well_is_refused_before_anything_is_emptied(
        self, harness: Harness, by: str
    ) -> None:
        pipe = Pipeline("shop")
        pipe.schema("a")

        @pipe.stream(inputs="a", output="c", errors="lost")
        def first(a: DataFrame) -> DataFrame:
            return renumbered(numbered(a)).withColumn(
                "error", f.expr("if(data like '%-%', 'it is negative', null)")
            )

        @pipe.stream(inputs="lost", output="a")
        def repair(lost: DataFrame) -> DataFrame:
            return renumbered(numbered(lost), "abs(n)")

        @pipe.sink(inputs="c")
        def total(c: DataFrame, delivery: Delivery) -> None:
            sums = numbered(c).groupBy().sum("n").selectExpr("1 as k", "`sum(n)` as n")
            delivery.upsert(sums, "totals", key="k", add=["n"])

        if by == "others":
            harness.write("a", 1, 2, -3)
        else:

            @pipe.source(output="a")
            def bring(spark: SparkSession) -> DataFrame:
                numbers = spark.createDataFrame([(1,), (2,), (-3,)], "n int")
                return numbers.selectExpr("'Numbered' as type", "struct(n) as data")

        harness.run(pipe)
        with pytest.raises(GraphError, match="first cannot begin again: a has messages of"):
            restart(harness.context(pipe).connection, pipe)
        harness.run(pipe)

        assert harness.rows("select n from totals") == [(6,)]
        assert harness.status(pipe, "first").generation == 0

    def test_tables_of_sinks_are_emptied_first_if_they_are_still_there(
        self, harness: Harness
    ) -> None:
        pipe = Pipeline("shop")
        pipe.schema("a")

        @pipe.sink(inputs="a")
        def total(a: DataFrame, delivery: Delivery) -> None:
            sums = numbered(a).groupBy().sum("n").selectExpr("1 as k", "`sum(n)` as n")
            delivery.upsert(sums, "totals", key="k", add=["n"])
            delivery.upsert(sums, "gone", key="k", add=["n"])

        harness.write("a", 1, 2)
        harness.run(pipe)
        harness.execute("drop table gone")

        restart(harness.context(pipe).connection, pipe)
        harness.run(pipe)

        assert harness.rows("select n from totals union all select n from gone") == [(3,), (3,)]
