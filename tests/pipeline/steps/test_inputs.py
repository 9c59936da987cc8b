"""What a step reads: all inputs or the first alternative, whole tables, types, limits, order."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame

from penstock.pipeline import Delivery, Latest, Pipeline
from tests.pipeline.steps.workshop import Workshop, numbered, renumbered


def list_numbers(frame: DataFrame) -> list[int]:
    return [row.n for row in numbered(frame).orderBy("global_position").collect()]


class TestInputs:
    def test_a_step_waits_until_each_of_them_has_messages(self, workshop: Workshop) -> None:
        pipe, seen = Pipeline("shop"), []
        pipe.queue("left")
        pipe.queue("right")

        @pipe.stream(inputs=["left", "right"], output="out")
        def pair(left: DataFrame, right: DataFrame) -> None:
            seen.append((list_numbers(left), list_numbers(right)))

        workshop.write("left", 1, 2)
        assert workshop.step(pipe) is None
        workshop.write("right", 3)
        workshop.step(pipe)
        workshop.write("right", 4)
        assert workshop.step(pipe) is None
        workshop.write("left", 5)
        workshop.step(pipe)

        assert seen == [([1, 2], [3]), ([5], [4])]

    def test_a_step_takes_as_many_messages_of_each_as_the_limit_says(
        self, workshop: Workshop
    ) -> None:
        pipe, seen = Pipeline("shop"), []
        pipe.queue("left")
        pipe.queue("right")

        @pipe.sink(inputs=["left", "right"], limit=2)
        def pair(left: DataFrame, right: DataFrame) -> None:
            seen.append((list_numbers(left), list_numbers(right)))

        workshop.write("left", 1, 2, 3)
        workshop.write("right", 4, 5, 6, 7, 8)
        reports = workshop.steps(pipe)

        assert seen == [([1, 2], [4, 5]), ([3], [6, 7])]
        assert [one.messages_in for one in reports] == [4, 3]

    def test_a_stream_is_a_queue_too(self, workshop: Workshop, shape: str) -> None:
        pipe = Pipeline("shop")
        pipe.queue("number-1")

        @pipe.stream(inputs="number-1", output="copy-1", limit=2)
        def copy(number_1: DataFrame) -> DataFrame:
            return renumbered(numbered(number_1))

        workshop.write("number-2", 9)
        workshop.write("number-1", 1, 2, 3)
        workshop.steps(pipe)

        assert workshop.numbers("copy-1") == [1, 2, 3]
        assert [one.position for one in workshop.messages("copy-1")] == [0, 1, 2]

    def test_messages_that_are_not_complete_yet_wait_for_the_watermark(
        self, workshop: Workshop
    ) -> None:
        pipe, seen = Pipeline("shop"), []
        pipe.queue("number")

        @pipe.sink(inputs="number")
        def see(number: DataFrame) -> None:
            seen.append(list_numbers(number))

        workshop.write("number", 1)
        with workshop.store.transaction() as open_one:
            open_one.write_message("number-2", "Numbered", {"n": 2})
            workshop.write("number", 3)
            workshop.steps(pipe)
        workshop.steps(pipe)

        assert seen == [[1], [2, 3]]

    def test_two_processors_read_a_queue_each_at_its_own_pace(self, workshop: Workshop) -> None:
        pipe, seen = Pipeline("shop"), []
        pipe.queue("number")

        def reader(name: str) -> Callable[[DataFrame], None]:
            @pipe.sink(inputs="number", name=name)
            def see(number: DataFrame) -> None:
                seen.append((name, list_numbers(number)))

            return see

        reader("one"), reader("two")
        workshop.write("number", 1)
        workshop.step(pipe, "one")
        workshop.write("number", 2)
        workshop.step(pipe, "one")
        workshop.step(pipe, "two")

        assert seen == [("one", [1]), ("one", [2]), ("two", [1, 2])]


class TestAlts:
    def test_a_step_takes_the_first_that_has_messages_and_remembers_which(
        self, workshop: Workshop
    ) -> None:
        pipe, seen = Pipeline("shop"), []
        pipe.queue("urgent")
        pipe.queue("normal")

        @pipe.stream(alts=["urgent", "normal"], output="out", limit=2)
        def serve(whatever: DataFrame, delivery: Delivery) -> None:
            seen.append((delivery.input, list_numbers(whatever)))
            if len(seen) == 1:
                workshop.write("urgent", 10)

        workshop.write("normal", 1, 2, 3)
        workshop.steps(pipe)

        assert seen == [("normal", [1, 2]), ("urgent", [10]), ("normal", [3])]
        snapshots = [one.data for one in workshop.records(pipe) if one.type == "Snapshot"]
        assert [list(one["ranges"]) for one in snapshots] == [["normal"], ["urgent"], ["normal"]]

    def test_a_step_that_is_run_again_takes_what_it_took(self, workshop: Workshop) -> None:
        pipe, seen = Pipeline("shop"), []
        pipe.queue("urgent")
        pipe.queue("normal")

        @pipe.stream(alts=["urgent", "normal"], output="out")
        def serve(whatever: DataFrame, delivery: Delivery) -> None:
            seen.append((delivery.input, list_numbers(whatever)))
            if len(seen) == 1:
                workshop.write("urgent", 10)
                raise KeyboardInterrupt

        workshop.write("normal", 1)
        with pytest.raises(KeyboardInterrupt):
            workshop.step(pipe)
        workshop.steps(pipe)

        assert seen == [("normal", [1]), ("normal", [1]), ("urgent", [10])]


class TestTables:
    def test_a_table_is_whole_however_old_its_messages_are(
        self, workshop: Workshop, shape: str
    ) -> None:
        pipe, seen = Pipeline("shop"), []
        pipe.queue("number")
        pipe.queue("name")

        @pipe.stream(inputs="number", tables="name", output="out")
        def see(number: DataFrame, name: DataFrame) -> None:
            seen.append((list_numbers(number), list_numbers(name)))

        workshop.write("name", 7, 8)
        workshop.write("number", 1)
        workshop.step(pipe)
        workshop.write("name", 9)
        workshop.write("number", 2)
        workshop.step(pipe)

        assert seen == [([1], [7, 8]), ([2], [7, 8, 9])]

    def test_an_empty_table_does_not_hold_a_step_back(self, workshop: Workshop) -> None:
        pipe, seen = Pipeline("shop"), []
        pipe.queue("number")
        pipe.queue("name")

        @pipe.stream(inputs="number", tables="name", output="out")
        def see(number: DataFrame, name: DataFrame) -> None:
            seen.append((list_numbers(number), list_numbers(name)))

        workshop.write("number", 1)
        workshop.step(pipe)

        assert seen == [([1], [])]

    def test_a_step_that_is_run_again_finds_the_table_as_it_was(self, workshop: Workshop) -> None:
        pipe = Pipeline("shop")
        seen: list[list[int]] = []
        pipe.queue("number")
        pipe.queue("name")

        @pipe.stream(inputs="number", tables="name", output="out")
        def see(number: DataFrame, name: DataFrame) -> None:
            if not seen:
                workshop.write("name", 9)
            seen.append(list_numbers(name))
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
            seen.append(list_numbers(price))

        workshop.write("price-a", 1, 2)
        workshop.write("price-b", 3)
        workshop.write("price-a", 4)
        workshop.write("number", 1)
        workshop.step(pipe)

        assert seen == [[3, 4]]


class TestTypes:
    def test_only_messages_of_these_types_are_taken(self, workshop: Workshop, shape: str) -> None:
        pipe = Pipeline("shop")
        pipe.queue("number")

        @pipe.stream(inputs="number", output="out", types=["Odd", "Prime"])
        def copy(number: DataFrame) -> DataFrame:
            return renumbered(numbered(number))

        workshop.write("number", 1, type="Odd")
        workshop.write("number", 2, type="Prime")
        workshop.write("number", 4, type="Even")
        report = workshop.step(pipe)

        assert workshop.numbers("out") == [1, 2]
        assert report is not None
        assert report.messages_in == 2

    def test_each_input_may_have_types_of_its_own(self, workshop: Workshop) -> None:
        pipe, seen = Pipeline("shop"), []
        pipe.queue("left")
        pipe.queue("right")

        @pipe.sink(inputs=["left", "right"], types={"left": ["Odd"]})
        def pair(left: DataFrame, right: DataFrame) -> None:
            seen.append((list_numbers(left), list_numbers(right)))

        for queue in ("left", "right"):
            workshop.write(queue, 1, type="Odd")
            workshop.write(queue, 2, type="Even")
        workshop.step(pipe)

        assert seen == [([1], [1, 2])]

    def test_a_step_without_any_of_them_passes_by_and_runs_nothing(
        self, workshop: Workshop
    ) -> None:
        pipe, seen = Pipeline("shop"), []
        pipe.queue("number")

        @pipe.sink(inputs="number", types=["Odd"], limit=2)
        def see(number: DataFrame) -> None:
            seen.append(list_numbers(number))

        workshop.write("number", 2, 4, type="Even")
        workshop.write("number", 1, type="Odd")
        workshop.steps(pipe)

        assert seen == [[1]]
        assert [one.type for one in workshop.records(pipe)] == 2 * ["Snapshot", "NilAttempt"]


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
        workshop.steps(pipe)

        assert workshop.numbers("out") == order
