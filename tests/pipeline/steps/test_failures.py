"""A function that fails stops its processor with the cause; it resumes where it stopped."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from penstock.errors import DatabaseUnreachable, StepFailed, WrongColumns, WrongValue
from penstock.pipeline import Pipeline
from penstock.pipeline.failures import may_be_data
from tests.pipeline.steps.running import Harness, numbered, renumbered


def failing(returned: object, output: tuple[str, ...] = ("out",)) -> Pipeline:
    """Return a pipeline whose function returns something, or calls it with its frame."""
    pipe = Pipeline("shop")
    pipe.schema("number")

    @pipe.stream(inputs="number", output=output)
    def bill(number: DataFrame) -> object:
        return returned(number) if callable(returned) else returned

    return pipe


def raising(number: DataFrame) -> None:
    raise RuntimeError("out of paper\nand out of ink")


def failing_in_a_task(number: DataFrame) -> DataFrame:
    parse = f.udf(lambda text: int(text), "int")
    return number.selectExpr("type", "data").withColumn(
        "data", f.to_json(f.struct(parse("data").alias("n")))
    )


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        (raising, "RuntimeError: out of paper"),
        (failing_in_a_task, "ValueError: invalid literal for int() with base 10: '{\"n\": 1}'"),
        (
            lambda number: number.withColumn("data", f.expr("string(int(data))")),
            "[CAST_INVALID_INPUT]",
        ),
        (lambda number: number.select("colour"), "AnalysisException: [UNRESOLVED_COLUMN"),
        (42, "WrongColumns: bill returned 42; it must return a DataFrame"),
        ([], "WrongColumns: bill returned []; it must return a DataFrame"),
        ({"elsewhere": None}, "WrongColumns: bill returned {'elsewhere': None}; it must"),
        ({"out": 5}, "WrongColumns: bill returned 5 for out; it must return a DataFrame"),
        (lambda number: number.select("type"), "WrongColumns: column data is missing"),
        (lambda number: number.select("data"), "WrongColumns: column type is missing"),
        (
            lambda number: number.withColumn("colour", f.lit("red")),
            "WrongColumns: column colour is not one of a message",
        ),
        (
            lambda number: number.withColumn("data", f.lit(5)),
            "WrongColumns: column data is int; it has to be",
        ),
        (
            lambda number: number.withColumn("data", f.lit("text")),
            "WrongValue: data of a message to write is 'text'",
        ),
        (
            lambda number: number.withColumn("type", f.lit("")),
            "WrongValue: type of a message to write is ''",
        ),
        (lambda number: number.select("type", "data", "id"), "DuplicateMessageId: "),
        (
            lambda number: number.select("type", "data").withColumn("stream_name", f.lit("x-1")),
            "WrongValue: stream_name of a message to write is 'x-1'",
        ),
        (
            lambda number: (
                number.select("type", "data")
                .withColumn("stream_name", f.lit("out-1"))
                .withColumn("expected_version", f.lit(7))
            ),
            "WrongExpectedVersion: ",
        ),
    ],
)
def test_it_is_reported_where_and_why_and_nothing_was_published(
    harness: Harness, returned: object, reason: str
) -> None:
    pipe = failing(returned)
    harness.write("number", 1)

    with pytest.raises(StepFailed) as caught:
        harness.step(pipe)

    where = pipe.processors["bill"].location
    assert caught.value.processor == "bill"
    assert caught.value.location == where
    assert where.startswith("test_failures.py:")
    assert str(caught.value).startswith(f"processor bill ({where}) failed: ")
    assert reason in caught.value.reason
    assert "\n" not in caught.value.reason
    assert harness.status(pipe).error == caught.value.reason
    assert harness.messages("out") == []
    assert [one.type for one in harness.records(pipe)] == ["Snapshot"]


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        (("left", "right"), "it must return DataFrames by queue: left, right"),
        ((), "it has no output, so it must return None"),
    ],
)
def test_a_frame_that_belongs_to_no_output_is_refused(
    harness: Harness, outputs: tuple[str, ...], expected: str
) -> None:
    pipe = failing(lambda number: number, outputs)
    harness.write("number", 1)

    with pytest.raises(StepFailed, match=expected):
        harness.step(pipe)


def test_mended_it_resumes_where_it_stopped(harness: Harness) -> None:
    broken = failing(raising)
    mended = failing(lambda number: renumbered(numbered(number)))
    harness.write("number", 1, 2)
    with pytest.raises(StepFailed):
        harness.step(broken)
    harness.write("number", 3)

    harness.steps(mended)

    assert harness.numbers("out") == [1, 2, 3]
    assert harness.status(mended).error is None
    assert harness.records(mended)[0].data["ranges"] == {"number": [0, 2]}
    assert [one.type for one in harness.records(mended)] == 2 * ["Snapshot", "Attempt"]


def test_the_error_is_there_until_it_is_tried_again(harness: Harness) -> None:
    broken = failing(raising)
    harness.write("number", 1)
    for _ in range(2):
        with pytest.raises(StepFailed):
            harness.step(broken)

    status = harness.status(broken)
    assert status.error == "RuntimeError: out of paper"
    assert status.error_at is not None
    assert (status.steps, status.lag) == (0, 1)


class TestInATask:
    """Only the text of an exception leaves a task; an error of Penstock's has its mark there."""

    @staticmethod
    def failing(error: Exception) -> Pipeline:
        def fail(text: str) -> str:
            raise error

        changed = f.udf(fail, "string")
        return failing(lambda number: number.select("type", changed("data").alias("data")))

    def test_a_database_that_is_away_is_known_by_its_mark(self, harness: Harness) -> None:
        pipe = self.failing(DatabaseUnreachable("there", "it is gone"))
        harness.write("number", 1)

        with pytest.raises(DatabaseUnreachable):
            harness.step(pipe)

        assert harness.status(pipe).error is None

    def test_its_name_in_another_error_is_no_mark(self, harness: Harness) -> None:
        text = "penstock.errors.database.DatabaseUnreachable: PostgreSQL at there"
        pipe = self.failing(ValueError(text))
        harness.write("number", 1)

        with pytest.raises(StepFailed, match="ValueError: penstock"):
            harness.step(pipe)

    def test_a_wrong_value_is_the_messages_fault_and_wrong_columns_are_not(
        self, harness: Harness
    ) -> None:
        found = []
        for error in (WrongValue("n", "x", "int", 1), WrongColumns("none", "some")):
            harness.write("number", 1)
            with pytest.raises(StepFailed) as caught:
                harness.step(self.failing(error))
            found.append(may_be_data(caught.value.__cause__ or caught.value))

        assert found == [True, False]
