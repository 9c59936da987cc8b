"""What a processor has not read is known to others: it counts as lag, and retention spares it."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame

from penstock.errors import ValidationError
from penstock.log.retention import Retained
from penstock.pipeline import Pipeline, Runner, StepReport
from penstock.pipeline.status import processors, retire
from tests.pipeline.steps.running import Harness
from tests.telemetry.busy import an_hour_passes
from tests.telemetry.figures import HOUR, figure


def reader(queue: str) -> Pipeline:
    """Return a pipeline that reads a queue, which may be a category or a stream."""
    pipe = Pipeline("shop")
    pipe.schema(queue)

    @pipe.sink(alts=queue)
    def read(messages: DataFrame) -> None: ...

    return pipe


@pytest.fixture(params=["number", "number-1"], ids=["category", "stream"])
def queue(request: pytest.FixtureRequest, harness: Harness) -> str:
    """A queue with three messages that were read; others came before, so that numbers differ."""
    for _ in range(5):
        harness.store.write_message("other-1", "Other")
    name = str(request.param)
    harness.write("number-1", 1, 2, 3)
    harness.steps(reader(name))
    return name


def lag(harness: Harness) -> float:
    return figure(harness.store, "processor.lag", pipeline="shop", processor="read")


def test_it_lags_by_what_it_has_not_read(harness: Harness, queue: str) -> None:
    an_hour_passes(harness.store)
    read = lag(harness)

    harness.write("number-1", 4)
    an_hour_passes(harness.store)
    harness.write("number-1", 5)

    assert read == 0
    assert HOUR <= lag(harness) < 2 * HOUR


def first_step_fails(harness: Harness) -> None:
    pipe = Pipeline("shop")
    pipe.schema("number")

    @pipe.sink(inputs="number")
    def read(number: DataFrame) -> None:
        raise RuntimeError("out of paper")

    harness.write("number-1", 1, 2, 3)
    harness.run(pipe)


def waits_for_another_input(harness: Harness) -> None:
    pipe = Pipeline("shop")
    for queue in ("number", "letter"):
        pipe.schema(queue)

    @pipe.sink(inputs=["number", "letter"])
    def read(number: DataFrame, letter: DataFrame) -> None: ...

    harness.write("number-1", 1, 2, 3)
    harness.run(pipe)


@pytest.mark.parametrize("begin", [first_step_fails, waits_for_another_input])
def test_before_its_first_step_it_lags_and_keeps_its_messages_too(
    harness: Harness, begin: Callable[[Harness], None]
) -> None:
    begin(harness)
    an_hour_passes(harness.store)

    assert HOUR <= lag(harness) < 2 * HOUR
    assert harness.status(reader("number")).lag == 3
    by = harness.store.admin.retain("number", keep_count=0).held_back_by
    assert by is not None
    assert (by.kind, by.name, by.needs) == ("processor", "shop.read", 1)
    assert by.waiting_since is not None


@pytest.mark.parametrize("target", ["number", "number-1"])
def test_retention_spares_what_it_has_not_read(harness: Harness, queue: str, target: str) -> None:
    harness.write("number-1", 4, 5, 6)

    waiting = harness.store.admin.retain(target, keep_count=0)
    left = harness.numbers("number-1")
    harness.steps(reader(queue))
    read = harness.store.admin.retain(target, keep_count=0)

    assert waiting.held_back_by is not None
    assert (waiting.removed, waiting.held_back_by.name) == (3, "shop.read")
    assert left == [4, 5, 6]
    assert read == Retained(2, None)  # the last message of a stream stays


def test_retention_removes_what_a_step_wrote_without_streams(harness: Harness) -> None:
    pipe = Pipeline("shop")
    pipe.schema("number")

    @pipe.stream(inputs="number", output="invoice")
    def bill(number: DataFrame) -> DataFrame:
        return number.selectExpr("'invoice' as type", "data")

    harness.write("number-1", 1, 2, 3)
    harness.run(pipe)

    assert harness.store.admin.retain("invoice", keep_count=1) == Retained(2, None)


def test_nor_does_it_keep_other_streams(harness: Harness) -> None:
    harness.write("number-1", 1)
    harness.steps(reader("number-1"))
    harness.write("number-1", 2)
    harness.write("number-2", 1, 2, 3)

    assert harness.store.admin.retain("number-2", keep_count=0) == Retained(2, None)


def retired(harness: Harness) -> None:
    retire(harness.store, "shop", "read")


def test_one_that_runs_cannot_be_retired_but_one_that_was_taken_out_can(
    harness: Harness, queue: str
) -> None:
    told: list[str] = []

    def look(report: StepReport) -> None:
        retire(harness.store, "shop", "gone")
        with pytest.raises(ValidationError) as caught:
            retire(harness.store, "shop", "read")
        told.append(str(caught.value))

    gone = Pipeline("shop")
    gone.schema(queue)
    gone.sink(alts=queue, name="gone")(lambda messages: None)
    harness.run(gone)
    harness.write("number-1", 4)
    Runner(reader(queue), harness.store, harness.spark, on_step=look).run_until_idle()

    assert told == [
        "processor must be one that does not run: remove it from its pipeline, and start that "
        "again; got 'shop.read'"
    ]
    assert harness.status(gone).retired_at is not None
    assert harness.status(reader(queue)).retired_at is None
    retired(harness)


@pytest.mark.parametrize("target", ["number", "number-1"])
def test_one_that_is_retired_holds_up_nobody(harness: Harness, queue: str, target: str) -> None:
    harness.write("number-1", 4, 5, 6)

    retired(harness)

    names = {one.name for one in harness.store.admin.health() if "processor" in one.subject}
    assert names == set()
    assert harness.store.admin.retain(target, keep_count=0) == Retained(5, None)


def test_one_that_comes_back_learns_what_was_removed(
    harness: Harness, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    retired(harness)
    harness.write("number-1", 4, 5, 6)
    harness.store.admin.retain(queue, keep_count=1)

    harness.steps(reader(queue))
    told = list(caplog.messages)
    harness.write("number-1", 7)
    harness.steps(reader(queue))

    [warning] = [one for one in told if "fell behind retention" in one]
    assert int(re.findall(r"up to (\d+) messages", warning)[0]) >= 2
    assert caplog.messages == told


def test_who_begins_misses_nothing(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    harness.write("number-1", 1, 2, 3)
    harness.store.admin.retain("number", keep_count=1)

    harness.steps(reader("number"))

    assert caplog.messages == []


def test_one_that_comes_back_goes_on_where_it_stood(harness: Harness, queue: str) -> None:
    retired(harness)
    harness.write("number-1", 4, 5)

    harness.steps(reader(queue))

    (status,) = processors(harness.store)
    assert (status.messages_in, status.lag, status.retired_at) == (5, 0, None)
