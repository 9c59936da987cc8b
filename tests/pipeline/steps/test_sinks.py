"""Sinks: at least once with a hash that stays; into a table of this database exactly once."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame

from penstock.errors import StepFailed
from penstock.pipeline import Delivery
from tests.pipeline.steps.running import Harness, Stop, pipeline


class TestHash:
    def test_a_step_that_is_run_again_has_the_same_hash_and_the_next_another(
        self, harness: Harness
    ) -> None:
        pipe, hashes = pipeline(), []

        @pipe.sink(inputs="number", limit=1)
        def see(number: DataFrame, delivery: Delivery) -> None:
            hashes.append(delivery.hash)
            if len(hashes) < 3:
                raise Stop

        harness.write("number", 1, 2)
        for _ in range(2):
            with pytest.raises(Stop):
                harness.step(pipe)
        harness.steps(pipe)

        assert hashes[0] == hashes[1] == hashes[2] != hashes[3]
        assert len(hashes) == 4
        assert hashes[3] == harness.records(pipe)[2].data["hash"]

    def test_the_delivery_tells_whose_it_is(self, harness: Harness) -> None:
        pipe, seen = pipeline(), []

        @pipe.sink(inputs="number")
        def see(number: DataFrame, delivery: Delivery) -> None:
            seen.append((delivery.pipeline, delivery.processor, delivery.input))

        harness.write("number", 1)
        harness.step(pipe)

        assert seen == [("shop", "see", "number")]


def test_a_frame_that_a_sink_returns_goes_nowhere_and_is_refused(harness: Harness) -> None:
    pipe = pipeline()

    @pipe.sink(inputs="number")
    def lose(number: DataFrame) -> DataFrame:
        return number

    harness.write("number", 1)
    with pytest.raises(StepFailed, match="it has no output, so it must return None"):
        harness.step(pipe)

    assert [one.position for one in harness.status(pipe).tailers] == [0]
