"""A fault that is no message's stops the processor: no message goes to the errors queue for it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from penstock.errors import StepFailed
from penstock.pipeline import Delivery, Pipeline
from tests.pipeline.steps.running import Harness, Stop, numbered, pipeline, renumbered

pytestmark = pytest.mark.usefixtures("compiled_queries")

ORDERS = tuple(range(20))
SETTINGS: dict[str, str] = {}


def stopped(harness: Harness, pipe: Pipeline) -> str:
    """Run steps until the processor stops; return why."""
    with pytest.raises(StepFailed) as caught:
        harness.steps(pipe)
    return caught.value.reason


class TestTable:
    """A value in a table is no input's fault."""

    @pytest.mark.parametrize("where", ["driver", "executors"])
    @pytest.mark.parametrize(
        ("schema", "price"),
        [("cents int", "data.cents"), (None, "cast(get_json_object(data, '$.cents') as int)")],
        ids=["that does not read as declared", "that the function cannot take"],
    )
    def test_a_bad_row_of_a_table(
        self,
        harness: Harness,
        schema: str | None,
        price: str,
        where: str,
    ) -> None:
        pipe = pipeline()
        pipe.schema("price", schema)

        @pipe.stream(inputs="number", tables="price", output="out", errors="lost")
        def bill(number: DataFrame, price: DataFrame, column: str = price) -> DataFrame:
            found = price.selectExpr(f"{column} as cents").groupBy().sum("cents")
            return renumbered(numbered(number).crossJoin(found), "`sum(cents)`")

        harness.write("number", *ORDERS)
        harness.write("price", 1, 2, cents=5)
        harness.write("price", 3, cents="dear")
        if where == "executors":
            harness.driver_rows = 0

        reason = stopped(harness, pipe)

        assert "dear" in reason
        assert (harness.messages("lost"), harness.messages("out")) == ([], [])

    def test_a_bad_row_that_only_some_inputs_meet(self, harness: Harness, shape: str) -> None:
        pipe = pipeline()
        pipe.schema("price")

        @pipe.stream(inputs="number", tables="price", output="out", errors="lost")
        def bill(number: DataFrame, price: DataFrame) -> DataFrame:
            prices = numbered(price).selectExpr("n as p", "get_json_object(data, '$.cents') cents")
            joined = numbered(number).join(prices, f.expr("n % 4 = p"))
            return renumbered(joined, "cast(cents as int)")

        harness.write("number", *ORDERS)
        for number in range(4):
            harness.write("price", number, cents="dear" if number == 3 else number)

        reason = stopped(harness, pipe)

        assert "dear" in reason
        assert "price" in reason
        assert harness.messages("lost") == []


def of_a_missing_setting(text: str) -> int:
    return int(text) * int(SETTINGS["rate"])


def of_a_service(text: str) -> int:
    raise ConnectionRefusedError(111, f"nobody listens for {text}")


def of_a_missing_module(text: str) -> int:
    import module_that_is_not_there  # type: ignore[import-not-found]

    return int(module_that_is_not_there.rate(text))


def of_no_memory(text: str) -> int:
    raise MemoryError(text)


def of_a_mistyped_name(text: str) -> int:
    return rate(text)  # type: ignore[name-defined, no-any-return]  # noqa: F821


FAULTS: list[Callable[[str], int]] = [
    of_a_missing_setting, of_a_service, of_a_missing_module, of_no_memory, of_a_mistyped_name,
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=lambda one: one.__name__)
class TestFunction:
    """What fails for every message is none's fault."""

    def test_in_a_task(self, harness: Harness, fault: Callable[[str], int]) -> None:
        pipe, convert = pipeline(), f.udf(fault, "int")

        @pipe.stream(inputs="number", output="out", errors="lost")
        def bill(number: DataFrame) -> DataFrame:
            return renumbered(numbered(number).withColumn("n", convert(f.expr("string(n)"))))

        harness.write("number", *ORDERS)
        stopped(harness, pipe)

        assert (harness.messages("lost"), harness.messages("out")) == ([], [])

    def test_in_the_function_itself(self, harness: Harness, fault: Callable[[str], int]) -> None:
        pipe = pipeline()

        @pipe.stream(inputs="number", output="out", errors="lost")
        def bill(number: DataFrame) -> DataFrame:
            rate = fault("1")
            return renumbered(numbered(number), f"n * {rate}")

        harness.write("number", *ORDERS)
        stopped(harness, pipe)

        assert (harness.messages("lost"), harness.messages("out")) == ([], [])


