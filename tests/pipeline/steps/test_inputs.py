"""What a step reads: all inputs or the first alternative, of some types, up to the limit."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import psycopg
import pytest
from pyspark.sql import DataFrame

from penstock.database.interceptor import Call, Interceptor
from penstock.pipeline import Delivery, Pipeline
from penstock.pipeline.step import run_step
from tests.pipeline.steps.running import Harness, numbered, numbers_in, renumbered


class _Names(Interceptor):
    """Notes the operations that are run."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def around(self, call: Call) -> AbstractContextManager[None]:
        self.names.append(call.name)
        return nullcontext()


class TestInputs:
    def test_a_step_waits_until_each_of_them_has_messages(self, harness: Harness) -> None:
        pipe, seen = Pipeline("shop"), []
        pipe.schema("left")
        pipe.schema("right")

        @pipe.stream(inputs=["left", "right"], output="out")
        def pair(left: DataFrame, right: DataFrame) -> None:
            seen.append((numbers_in(left), numbers_in(right)))

        harness.write("left", 1, 2)
        assert harness.step(pipe) is None
        harness.write("right", 3)
        harness.step(pipe)
        harness.write("right", 4)
        assert harness.step(pipe) is None
        harness.write("left", 5)
        harness.step(pipe)

        assert seen == [([1, 2], [3]), ([5], [4])]

    def test_a_step_takes_as_many_messages_of_each_as_the_limit_says(
        self, harness: Harness
    ) -> None:
        pipe, seen = Pipeline("shop"), []
        pipe.schema("left")
        pipe.schema("right")

        @pipe.sink(inputs=["left", "right"], limit=2)
        def pair(left: DataFrame, right: DataFrame) -> None:
            seen.append((numbers_in(left), numbers_in(right)))

        harness.write("left", 1, 2, 3)
        harness.write("right", 4, 5, 6, 7, 8)
        reports = harness.steps(pipe)

        assert seen == [([1, 2], [4, 5]), ([3], [6, 7])]
        assert [one.messages_in for one in reports] == [4, 3]

    def test_the_messages_of_a_step_are_counted_when_it_is_chosen_and_not_again(
        self, harness: Harness
    ) -> None:
        pipe = Pipeline("shop")
        pipe.schema("left")
        pipe.schema("right")

        @pipe.sink(inputs=["left", "right"], limit=2, types={"right": ["Numbered"]})
        def pair(left: DataFrame, right: DataFrame) -> None:
            assert (left.count(), right.count()) == (2, 1)

        harness.write("left", 1, 2, 3)
        harness.write("right", 4)
        harness.write("right", 5, type="Other")
        context = harness.context(pipe)
        counting = _Names()
        context.connection = replace(context.connection, interceptors=[counting])

        report = run_step(context)

        assert report is not None
        assert report.messages_in == 3
        assert counting.names.count("count_messages") == 1  # of right, by its types

    def test_few_messages_have_one_task_for_each_core(self, harness: Harness) -> None:
        pipe, seen = Pipeline("shop"), []
        pipe.schema("number")

        @pipe.sink(inputs="number")
        def look(number: DataFrame) -> None:
            seen.append((number.rdd.getNumPartitions(), number.count()))

        with psycopg.connect(harness.store.settings.conninfo(), autocommit=True) as connection:
            connection.execute(
                "insert into message_store.messages (id, stream_name, position, type)"
                " select gen_random_uuid(), 'number-' || n, 0, 'Numbered'"
                " from generate_series(1, 80000) n"
            )
            connection.execute("vacuum analyze message_store.messages")
        harness.steps(pipe)

        assert seen == [(harness.spark.sparkContext.defaultParallelism, 80_000)]

    def test_a_stream_is_a_queue_too(self, harness: Harness, shape: str) -> None:
        pipe = Pipeline("shop")
        pipe.schema("number-1")

        @pipe.stream(inputs="number-1", output="copy-1", limit=2)
        def copy(number_1: DataFrame) -> DataFrame:
            return renumbered(numbered(number_1))

        harness.write("number-2", 9)
        harness.write("number-1", 1, 2, 3)
        harness.steps(pipe)

        assert harness.numbers("copy-1") == [1, 2, 3]
        assert [one.position for one in harness.messages("copy-1")] == [0, 1, 2]

    def test_messages_that_are_not_complete_yet_wait_for_the_watermark(
        self, harness: Harness
    ) -> None:
        pipe, seen = Pipeline("shop"), []
        pipe.schema("number")

        @pipe.sink(inputs="number")
        def see(number: DataFrame) -> None:
            seen.append(numbers_in(number))

        harness.write("number", 1)
        with harness.store.transaction() as open_one:
            open_one.write_message("number-2", "Numbered", {"n": 2})
            harness.write("number", 3)
            harness.steps(pipe)
        harness.steps(pipe)

        assert seen == [[1], [2, 3]]

    def test_two_processors_read_a_queue_each_at_its_own_pace(self, harness: Harness) -> None:
        pipe, seen = Pipeline("shop"), []
        pipe.schema("number")

        def reader(name: str) -> Callable[[DataFrame], None]:
            @pipe.sink(inputs="number", name=name)
            def see(number: DataFrame) -> None:
                seen.append((name, numbers_in(number)))

            return see

        reader("one"), reader("two")
        harness.write("number", 1)
        harness.step(pipe, "one")
        harness.write("number", 2)
        harness.step(pipe, "one")
        harness.step(pipe, "two")

        assert seen == [("one", [1]), ("one", [2]), ("two", [1, 2])]


