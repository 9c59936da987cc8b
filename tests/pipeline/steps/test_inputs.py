"""What a step reads: all inputs or the first alternative, of some types, up to the limit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame

from penstock.pipeline import Delivery, Pipeline
from tests.pipeline.steps.running import Workshop, numbered, numbers_in, renumbered


class TestInputs:
    def test_a_step_waits_until_each_of_them_has_messages(self, workshop: Workshop) -> None:
        pipe, seen = Pipeline("shop"), []
        pipe.queue("left")
        pipe.queue("right")

        @pipe.stream(inputs=["left", "right"], output="out")
        def pair(left: DataFrame, right: DataFrame) -> None:
            seen.append((numbers_in(left), numbers_in(right)))

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
            seen.append((numbers_in(left), numbers_in(right)))

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
            seen.append(numbers_in(number))

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
                seen.append((name, numbers_in(number)))

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
            seen.append((delivery.input, numbers_in(whatever)))
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
            seen.append((delivery.input, numbers_in(whatever)))
            if len(seen) == 1:
                workshop.write("urgent", 10)
                raise KeyboardInterrupt

        workshop.write("normal", 1)
        with pytest.raises(KeyboardInterrupt):
            workshop.step(pipe)
        workshop.steps(pipe)

        assert seen == [("normal", [1]), ("normal", [1]), ("urgent", [10])]


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
            seen.append((numbers_in(left), numbers_in(right)))

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
            seen.append(numbers_in(number))

        workshop.write("number", 2, 4, type="Even")
        workshop.write("number", 1, type="Odd")
        workshop.steps(pipe)

        assert seen == [[1]]
        assert [one.type for one in workshop.records(pipe)] == 2 * ["Snapshot", "NilAttempt"]
