"""Messages that make a function fail go to the errors queue, once; the others flow on."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from penstock.pipeline import Delivery
from tests.pipeline.steps.poison import BAD, write_with_bad_ones
from tests.pipeline.steps.running import Harness, numbered, pipeline, renumbered


class TestSearch:
    """A step that fails is split until the message that did it stands alone."""

    def test_of_what_sparks_functions_cannot_take(self, harness: Harness, shape: str) -> None:
        pipe = pipeline()

        @pipe.stream(inputs="number", output="out", errors="lost")
        def parse(number: DataFrame) -> DataFrame:
            return renumbered(number, "cast(get_json_object(data, '$.text') as int)")

        write_with_bad_ones(harness, 6)
        reports = harness.steps(pipe)

        assert harness.numbers("out") == [0, 1, 2, 5]
        assert harness.numbers("lost") == [3, 4]
        assert sum(one.messages_out for one in reports) == 4
        assert sum(one.failed for one in reports) == 2
        assert sum(one.messages_in for one in reports) == 6

    def test_of_what_python_in_a_task_cannot_take(self, harness: Harness, shape: str) -> None:
        pipe = pipeline()

        def parse_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                texts = [json.loads(one)["text"] for one in batch.column("data").to_pylist()]
                data = [json.dumps({"n": int(text)}) for text in texts]
                types = ["Parsed"] * len(data)
                yield pa.RecordBatch.from_pydict({"type": types, "data": data})

        @pipe.stream(inputs="number", output="out", errors="lost")
        def parse(number: DataFrame) -> DataFrame:
            return number.mapInArrow(parse_batches, "type string, data string")

        write_with_bad_ones(harness, 5)
        harness.steps(pipe)

        assert harness.numbers("out") == [0, 1, 2]
        assert harness.numbers("lost") == [3, 4]
        (first, _) = harness.messages("lost")
        assert first.metadata is not None
        assert first.metadata["error"] == (
            "ValueError: invalid literal for int() with base 10: 'bad 3'"
        )

    def test_of_what_the_function_itself_cannot_take(self, harness: Harness) -> None:
        pipe = pipeline()

        @pipe.stream(inputs="number", output="out", errors="lost")
        def parse(number: DataFrame) -> DataFrame:
            for row in number.collect():
                int(json.loads(row.data)["text"])
            return renumbered(numbered(number))

        write_with_bad_ones(harness)
        harness.steps(pipe)

        assert harness.numbers("out") == [0, 1, 2, 5, 6, 7, 8]
        assert harness.numbers("lost") == list(BAD)

    def test_of_what_does_not_read_as_declared(self, harness: Harness, shape: str) -> None:
        pipe = pipeline("n int, text int")

        @pipe.stream(inputs="number", output="out", errors="lost")
        def parse(number: DataFrame) -> DataFrame:
            return number

        write_with_bad_ones(harness, 6)
        harness.steps(pipe)

        assert harness.numbers("out") == [0, 1, 2, 5]
        assert harness.numbers("lost") == [3, 4]

    def test_of_what_makes_no_message(self, harness: Harness, shape: str) -> None:
        pipe = pipeline()

        @pipe.stream(inputs="number", output="out", errors="lost")
        def pass_on(number: DataFrame) -> DataFrame:
            bad = "get_json_object(data, '$.text') like 'bad%'"
            return number.withColumn("data", f.expr(f"if({bad}, 'no json', data)"))

        write_with_bad_ones(harness, 6)
        harness.steps(pipe)

        assert harness.numbers("out") == [0, 1, 2, 5]
        assert harness.numbers("lost") == [3, 4]

    def test_of_a_sink(self, harness: Harness) -> None:
        pipe = pipeline()
        seen: list[int] = []

        @pipe.sink(inputs="number", errors="lost")
        def see(number: DataFrame, delivery: Delivery) -> None:
            seen.extend(int(json.loads(row.data)["text"]) for row in number.collect())

        write_with_bad_ones(harness)
        harness.steps(pipe)

        assert set(seen) == {0, 1, 2, 5, 6, 7, 8}
        assert harness.numbers("lost") == list(BAD)

    def test_of_alternatives(self, harness: Harness) -> None:
        pipe = pipeline()
        pipe.schema("other")

        @pipe.stream(alts=["other", "number"], output="out", errors="lost")
        def parse(messages: DataFrame) -> DataFrame:
            return renumbered(messages, "cast(get_json_object(data, '$.text') as int)")

        write_with_bad_ones(harness, 6)
        harness.write("other", 20, 21, text="21")
        harness.write("other", 22, text="bad")
        harness.steps(pipe)

        assert harness.numbers("out") == [21, 21, 0, 1, 2, 5]
        assert harness.numbers("lost") == [22, 3, 4]

    def test_among_messages_of_other_types(self, harness: Harness) -> None:
        pipe = pipeline()

        @pipe.stream(inputs="number", output="out", errors="lost", types=["Wanted"])
        def parse(number: DataFrame) -> DataFrame:
            return renumbered(number, "cast(get_json_object(data, '$.text') as int)")

        for number in range(12):
            type = "Wanted" if number % 4 == 0 else "Other"
            harness.write("number", number, type=type, text="bad" if number == 8 else str(number))
        harness.steps(pipe)

        assert harness.numbers("out") == [0, 4]
        assert harness.numbers("lost") == [8]


class TestMessage:
    def test_it_is_a_copy_that_tells_what_was_wrong_and_where_it_came_from(
        self, harness: Harness
    ) -> None:
        pipe = pipeline()

        @pipe.stream(inputs="number", output="out", errors="lost")
        def fail(number: DataFrame) -> DataFrame:
            for _ in number.collect():
                raise ValueError("no such number")
            return number

        harness.store.write_message(
            "number-1", "Numbered", {"n": 1}, {"correlation_id": "c-1", "by": "Ada"}
        )
        harness.steps(pipe)

        (bad,), (lost,) = harness.messages("number"), harness.messages("lost")
        assert (lost.type, lost.data) == ("Numbered", {"n": 1})
        assert lost.metadata == {
            "error": "ValueError: no such number",
            "failed_stream_name": "number-1",
            "failed_global_position": bad.global_position,
            "correlation_id": "c-1",
            "causation_id": str(bad.id),
            "by": "Ada",
            "pipeline": "shop",
            "processor": "fail",
            "delivery": harness.records(pipe)[-1].data["hash"],
        }

    def test_an_errors_queue_may_be_a_stream(self, harness: Harness) -> None:
        pipe = pipeline()

        @pipe.stream(inputs="number", output="out", errors="lost-1")
        def fail(number: DataFrame) -> DataFrame:
            for _ in number.collect():
                raise ValueError("no such number")
            return number

        harness.write("number", 1, 2)
        harness.steps(pipe)

        assert harness.numbers("lost-1") == [1, 2]
