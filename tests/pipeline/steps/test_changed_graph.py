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
from tests.pipeline.steps.running import Stop, Workshop, numbered, numbers_in, renumbered


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
        pipe.queue(queue)

    def merge(**frames: DataFrame) -> None:
        seen.append({queue: numbers_in(frame) for queue, frame in sorted(frames.items())})
        if stops:
            raise Stop

    pipe.stream(inputs=inputs, tables=tables, output="out", name=name)(merge)
    return pipe


def test_an_added_input_is_read_from_its_beginning(workshop: Workshop) -> None:
    seen: list[dict[str, list[int]]] = []
    workshop.write("a", 1)
    workshop.write("b", 10)
    workshop.steps(merging(["a"], seen))
    workshop.write("a", 2)

    workshop.steps(merging(["a", "b"], seen))

    assert seen == [{"a": [1]}, {"a": [2], "b": [10]}]


def test_a_removed_input_is_no_longer_waited_for_and_its_place_is_kept(workshop: Workshop) -> None:
    seen: list[dict[str, list[int]]] = []
    workshop.write("a", 1)
    workshop.write("b", 10)
    workshop.steps(merging(["a", "b"], seen))
    workshop.write("a", 2)
    workshop.steps(merging(["a"], seen))
    workshop.write("a", 3)
    workshop.write("b", 11)

    workshop.steps(merging(["a", "b"], seen))

    assert seen == [{"a": [1], "b": [10]}, {"a": [2]}, {"a": [3], "b": [11]}]


def test_a_renamed_input_is_another_queue(workshop: Workshop) -> None:
    seen: list[dict[str, list[int]]] = []
    workshop.write("a", 1)
    workshop.write("c", 10)
    workshop.steps(merging(["a"], seen))

    workshop.steps(merging(["c"], seen))

    assert seen == [{"a": [1]}, {"c": [10]}]


def test_a_renamed_processor_is_another_one(workshop: Workshop) -> None:
    seen: list[dict[str, list[int]]] = []
    workshop.write("a", 1)
    workshop.steps(merging(["a"], seen))

    workshop.steps(merging(["a"], seen, name="combine"))

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
    workshop: Workshop, inputs: list[str], tables: list[str], expected: dict[str, list[int]]
) -> None:
    seen: list[dict[str, list[int]]] = []
    workshop.write("a", 1)
    workshop.write("b", 10)
    with pytest.raises(Stop):
        workshop.step(merging(["a"], seen, stops=True))
    workshop.write("a", 2)

    workshop.step(merging(inputs, seen, tables=tables))

    assert seen[1] == expected
    attempt, snapshot = workshop.records(merging(inputs, seen))[:-3:-1]
    assert attempt.data["hash"] == snapshot.data["hash"]


def test_a_step_that_was_begun_before_a_start_from_scratch_is_not_taken_up(
    workshop: Workshop,
) -> None:
    seen: list[dict[str, list[int]]] = []
    workshop.write("a", 1)
    workshop.steps(merging(["a"], seen))
    workshop.write("a", 2)
    with pytest.raises(Stop):
        workshop.step(merging(["a"], seen, stops=True))
    pipe = merging(["a"], seen)
    restart(workshop.bench(pipe).connection, pipe)

    workshop.steps(pipe)

    assert seen == [{"a": [1]}, {"a": [2]}, {"a": [1, 2]}]


class TestFromScratch:
    @staticmethod
    def chain() -> Pipeline:
        pipe = Pipeline("shop")
        pipe.queue("a")

        @pipe.stream(inputs="a", output="b", errors="lost")
        def first(a: DataFrame) -> DataFrame:
            return renumbered(numbered(a), "n * 10")

        @pipe.stream(inputs="b", tables="lost", output="c")
        def second(b: DataFrame, lost: DataFrame) -> DataFrame:
            return renumbered(numbered(b), "n + 1")

        return pipe

    def test_streams_publish_anew_and_who_reads_them_here_sees_it_once(
        self, workshop: Workshop
    ) -> None:
        pipe = self.chain()
        workshop.write("a", 1, 2)
        workshop.run(pipe)

        restart(workshop.bench(pipe).connection, pipe)
        workshop.run(pipe)

        assert workshop.numbers("b") == 2 * [10, 20]
        assert workshop.numbers("c") == 2 * [11, 21]

    def test_it_can_be_done_again_and_again(self, workshop: Workshop) -> None:
        pipe = self.chain()
        workshop.write("a", 1)
        for _ in range(3):
            restart(workshop.bench(pipe).connection, pipe)
            restart(workshop.bench(pipe).connection, pipe)
            workshop.run(pipe)

        assert workshop.numbers("c") == 3 * [11]
        assert workshop.status(pipe, "second").generation == 6

    def test_what_a_sink_put_into_the_errors_queue_is_seen_once_too(
        self, workshop: Workshop
    ) -> None:
        pipe, seen = Pipeline("shop"), []
        pipe.queue("a")

        @pipe.sink(inputs="a", errors="lost")
        def refuse(a: DataFrame) -> None:
            if a.count():
                raise ValueError("never")

        @pipe.sink(inputs="lost")
        def mourn(lost: DataFrame) -> None:
            seen.append(numbers_in(lost))

        workshop.write("a", 1)
        for _ in range(2):
            workshop.run(pipe)
            restart(workshop.bench(pipe).connection, pipe)
        workshop.run(pipe)

        assert seen == [[1], [1], [1]]

    @pytest.mark.parametrize("by", ["others", "a source"])
    def test_a_queue_that_others_write_to_as_well_is_refused_before_anything_is_emptied(
        self, workshop: Workshop, by: str
    ) -> None:
        pipe = Pipeline("shop")
        pipe.queue("a")

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
            workshop.write("a", 1, 2, -3)
        else:

            @pipe.source(output="a")
            def bring(spark: SparkSession) -> DataFrame:
                numbers = spark.createDataFrame([(1,), (2,), (-3,)], "n int")
                return numbers.selectExpr("'Numbered' as type", "struct(n) as data")

        workshop.run(pipe)
        with pytest.raises(GraphError, match="first cannot begin again: queue a has messages of"):
            restart(workshop.bench(pipe).connection, pipe)
        workshop.run(pipe)

        assert workshop.rows("select n from totals") == [(6,)]
        assert workshop.status(pipe, "first").generation == 0

    def test_tables_of_sinks_are_emptied_first_if_they_are_still_there(
        self, workshop: Workshop
    ) -> None:
        pipe = Pipeline("shop")
        pipe.queue("a")

        @pipe.sink(inputs="a")
        def total(a: DataFrame, delivery: Delivery) -> None:
            sums = numbered(a).groupBy().sum("n").selectExpr("1 as k", "`sum(n)` as n")
            delivery.upsert(sums, "totals", key="k", add=["n"])
            delivery.upsert(sums, "gone", key="k", add=["n"])

        workshop.write("a", 1, 2)
        workshop.run(pipe)
        workshop.execute("drop table gone")

        restart(workshop.bench(pipe).connection, pipe)
        workshop.run(pipe)

        assert workshop.rows("select n from totals union all select n from gone") == [(3,), (3,)]
