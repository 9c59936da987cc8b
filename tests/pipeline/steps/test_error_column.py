"""A column for errors is the quick way to the errors queue; and what is no poison at all."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from penstock.errors import StepFailed
from tests.pipeline.steps.poison import BAD, write_with_bad_ones
from tests.pipeline.steps.running import Harness, numbered, pipeline, renumbered


class TestColumn:
    """A row that has an error goes to the errors queue at once: nothing is run again."""

    def test_rows_with_an_error_go_to_the_errors_queue_and_the_others_out(
        self, harness: Harness, shape: str
    ) -> None:
        pipe = pipeline()

        @pipe.stream(inputs="number", output="out", errors="lost", limit=6)
        def check(number: DataFrame) -> DataFrame:
            bad = f.expr("if(get_json_object(data, '$.text') like 'bad%', 'it is bad', null)")
            return renumbered(numbered(number.withColumn("error", bad))).join(
                number.select("global_position", bad.alias("error")), "global_position"
            )

        write_with_bad_ones(harness)
        reports = harness.steps(pipe)

        assert sorted(harness.numbers("out")) == [0, 1, 2, 5, 6, 7, 8]
        assert sorted(harness.numbers("lost")) == list(BAD)
        assert [(one.messages_out, one.failed) for one in reports] == [(4, 2), (3, 1)]
        assert {(one.metadata or {})["error"] for one in harness.messages("lost")} == {"it is bad"}

    def test_a_message_goes_there_once_however_many_of_its_rows_are_wrong(
        self, harness: Harness, shape: str
    ) -> None:
        pipe = pipeline()

        @pipe.stream(inputs="number", output=["out", "copy"], errors="lost")
        def check(number: DataFrame) -> dict[str, DataFrame]:
            lines = numbered(number).withColumn("line", f.expr("explode(sequence(1, 3))"))
            bad = "if(n = 2 and line < 3, concat('line ', line, ' is bad'), null) as error"
            made = lines.repartition(2, "line").sortWithinPartitions("line").selectExpr(
                "id", "global_position", "'Checked' as type", "struct(n) as data", bad
            )  # fmt: skip
            return {"out": made, "copy": made}

        harness.write("number", 1, 2)
        [report] = harness.steps(pipe)

        [lost] = harness.messages("lost")
        assert (lost.metadata or {})["error"] in ("line 1 is bad", "line 2 is bad")
        assert sorted(harness.numbers("out")) == sorted(harness.numbers("copy")) == [1, 1, 1, 2]
        assert (report.messages_out, report.failed) == (8, 1)

    def test_a_step_of_errors_only_is_an_attempt(self, harness: Harness) -> None:
        pipe = pipeline()

        @pipe.stream(inputs="number", output="out", errors="lost")
        def refuse(number: DataFrame) -> DataFrame:
            return number.withColumn("error", f.lit("all wrong"))

        harness.write("number", 1, 2)
        harness.step(pipe)

        assert harness.numbers("lost") == [1, 2]
        assert [one.type for one in harness.records(pipe)] == ["Snapshot", "Attempt"]

    @pytest.mark.parametrize(("errors", "columns"), [(None, ["*"]), ("lost", ["type", "data"])])
    def test_it_needs_an_errors_queue_and_the_position(
        self, harness: Harness, errors: str | None, columns: list[str]
    ) -> None:
        pipe = pipeline()

        @pipe.stream(inputs="number", output="out", errors=errors)
        def refuse(number: DataFrame) -> DataFrame:
            return number.select(*columns).withColumn("error", f.lit("all wrong"))

        harness.write("number", 1)
        with pytest.raises(StepFailed, match="a column error needs an errors queue, and its input"):
            harness.step(pipe)


class TestForeign:
    """An error that belongs to no message of the step is refused: nobody would see it."""

    @pytest.mark.parametrize(
        ("position", "shown"),
        [
            ("cast(null as bigint)", "None"),
            ("global_position + 1000000", "10000"),
            ("(select min(global_position) from other)", ""),
        ],
        ids=["null", "of no message", "of another queue"],
    )
    def test_it_stops_the_step_and_names_the_position(
        self, harness: Harness, shape: str, position: str, shown: str
    ) -> None:
        pipe = pipeline()
        pipe.schema("other")

        @pipe.stream(inputs="number", tables="other", output="out", errors="lost")
        def check(number: DataFrame, other: DataFrame) -> DataFrame:
            other.createOrReplaceTempView("other")
            return number.selectExpr(
                "id", f"{position} as global_position", "type", "data",
                "if(data like '%2%', 'it is two', null) as error",
            )  # fmt: skip

        harness.write("other", 7)
        harness.write("number", 1, 2, 3)
        with pytest.raises(StepFailed) as caught:
            harness.steps(pipe)

        reason = caught.value.reason
        assert "InvalidErrorRow: an error row has global_position" in reason
        assert "not a message of the step's input number" in reason
        assert shown in reason
        assert "it is two" in reason
        assert (harness.messages("out"), harness.messages("lost")) == ([], [])

    def test_of_a_message_that_came_before(self, harness: Harness) -> None:
        pipe = pipeline()

        @pipe.stream(inputs="number", output="out", errors="lost", limit=1)
        def check(number: DataFrame) -> DataFrame:
            first = "if(data like '%2%', 1L, global_position) as global_position"
            return number.selectExpr(
                "id", first, "type", "data", "if(data like '%2%', 'two', null) as error"
            )

        harness.write("number", 1, 2)
        with pytest.raises(StepFailed, match=r"InvalidErrorRow: .* global_position 1, which is no"):
            harness.steps(pipe)

        assert (harness.numbers("out"), harness.messages("lost")) == ([1], [])

    def test_a_position_that_is_no_whole_number_is_refused(self, harness: Harness) -> None:
        pipe = pipeline()

        @pipe.stream(inputs="number", output="out", errors="lost")
        def check(number: DataFrame) -> DataFrame:
            text = number.withColumn("global_position", f.expr("string(global_position)"))
            return text.withColumn("error", f.lit("wrong"))

        harness.write("number", 1)
        with pytest.raises(StepFailed, match="column global_position is string"):
            harness.steps(pipe)


def test_metadata_that_is_no_object_is_the_message_s_fault(harness: Harness) -> None:
    pipe = pipeline()

    @pipe.stream(inputs="number", output="out", errors="lost")
    def tag(number: DataFrame) -> DataFrame:
        tags = f.expr("if(n = 2, '[1]', '{}')")
        return renumbered(numbered(number).withColumn("metadata", tags))

    harness.write("number", 1, 2, 3)
    harness.steps(pipe)

    assert (harness.numbers("out"), harness.numbers("lost")) == ([1, 3], [2])
    [lost] = harness.messages("lost")
    assert "metadata of a message to write is '[1]'" in (lost.metadata or {})["error"]


class TestNoSearch:
    """What is nobody's data to blame for stops the processor, errors queue or not."""

    @pytest.mark.parametrize(
        "reason",
        ["no such column", "no frame", "wrong columns", "the machine"],
    )
    def test_a_mistake_is_no_poison(self, harness: Harness, reason: str) -> None:
        pipe = pipeline()

        @pipe.stream(inputs="number", output="out", errors="lost")
        def fail(number: DataFrame) -> object:
            if reason == "no such column":
                return number.select("colour")
            if reason == "no frame":
                return 42
            if reason == "wrong columns":
                return number.selectExpr("type", "1 as data")
            raise OSError("the disk is full")

        harness.write("number", 1, 2)
        with pytest.raises(StepFailed):
            harness.steps(pipe)

        assert harness.messages("lost") == []
        assert [one.type for one in harness.records(pipe)] == ["Snapshot"]
