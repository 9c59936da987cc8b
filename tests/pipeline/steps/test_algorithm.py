"""The algorithm of the specification, by its numbers: what a step does, and what a start does."""

from __future__ import annotations

from threading import Event

from pyspark.sql import DataFrame

from penstock.pipeline import Pipeline
from penstock.pipeline.state import open_processor
from penstock.pipeline.step import begin, run_step
from tests.pipeline.steps.running import Harness, numbered, renumbered


def doubling(limit: int = 100) -> Pipeline:
    """Return a pipeline that doubles numbers."""
    pipe = Pipeline("doubling")
    pipe.schema("number")

    @pipe.stream(inputs="number", output="double", limit=limit)
    def double(number: DataFrame) -> DataFrame:
        return renumbered(numbered(number), "2 * n")

    return pipe


class TestStep:
    def test_1_a_snapshot_has_the_processor_and_the_ranges_of_all_tailers(
        self, harness: Harness
    ) -> None:
        pipe = Pipeline("shop")
        for queue in ("left", "right-1", "table"):
            pipe.schema(queue)

        @pipe.stream(inputs=["left", "right-1"], tables="table", output="out")
        def pair(left: DataFrame, right_1: DataFrame, table: DataFrame) -> None: ...

        harness.write("table", 1)
        harness.write("left", 1, 2)
        harness.write("right-1", 1, 2, 3)
        harness.step(pipe)

        snapshot = harness.records(pipe)[0]
        assert snapshot.stream_name == "shop:try-pair"
        assert snapshot.type == "Snapshot"
        assert snapshot.data["processor"] == "pair"
        assert snapshot.data["ranges"] == {"left": [0, 3], "right-1": [-1, 2]}
        assert snapshot.data["tables"] == {"table": [0, 1]}

    def test_2_the_snapshot_is_written_before_the_function_runs(self, harness: Harness) -> None:
        pipe = Pipeline("shop")
        seen: list[str] = []
        pipe.schema("number")

        @pipe.stream(inputs="number", output="out")
        def look(number: DataFrame) -> None:
            seen.extend(one.type for one in harness.records(pipe))

        harness.write("number", 1)
        harness.step(pipe)

        assert seen == ["Snapshot"]

    def test_3_the_function_reads_the_snapshot_and_nothing_that_came_later(
        self, harness: Harness, shape: str
    ) -> None:
        pipe = Pipeline("shop")
        pipe.schema("number")

        @pipe.stream(inputs="number", output="out")
        def copy(number: DataFrame) -> DataFrame:
            if not harness.numbers("out"):
                harness.write("number", 3)
            return renumbered(numbered(number))

        harness.write("number", 1, 2)
        harness.step(pipe)

        assert harness.numbers("number") == [1, 2, 3]
        assert harness.numbers("out") == [1, 2]

    def test_6_the_attempt_has_the_place_of_the_write_and_the_hash_of_the_snapshot(
        self, harness: Harness
    ) -> None:
        harness.write("number", 1, 2)
        harness.step(doubling())

        snapshot, attempt = harness.records(doubling())
        first, last = harness.messages("double")
        assert attempt.type == "Attempt"
        assert attempt.data["hash"] == snapshot.data["hash"]
        assert attempt.data["first_position"] == first.global_position
        assert attempt.data["last_position"] == last.global_position
        assert attempt.data["published"] == 2

    def test_6_an_attempt_without_a_message_is_a_nil_attempt(self, harness: Harness) -> None:
        pipe = Pipeline("shop")
        pipe.schema("number")

        @pipe.stream(inputs="number", output="out")
        def drop(number: DataFrame) -> DataFrame:
            return number.where("false")

        harness.write("number", 1)
        harness.step(pipe)

        snapshot, attempt = harness.records(pipe)
        assert attempt.type == "NilAttempt"
        assert attempt.data == {"hash": snapshot.data["hash"], "published": 0}

    def test_7_attempt_messages_and_tailer_become_visible_in_one_moment(
        self, harness: Harness
    ) -> None:
        pipe, seen = doubling(), []
        harness.write("number", 1)

        def look() -> None:
            tailers = [one.position for one in harness.status(pipe).tailers]
            records = [one.type for one in harness.records(pipe)]
            seen.append((records, harness.numbers("double"), tailers))

        run_step(harness.context(pipe, before_commit=look))
        look()

        assert seen == [(["Snapshot"], [], [0]), (["Snapshot", "Attempt"], [2], [1])]

    def test_8_each_message_carries_the_hash_of_the_snapshot(self, harness: Harness) -> None:
        harness.write("number", 1, 2, 3)
        harness.steps(doubling(limit=2))

        hashes = [one.data["hash"] for one in harness.records(doubling()) if "ranges" in one.data]
        found = [one.metadata and one.metadata["delivery"] for one in harness.messages("double")]
        assert found == [hashes[0], hashes[0], hashes[1]]
        assert len(set(hashes)) == 2

    def test_9_the_next_step_goes_on_where_the_tailers_are(self, harness: Harness) -> None:
        harness.write("number", *range(5))
        harness.steps(doubling(limit=2))

        ranges = [one.data["ranges"]["number"] for one in harness.records(doubling())[::2]]
        assert ranges == [[0, 2], [2, 4], [4, ranges[2][1]]]
        assert harness.numbers("double") == [0, 2, 4, 6, 8]


