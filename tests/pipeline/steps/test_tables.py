"""Tables are read whole, up to the snapshot; frames have what was declared, in the log's order."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame

from penstock.pipeline import Latest, Pipeline
from tests.pipeline.steps.running import Harness, numbered, numbers_in, renumbered

Seen = list[tuple[list[int], list[int]]]


def looking_up_names() -> tuple[Pipeline, Seen]:
    """Return a pipeline of numbers that looks names up, and what it will have seen of both."""
    pipe = Pipeline("shop")
    seen: Seen = []
    pipe.schema("number")
    pipe.schema("name")

    @pipe.stream(inputs="number", tables="name", output="out")
    def see(number: DataFrame, name: DataFrame) -> None:
        seen.append((numbers_in(number), numbers_in(name)))

    return pipe, seen


class TestTables:
    def test_a_table_is_whole_however_old_its_messages_are(
        self, harness: Harness, shape: str
    ) -> None:
        pipe, seen = looking_up_names()

        harness.write("name", 7, 8)
        harness.write("number", 1)
        harness.step(pipe)
        harness.write("name", 9)
        harness.write("number", 2)
        harness.step(pipe)

        assert seen == [([1], [7, 8]), ([2], [7, 8, 9])]

    def test_an_empty_table_does_not_hold_a_step_back(self, harness: Harness) -> None:
        pipe, seen = looking_up_names()

        harness.write("number", 1)
        harness.step(pipe)

        assert seen == [([1], [])]

    def test_a_run_begins_with_those_that_fill_it(self, harness: Harness) -> None:
        pipe, seen = Pipeline("shop"), []
        pipe.schema("number")

        @pipe.stream(inputs="number", tables="name", output="out")
        def see(number: DataFrame, name: DataFrame) -> None:
            seen.append((numbers_in(number), numbers_in(name)))

        @pipe.stream(inputs="file", output="name")
        def parse(file: DataFrame) -> DataFrame:
            return renumbered(numbered(file), "n + 1")

        @pipe.source(output="file")
        def load() -> DataFrame:
            return harness.spark.createDataFrame(
                [("Loaded", '{"n": 7}')], "type string, data string"
            )

        harness.write("number", 1)
        assert harness.run(pipe).succeeded

        assert seen == [([1], [8])]

    def test_a_step_that_is_run_again_finds_the_table_as_it_was(self, harness: Harness) -> None:
        pipe = Pipeline("shop")
        seen: list[list[int]] = []
        pipe.schema("number")
        pipe.schema("name")

        @pipe.stream(inputs="number", tables="name", output="out")
        def see(number: DataFrame, name: DataFrame) -> None:
            if not seen:
                harness.write("name", 9)
            seen.append(numbers_in(name))
            if len(seen) == 1:
                raise KeyboardInterrupt

        harness.write("name", 7)
        harness.write("number", 1)
        with pytest.raises(KeyboardInterrupt):
            harness.step(pipe)
        harness.step(pipe)

        assert seen == [[7], [7]]

    def test_of_a_table_of_latest_only_the_last_message_of_each_stream_counts(
        self, harness: Harness, shape: str
    ) -> None:
        pipe, seen = Pipeline("shop"), []
        pipe.schema("number")

        @pipe.stream(inputs="number", tables=Latest("price"), output="price")
        def see(number: DataFrame, price: DataFrame) -> None:
            seen.append(numbers_in(price))

        harness.write("price-a", 1, 2)
        harness.write("price-b", 3)
        harness.write("price-a", 4)
        harness.write("number", 1)
        harness.step(pipe)

        assert seen == [[3, 4]]


class TestFrames:
    def test_declared_fields_are_columns_of_a_struct(self, harness: Harness, shape: str) -> None:
        pipe, seen = Pipeline("shop"), []
        pipe.schema("number", "n int, missing string", metadata="by string")

        @pipe.sink(inputs="number")
        def see(number: DataFrame) -> None:
            found = number.orderBy("global_position")
            seen.extend(found.select("data.n", "data.missing", "metadata.by").collect())

        harness.store.write_message("number-1", "Numbered", {"n": 1}, {"by": "Ada"})
        harness.store.write_message("number-1", "Numbered", {"n": 2})
        harness.step(pipe)

        assert [tuple(row) for row in seen] == [(1, None, "Ada"), (2, None, None)]

    def test_without_a_declaration_data_is_text(self, harness: Harness, shape: str) -> None:
        pipe, seen = Pipeline("shop"), []
        pipe.schema("number")

        @pipe.sink(inputs="number")
        def see(number: DataFrame) -> None:
            seen.append((dict(number.dtypes)["data"], number.collect()[0].data))

        harness.store.write_message("number-1", "Numbered", {"n": 1})
        harness.step(pipe)

        assert seen == [("string", '{"n": 1}')]

    def test_messages_come_out_in_the_order_in_which_they_came_in(
        self, harness: Harness, shape: str
    ) -> None:
        pipe = Pipeline("shop")
        pipe.schema("number")

        @pipe.stream(inputs="number", output="out", limit=40)
        def copy(number: DataFrame) -> DataFrame:
            return renumbered(numbered(number))

        order = [(7 * number) % 100 for number in range(100)]
        harness.write("number", *order)
        lie_in_another_order(harness)
        harness.steps(pipe)

        assert harness.numbers("out") == order


def lie_in_another_order(harness: Harness) -> None:
    """Have the messages lie in the table by their streams, and read as they lie."""
    (name,) = harness.rows("select current_database()")[0]
    for method in ("enable_indexscan", "enable_bitmapscan", "enable_indexonlyscan"):
        harness.execute(f"alter database {name} set {method} = off")
    harness.execute("cluster message_store.messages using messages_stream")