class TestInARow:
    def test_messages_that_all_fail_for_one_reason_stop_the_processor(
        self, harness: Harness
    ) -> None:
        pipe = pipeline()

        @pipe.stream(inputs="number", output="out", errors="lost", max_consecutive_errors=3)
        def bill(number: DataFrame) -> DataFrame:
            return renumbered(numbered(number), "if(n >= 2, raise_error('closed'), n)")

        harness.write("number", *range(8))
        reason = stopped(harness, pipe)

        assert "3 messages in a row" in reason
        assert "closed" in reason
        assert (harness.numbers("out"), harness.numbers("lost")) == ([0, 1], [])

    def test_fewer_are_the_messages_fault(self, harness: Harness) -> None:
        pipe = pipeline()

        @pipe.stream(inputs="number", output="out", errors="lost", max_consecutive_errors=3)
        def bill(number: DataFrame) -> DataFrame:
            return renumbered(numbered(number), "if(n in (2, 3, 5, 6), raise_error('odd'), n)")

        harness.write("number", *range(8))
        harness.steps(pipe)

        assert (harness.numbers("out"), harness.numbers("lost")) == ([0, 1, 4, 7], [2, 3, 5, 6])

    def test_messages_that_come_one_by_one_count_as_well(self, harness: Harness) -> None:
        pipe = pipeline()

        @pipe.sink(inputs="number", errors="lost", max_consecutive_errors=3)
        def send(number: DataFrame) -> None:
            for _ in number.collect():
                raise ValueError("closed")

        harness.write("number", *range(8))
        reason = stopped(harness, pipe)

        assert "3 messages in a row" in reason
        assert harness.numbers("lost") == [0, 1]

    def test_reasons_that_differ_are_the_messages_own(self, harness: Harness) -> None:
        pipe = pipeline()

        @pipe.stream(inputs="number", output="out", errors="lost", max_consecutive_errors=3)
        def bill(number: DataFrame) -> DataFrame:
            return renumbered(numbered(number), "if(n >= 2, raise_error(string(n)), n)")

        harness.write("number", *range(8))
        harness.steps(pipe)

        assert (harness.numbers("out"), harness.numbers("lost")) == ([0, 1], [2, 3, 4, 5, 6, 7])

    def test_a_mistake_in_the_ids_of_all_is_no_message_s_fault(self, harness: Harness) -> None:
        pipe = pipeline()

        @pipe.stream(inputs="number", output="out", errors="lost")
        def copy(number: DataFrame) -> DataFrame:
            return number.select("id", "type", "data")

        harness.write("number", *ORDERS)
        reason = stopped(harness, pipe)

        assert "DuplicateMessageId" in reason
        assert harness.messages("lost") == []

    def test_nothing_that_was_tried_is_left_behind(self, harness: Harness) -> None:
        pipe = pipeline()

        @pipe.stream(inputs="number", output="out", errors="lost")
        def bill(number: DataFrame) -> DataFrame:
            return renumbered(numbered(number), "if(n = 2, raise_error('closed'), n)")

        harness.write("number", *range(5))
        harness.steps(pipe)

        assert (harness.numbers("out"), harness.numbers("lost")) == ([0, 1, 3, 4], [2])
        assert harness.rows("select count(*) from penstock.staged") == [(0,)]


class TestEmpty:
    def test_a_sink_that_cannot_do_without_rows_still_finds_the_bad_one(
        self, harness: Harness
    ) -> None:
        pipe = pipeline()
        sent: list[int] = []

        @pipe.sink(inputs="number", errors="lost")
        def send(number: DataFrame) -> None:
            rows = [json.loads(row.data) for row in number.collect()]
            assert rows[0] is not None  # an IndexError without rows
            sent.extend(10 // (row["n"] - 2) for row in rows)

        harness.write("number", 1, 2, 3)
        harness.steps(pipe)

        assert harness.numbers("lost") == [2]

    def test_no_message_is_blamed_for_what_fails_without_any(self, harness: Harness) -> None:
        pipe = pipeline()

        @pipe.stream(inputs="number", output="out", errors="lost")
        def bill(number: DataFrame) -> DataFrame:
            raise ValueError("no rate is set")

        harness.write("number", 1)
        reason = stopped(harness, pipe)

        assert reason == "ValueError: no rate is set (it fails without any message, too)"
        assert harness.messages("lost") == []

    def test_a_step_that_dies_while_it_looks_is_taken_up_again(self, harness: Harness) -> None:
        pipe, calls = pipeline(), []

        @pipe.sink(inputs="number", errors="lost")
        def send(number: DataFrame, delivery: Delivery) -> None:
            calls.append(delivery.hash)
            if len(calls) == 2:
                raise Stop
            [int(json.loads(row.data)["text"]) for row in number.collect()]

        harness.write("number", 1, text="1")
        harness.write("number", 2, text="bad")
        with pytest.raises(Stop):
            harness.steps(pipe)
        harness.steps(pipe)

        assert harness.numbers("lost") == [2]