class TestStart:
    """What the last records of the backing stream make a new run do."""

    def test_1a_a_snapshot_without_its_attempt_is_run_again_with_the_same_ranges(
        self, harness: Harness
    ) -> None:
        pipe, calls = Pipeline("shop"), Event()
        pipe.schema("number")

        @pipe.stream(inputs="number", output="out")
        def stumble(number: DataFrame) -> DataFrame:
            if not calls.is_set():
                calls.set()
                raise KeyboardInterrupt  # the first run ends here
            return renumbered(numbered(number))

        harness.write("number", 1, 2)
        try:
            harness.step(pipe)
        except KeyboardInterrupt:
            harness.write("number", 3)

        harness.step(pipe)

        assert harness.numbers("out") == [1, 2]
        assert [one.type for one in harness.records(pipe)] == ["Snapshot", "Attempt"]
        harness.step(pipe)
        assert harness.numbers("out") == [1, 2, 3]

    def test_1b_an_attempt_that_has_its_hash_was_successful_and_is_not_made_again(
        self, harness: Harness
    ) -> None:
        harness.write("number", 1, 2)
        harness.step(doubling())

        assert harness.step(doubling()) is None

        assert harness.numbers("double") == [2, 4]
        assert [one.type for one in harness.records(doubling())] == ["Snapshot", "Attempt"]

    def test_1b_a_nil_attempt_was_successful_too(self, harness: Harness) -> None:
        pipe, calls = Pipeline("shop"), []
        pipe.schema("number")

        @pipe.stream(inputs="number", output="out")
        def drop(number: DataFrame) -> None:
            calls.append(number.count())

        harness.write("number", 1, 2)
        harness.step(pipe)

        assert harness.step(pipe) is None
        harness.write("number", 3)
        harness.step(pipe)

        assert calls == [2, 1]
        assert [one.type for one in harness.records(pipe)] == 2 * ["Snapshot", "NilAttempt"]

    def test_2_the_message_at_the_attempts_place_has_the_attempts_hash(
        self, harness: Harness
    ) -> None:
        harness.write("number", 1, 2, 3)
        harness.steps(doubling(limit=2))

        for attempt in harness.records(doubling())[1::2]:
            (message,) = [
                one
                for one in harness.messages("double")
                if one.global_position == attempt.data["first_position"]
            ]
            assert message.metadata is not None
            assert message.metadata["delivery"] == attempt.data["hash"]

    def test_5a_what_was_done_is_the_same_whoever_asks(self, harness: Harness) -> None:
        harness.write("number", 1, 2, 3)
        first, second = harness.context(doubling(limit=1)), harness.context(doubling(limit=1))

        for context in (first, second, first):
            run_step(context)

        assert harness.numbers("double") == [2, 4, 6]

    def test_5b_a_snapshot_of_which_nothing_was_committed_begins_where_the_tailers_are(
        self, harness: Harness
    ) -> None:
        harness.write("number", *range(4))
        pipe = doubling(limit=2)
        harness.step(pipe)
        context = harness.context(pipe)
        opened = context.connection.run(open_processor("doubling", "double", "stream"))
        begun = begin(context, opened)
        context.connection.raw.close()

        harness.step(pipe)

        assert begun is not None
        assert begun.ranges["number"][0] == harness.records(pipe)[0].data["ranges"]["number"][1]
        assert harness.numbers("double") == [0, 2, 4, 6]
