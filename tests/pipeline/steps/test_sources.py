"""Sources: what they bring is published once, and one with a cursor goes on from there."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import StepFailed
from penstock.pipeline import Delivery, Pipeline
from tests.pipeline.steps.running import Harness

Bring = Callable[..., DataFrame | None]


def messages(spark: SparkSession, *numbers: int) -> DataFrame:
    rows = [("Numbered", json.dumps({"n": number})) for number in numbers]
    return spark.createDataFrame(rows, "type string, data string")


def source(bring: Bring) -> Pipeline:
    """Return a pipeline with a source and nothing else."""
    pipe = Pipeline("shop")
    pipe.source(output="number")(bring)
    return pipe


def test_a_source_runs_once(harness: Harness) -> None:
    def bring(spark: SparkSession) -> DataFrame:
        return messages(spark, 1, 2, 3)

    harness.steps(source(bring))
    harness.steps(source(bring))

    assert sorted(harness.numbers("number")) == [1, 2, 3]
    assert [one.type for one in harness.records(source(bring))] == ["Snapshot", "Attempt"]


@pytest.mark.parametrize("goes_on", [False, True])
def test_it_has_run_whatever_retention_leaves_of_its_records(
    harness: Harness, goes_on: bool
) -> None:
    def bring(spark: SparkSession, delivery: Delivery) -> DataFrame | None:
        if goes_on and delivery.cursor != 2:
            delivery.advance((delivery.cursor or 0) + 1)
        elif goes_on:
            return None
        return messages(spark, 1)

    harness.steps(source(bring))
    before = harness.numbers("number")
    harness.store.admin.retain("shop:try", keep_count=0)
    harness.steps(source(bring))
    last = harness.records(source(bring))[-1]

    assert harness.numbers("number") == before == ([1, 1] if goes_on else [1])
    assert last.data.get("number") == (3 if goes_on else 1)


def test_a_source_that_brings_no_message_has_run_too(harness: Harness) -> None:
    calls = []

    def bring(spark: SparkSession) -> DataFrame:
        calls.append(1)
        return messages(spark, 1).where("false")

    harness.steps(source(bring))
    harness.steps(source(bring))

    assert len(calls) == 1
    assert [one.type for one in harness.records(source(bring))] == ["Snapshot", "NilAttempt"]


def test_a_source_that_has_nothing_yet_is_asked_again(harness: Harness) -> None:
    there: list[int] = []

    def bring(spark: SparkSession) -> DataFrame | None:
        return messages(spark, *there) if there else None

    assert harness.step(source(bring)) is None
    assert harness.step(source(bring)) is None
    there.append(7)
    harness.step(source(bring))

    assert harness.numbers("number") == [7]
    assert [one.type for one in harness.records(source(bring))] == ["Snapshot", "Attempt"]


class TestCursor:
    @staticmethod
    def counting(cursors: list[Any], last: int = 3) -> Bring:
        """Return a source of the numbers up to the last, one at a time."""

        def bring(spark: SparkSession, delivery: Delivery) -> DataFrame | None:
            cursors.append(delivery.cursor)
            number = 1 if delivery.cursor is None else delivery.cursor["next"]
            if number > last:
                return None
            delivery.advance({"next": number + 1})
            return messages(spark, number)

        return bring

    def test_a_source_goes_on_where_it_stopped_until_it_has_nothing(self, harness: Harness) -> None:
        cursors: list[Any] = []

        harness.steps(source(self.counting(cursors)))

        assert harness.numbers("number") == [1, 2, 3]
        assert cursors == [None, {"next": 2}, {"next": 3}, {"next": 4}]

    def test_another_run_goes_on_from_the_last_cursor(self, harness: Harness) -> None:
        cursors: list[Any] = []
        harness.steps(source(self.counting(cursors, last=2)))
        cursors.clear()

        harness.steps(source(self.counting(cursors, last=4)))

        assert cursors == [{"next": 3}, {"next": 4}, {"next": 5}]
        assert harness.numbers("number") == [1, 2, 3, 4]

    def test_a_step_that_was_not_committed_has_the_same_cursor_and_hash_again(
        self, harness: Harness
    ) -> None:
        seen = []

        def bring(spark: SparkSession, delivery: Delivery) -> DataFrame:
            seen.append((delivery.cursor, delivery.hash))
            delivery.advance(5)
            if len(seen) == 2:
                raise KeyboardInterrupt
            return messages(spark, len(seen))

        harness.step(source(bring))
        with pytest.raises(KeyboardInterrupt):
            harness.step(source(bring))
        harness.step(source(bring))

        assert [cursor for cursor, _ in seen] == [None, 5, 5]
        assert seen[1] == seen[2]
        assert seen[0][1] != seen[1][1]
        assert harness.numbers("number") == [1, 3]

    def test_messages_without_a_cursor_for_the_next_step_are_refused(
        self, harness: Harness
    ) -> None:
        def bring(spark: SparkSession, delivery: Delivery) -> DataFrame:
            if delivery.cursor is None:
                delivery.advance(1)
            return messages(spark, 1)

        with pytest.raises(StepFailed, match=r"cursor must be passed to delivery\.advance"):
            harness.steps(source(bring))

        assert harness.numbers("number") == [1]

    def test_to_advance_to_nothing_is_the_end(self, harness: Harness) -> None:
        def bring(spark: SparkSession, delivery: Delivery) -> DataFrame:
            delivery.advance("more" if delivery.cursor is None else None)
            return messages(spark, 1)

        reports = harness.steps(source(bring))

        assert len(reports) == 2

    @pytest.mark.parametrize("cursor", [object(), {"at": {(1, 2): 3}}])
    def test_a_cursor_that_cannot_be_kept_is_refused(
        self, harness: Harness, cursor: object
    ) -> None:
        def bring(spark: SparkSession, delivery: Delivery) -> DataFrame:
            delivery.advance(cursor)
            return messages(spark, 1)

        with pytest.raises(StepFailed, match="cursor must be what JSON can hold"):
            harness.step(source(bring))

        assert harness.numbers("number") == []

    def test_a_time_is_kept_as_text(self, harness: Harness) -> None:
        seen = []

        def bring(spark: SparkSession, delivery: Delivery) -> DataFrame | None:
            seen.append(delivery.cursor)
            delivery.advance(datetime(2026, 1, 2, tzinfo=UTC))
            return None if delivery.cursor else messages(spark, 1)

        harness.steps(source(bring))

        assert seen == [None, "2026-01-02T00:00:00Z"]
