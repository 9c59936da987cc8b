"""Tables are read whole, up to the snapshot; frames have what was declared, in the log's order."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame

from penstock.pipeline import Latest, Pipeline
from tests.pipeline.steps.running import Workshop, numbered, numbers_in, renumbered

Seen = list[tuple[list[int], list[int]]]


def looking_up_names() -> tuple[Pipeline, Seen]:
    """Return a pipeline of numbers that looks names up, and what it will have seen of both."""
    pipe = Pipeline("shop")
    seen: Seen = []
    pipe.queue("number")
    pipe.queue("name")

    @pipe.stream(inputs="number", tables="name", output="out")
    def see(number: DataFrame, name: DataFrame) -> None:
        seen.append((numbers_in(number), numbers_in(name)))

    return pipe, seen


class TestTables:
    def test_a_table_is_whole_however_old_its_messages_are(
        self, workshop: Workshop, shape: str
    ) -> None:
        pipe, seen = looking_up_names()

        workshop.write("name", 7, 8)
        workshop.write("number", 1)
        workshop.step(pipe)
        workshop.write("name", 9)
        workshop.write("number", 2)
        workshop.step(pipe)

        assert seen == [([1], [7, 8]), ([2], [7, 8, 9])]

    def test_an_empty_table_does_not_hold_a_step_back(self, workshop: Workshop) -> None:
        pipe, seen = looking_up_names()

        workshop.write("number", 1)
        workshop.step(pipe)

        assert seen == [([1], [])]

    def test_a_run_begins_with_those_that_fill_it(self, workshop: Workshop) -> None:
        pipe, seen = Pipeline("shop"), []
        pipe.queue("number")

        @pipe.stream(inputs="number", tables="name", output="out")
        def see(number: DataFrame, name: DataFrame) -> None:
            seen.append((numbers_in(number), numbers_in(name)))

        @pipe.stream(inputs="file", output="name")
        def parse(file: DataFrame) -> DataFrame:
            return renumbered(numbered(file), "n + 1")

        @pipe.source(output="file")
        def load() -> DataFrame:
            return workshop.spark.createDataFrame(
                [("Loaded", '{"n": 7}')], "type string, data string"
            )

        workshop.write("number", 1)
        assert workshop.run(pipe).succeeded

        assert seen == [([1], [8])]

    def test_a_step_that_is_run_again_finds_the_table_as_it_was(self, workshop: Workshop) -> None:
        pipe = Pipeline("shop")
        seen: list[list[int]] = []
        pipe.queue("number")
        pipe.queue("name")

        @pipe.stream(inputs="number", tables="name", output="out")
        def see(number: DataFrame, name: DataFrame) -> None:
            if not seen:
                workshop.write("name", 9)
            seen.append(numbers_in(name))
            if len(seen) == 1:
                raise KeyboardInterrupt

        workshop.write("name", 7)
        workshop.write("number", 1)
        with pytest.raises(KeyboardInterrupt):
            workshop.step(pipe)
        workshop.step(pipe)

        assert seen == [[7], [7]]

    def test_of_a_table_of_latest_only_the_last_message_of_each_stream_counts(
        self, workshop: Workshop, shape: str
    ) -> None:
        pipe, seen = Pipeline("shop"), []
        pipe.queue("number")

        @pipe.stream(inputs="number", tables=Latest("price"), output="price")
        def see(number: DataFrame, price: DataFrame) -> None:
            seen.append(numbers_in(price))

        workshop.write("price-a", 1, 2)
        workshop.write("price-b", 3)
        workshop.write("price-a", 4)
        workshop.write("number", 1)
        workshop.step(pipe)

        assert seen == [[3, 4]]


class TestFrames:
    def test_declared_fields_are_columns_of_a_struct(self, workshop: Workshop, shape: str) -> None:
        pipe, seen = Pipeline("shop"), []
        pipe.queue("number", "n int, missing string", metadata="by string")

        @pipe.sink(inputs="number")
        def see(number: DataFrame) -> None:
            found = number.orderBy("global_position")
            seen.extend(found.select("data.n", "data.missing", "metadata.by").collect())

        workshop.store.write_message("number-1", "Numbered", {"n": 1}, {"by": "Ada"})
        workshop.store.write_message("number-1", "Numbered", {"n": 2})
        workshop.step(pipe)

        assert [tuple(row) for row in seen] == [(1, None, "Ada"), (2, None, None)]

    def test_without_a_declaration_data_is_text(self, workshop: Workshop, shape: str) -> None:
        pipe, seen = Pipeline("shop"), []
        pipe.queue("number")

        @pipe.sink(inputs="number")
        def see(number: DataFrame) -> None:
            seen.append((dict(number.dtypes)["data"], number.collect()[0].data))

        workshop.store.write_message("number-1", "Numbered", {"n": 1})
        workshop.step(pipe)

        assert seen == [("string", '{"n": 1}')]

    def test_messages_come_out_in_the_order_in_which_they_came_in(
        self, workshop: Workshop, shape: str
    ) -> None:
        pipe = Pipeline("shop")
        pipe.queue("number")

        @pipe.stream(inputs="number", output="out", limit=40)
        def copy(number: DataFrame) -> DataFrame:
            return renumbered(numbered(number))

        order = [(7 * number) % 100 for number in range(100)]
        workshop.write("number", *order)
        lie_in_another_order(workshop)
        workshop.steps(pipe)

        assert workshop.numbers("out") == order


def lie_in_another_order(workshop: Workshop) -> None:
    """Have the messages lie in the table by their streams, and read as they lie."""
    (name,) = workshop.rows("select current_database()")[0]
    for method in ("enable_indexscan", "enable_bitmapscan", "enable_indexonlyscan"):
        workshop.execute(f"alter database {name} set {method} = off")
    workshop.execute("cluster message_store.messages using messages_stream")
