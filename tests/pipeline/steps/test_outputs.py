"""What a step writes: where it goes, what it carries, and that it is there once, together."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.errors import StepFailed
from penstock.pipeline import Pipeline
from penstock.pipeline.step import run_step
from tests.pipeline.steps.running import Harness, numbered, pipeline, renumbered

TWO = "get_json_object(data, '$.n') = 2"


class TestSeveral:
    def test_all_outputs_of_a_step_commit_together(self, harness: Harness, shape: str) -> None:
        pipe, seen = pipeline(), []

        @pipe.stream(inputs="number", output=["even", "odd", "never"], limit=3)
        def sort(number: DataFrame) -> dict[str, DataFrame]:
            found = numbered(number)
            return {
                "odd": renumbered(found.where("n % 2 = 1")),
                "even": renumbered(found.where("n % 2 = 0")),
            }

        def look() -> None:
            seen.append((harness.numbers("even"), harness.numbers("odd")))

        harness.write("number", *range(5))
        context = harness.context(pipe, before_commit=look)
        while run_step(context):
            pass

        assert seen == [([], []), ([0, 2], [1])]
        assert harness.numbers("even") == [0, 2, 4]
        assert harness.numbers("odd") == [1, 3]
        hashes = [one.data["hash"] for one in harness.records(pipe) if one.type == "Attempt"]
        found = {one.metadata["delivery"] for one in harness.messages("odd") if one.metadata}
        assert found == set(hashes)
        assert [one.data["published"] for one in harness.records(pipe)[1::2]] == [3, 2]

    def test_an_output_may_be_left_out_or_none(self, harness: Harness) -> None:
        pipe = pipeline()

        @pipe.stream(inputs="number", output=["left", "right"])
        def sort(number: DataFrame) -> dict[str, DataFrame | None]:
            return {"left": None}

        harness.write("number", 1)
        harness.step(pipe)

        assert [one.type for one in harness.records(pipe)] == ["Snapshot", "NilAttempt"]

    def test_a_stream_without_an_output_only_moves_on(self, harness: Harness) -> None:
        pipe = pipeline()

        @pipe.stream(inputs="number")
        def swallow(number: DataFrame) -> None: ...

        harness.write("number", 1, 2)
        report = harness.step(pipe)

        assert report is not None
        assert (report.messages_in, report.messages_out) == (2, 0)
        assert [one.type for one in harness.records(pipe)] == ["Snapshot", "NilAttempt"]


class TestMetadata:
    def test_a_message_says_which_step_of_which_processor_made_it(
        self, harness: Harness, shape: str
    ) -> None:
        pipe = pipeline()

        @pipe.stream(inputs="number", output="out")
        def copy(number: DataFrame, spark: SparkSession) -> DataFrame:
            return spark.createDataFrame([("Made", "{}", '{"by": "hand"}')], "type string, data "
                                         "string, metadata string")  # fmt: skip

        harness.write("number", 1)
        harness.step(pipe)

        (made,) = harness.messages("out")
        assert made.metadata == {
            "by": "hand",
            "pipeline": "shop",
            "processor": "copy",
            "delivery": harness.records(pipe)[0].data["hash"],
        }

    def test_correlation_and_causation_flow_through(self, harness: Harness, shape: str) -> None:
        pipe = pipeline()

        @pipe.stream(inputs="number", output="middle")
        def first(number: DataFrame) -> DataFrame:
            return renumbered(numbered(number))

        @pipe.stream(inputs="middle", output="out")
        def second(middle: DataFrame) -> DataFrame:
            return middle.withColumn("type", f.lit("Ended"))

        begun = {"correlation_id": "c-1", "by": "Ada"}
        harness.store.write_message("number-1", "Numbered", {"n": 1}, begun)
        harness.store.write_message("number-2", "Numbered", {"n": 2})
        harness.step(pipe, "first")
        harness.step(pipe, "second")

        numbers, middles = harness.messages("number"), harness.messages("middle")
        ends = [one.metadata or {} for one in harness.messages("out")]
        assert [one["correlation_id"] for one in ends] == ["c-1", str(numbers[1].id)]
        assert [one["causation_id"] for one in ends] == [str(one.id) for one in middles]
        assert [(one.metadata or {})["causation_id"] for one in middles] == [
            str(one.id) for one in numbers
        ]
        assert ends[0]["by"] == "Ada"
        assert ends[0]["processor"] == "second"

    def test_typed_metadata_is_carried_on_too(self, harness: Harness) -> None:
        pipe = Pipeline("shop")
        pipe.schema("number", "n int", metadata="correlation_id string, by string")

        @pipe.stream(inputs="number", output="out")
        def copy(number: DataFrame) -> DataFrame:
            return number

        harness.store.write_message("number-1", "T", {"n": 1}, {"correlation_id": "c", "by": "A"})
        harness.step(pipe)

        (made,) = harness.messages("out")
        assert made.data == {"n": 1}
        assert made.metadata is not None
        assert (made.metadata["correlation_id"], made.metadata["by"]) == ("c", "A")


class TestStreams:
    def test_a_message_passed_on_gets_a_stream_of_its_own_in_the_output(
        self, harness: Harness
    ) -> None:
        pipe = pipeline()

        @pipe.stream(inputs="number", output="out")
        def copy(number: DataFrame) -> DataFrame:
            return number

        harness.write("number", 1, 2)
        harness.step(pipe)

        made = harness.messages("out")
        assert [one.stream_name for one in made] == [f"out-{one.id}" for one in made]
        assert {one.id for one in made}.isdisjoint(one.id for one in harness.messages("number"))

    @pytest.mark.parametrize("output", ["out", "out-1"])
    @pytest.mark.parametrize("follows", [True, False])
    def test_a_stream_elsewhere_is_refused(
        self, harness: Harness, output: str, follows: bool, shape: str
    ) -> None:
        pipe = pipeline()

        @pipe.stream(inputs="number", output=output)
        def copy(number: DataFrame) -> DataFrame:
            made = renumbered(numbered(number)).withColumn("stream_name", f.lit("elsewhere-7"))
            return made if follows else made.drop("id", "global_position")

        harness.write("number", 1)
        expected = f"stream_name of a message to write is 'elsewhere-7'.*{output}, where the output"
        with pytest.raises(StepFailed, match=expected):
            harness.step(pipe)

        assert harness.messages(output) == []

    def test_a_message_may_name_its_stream(self, harness: Harness, shape: str) -> None:
        pipe = pipeline()

        @pipe.stream(inputs="number", output="out")
        def copy(number: DataFrame) -> DataFrame:
            return renumbered(numbered(number)).withColumn("stream_name", f.lit("out-7"))

        harness.write("number", 1, 2)
        harness.step(pipe)
        harness.write("number", 3)
        harness.step(pipe)

        made = harness.messages("out-7")
        assert [(one.position, one.data["n"]) for one in made] == [(0, 1), (1, 2), (2, 3)]

    def test_messages_may_be_ordered_and_may_bring_their_ids(self, harness: Harness) -> None:
        pipe = pipeline()
        ids = [f"0190b2c4-7a2b-7c3d-8e4f-5a6b7c8d9e0{digit}" for digit in range(3)]

        @pipe.stream(inputs="number", output="out-1")
        def make(number: DataFrame, spark: SparkSession) -> DataFrame:
            rows = [("Made", json.dumps({"n": n}), ids[n], -n) for n in range(3)]
            return spark.createDataFrame(rows, "type string, data string, id string, ordinal int")

        harness.write("number", 1)
        harness.step(pipe)

        assert harness.numbers("out-1") == [2, 1, 0]
        assert [str(one.id) for one in harness.messages("out-1")] == ids[::-1]


class TestNumbers:
    @pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
    @pytest.mark.parametrize(
        ("data", "field"),
        [
            ("struct({} as v)", "data.v"),
            ("struct(struct(array(1.5D, {}) as a) as v)", r"data.v.a\[\]"),
            ("map('k', {})", r"data\[\]"),
        ],
    )
    def test_what_json_has_no_form_for_is_refused_by_name(
        self, harness: Harness, data: str, field: str, value: str
    ) -> None:
        pipe = pipeline()

        @pipe.stream(inputs="number", output="other")
        def divide(number: DataFrame) -> DataFrame:
            shown = data.format(f"double('{value}')")
            return number.selectExpr("'Made' as type", f"{shown} as data")

        harness.write("number", 1)
        with pytest.raises(StepFailed, match=f"{field} of a message to write is .* finite number"):
            harness.step(pipe)

    def test_null_is_no_such_number(self, harness: Harness) -> None:
        pipe = pipeline()

        @pipe.stream(inputs="number", output="out")
        def compute(number: DataFrame) -> DataFrame:
            parts = "struct(cast(null as double) as a, array(1.5D, null) as b) as data"
            return number.selectExpr("'Made' as type", parts)

        harness.write("number", 1)
        harness.step(pipe)

        assert [one.data for one in harness.messages("out")] == [{"b": [1.5, None]}]


def test_what_was_staged_is_forgotten_once_it_is_published(harness: Harness, shape: str) -> None:
    pipe = pipeline()

    @pipe.stream(inputs="number", output="out", errors="lost")
    def copy(number: DataFrame) -> DataFrame:
        return renumbered(numbered(number)).withColumn("error", f.when(f.expr(TWO), "two"))

    harness.write("number", 1, 2, 3)
    harness.step(pipe)

    assert harness.rows("select count(*) from penstock.staged") == [(0,)]
    assert harness.rows("select count(*) from penstock.stagings") == [(0,)]