class TestAlts:
    def test_a_step_takes_the_first_that_has_messages_and_remembers_which(
        self, harness: Harness
    ) -> None:
        pipe, seen = Pipeline("shop"), []
        pipe.schema("urgent")
        pipe.schema("normal")

        @pipe.stream(alts=["urgent", "normal"], output="out", limit=2)
        def serve(whatever: DataFrame, delivery: Delivery) -> None:
            seen.append((delivery.input, numbers_in(whatever)))
            if len(seen) == 1:
                harness.write("urgent", 10)

        harness.write("normal", 1, 2, 3)
        harness.steps(pipe)

        assert seen == [("normal", [1, 2]), ("urgent", [10]), ("normal", [3])]
        snapshots = [one.data for one in harness.records(pipe) if one.type == "Snapshot"]
        assert [list(one["ranges"]) for one in snapshots] == [["normal"], ["urgent"], ["normal"]]

    def test_a_step_that_is_run_again_takes_what_it_took(self, harness: Harness) -> None:
        pipe, seen = Pipeline("shop"), []
        pipe.schema("urgent")
        pipe.schema("normal")

        @pipe.stream(alts=["urgent", "normal"], output="out")
        def serve(whatever: DataFrame, delivery: Delivery) -> None:
            seen.append((delivery.input, numbers_in(whatever)))
            if len(seen) == 1:
                harness.write("urgent", 10)
                raise KeyboardInterrupt

        harness.write("normal", 1)
        with pytest.raises(KeyboardInterrupt):
            harness.step(pipe)
        harness.steps(pipe)

        assert seen == [("normal", [1]), ("normal", [1]), ("urgent", [10])]


class TestTypes:
    def test_only_messages_of_these_types_are_taken(self, harness: Harness, shape: str) -> None:
        pipe = Pipeline("shop")
        pipe.schema("number")

        @pipe.stream(inputs="number", output="out", types=["Odd", "Prime"])
        def copy(number: DataFrame) -> DataFrame:
            return renumbered(numbered(number))

        harness.write("number", 1, type="Odd")
        harness.write("number", 2, type="Prime")
        harness.write("number", 4, type="Even")
        report = harness.step(pipe)

        assert harness.numbers("out") == [1, 2]
        assert report is not None
        assert report.messages_in == 2

    def test_each_input_may_have_types_of_its_own(self, harness: Harness) -> None:
        pipe, seen = Pipeline("shop"), []
        pipe.schema("left")
        pipe.schema("right")

        @pipe.sink(inputs=["left", "right"], types={"left": ["Odd"]})
        def pair(left: DataFrame, right: DataFrame) -> None:
            seen.append((numbers_in(left), numbers_in(right)))

        for queue in ("left", "right"):
            harness.write(queue, 1, type="Odd")
            harness.write(queue, 2, type="Even")
        harness.step(pipe)

        assert seen == [([1], [1, 2])]

    def test_a_step_without_any_of_them_passes_by_and_runs_nothing(self, harness: Harness) -> None:
        pipe, seen = Pipeline("shop"), []
        pipe.schema("number")

        @pipe.sink(inputs="number", types=["Odd"], limit=2)
        def see(number: DataFrame) -> None:
            seen.append(numbers_in(number))

        harness.write("number", 2, 4, type="Even")
        harness.write("number", 1, type="Odd")
        harness.steps(pipe)

        assert seen == [[1]]
        assert [one.type for one in harness.records(pipe)] == 2 * ["Snapshot", "NilAttempt"]
