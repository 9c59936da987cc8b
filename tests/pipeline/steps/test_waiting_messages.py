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
from penstock.spark.connections import DatabaseRef, connect
from tests.pipeline.steps.running import Workshop
from tests.telemetry.busy import an_hour_passes
from tests.telemetry.figures import HOUR, figure


def reader(queue: str) -> Pipeline:
    """Return a pipeline that reads a queue, which may be a category or a stream."""
    pipe = Pipeline("shop")
    pipe.queue(queue)

    @pipe.sink(alts=queue)
    def read(messages: DataFrame) -> None: ...

    return pipe


@pytest.fixture(params=["number", "number-1"], ids=["category", "stream"])
def queue(request: pytest.FixtureRequest, workshop: Workshop) -> str:
    """A queue with three messages that were read; others came before, so that numbers differ."""
    for _ in range(5):
        workshop.store.write_message("other-1", "Other")
    name = str(request.param)
    workshop.write("number-1", 1, 2, 3)
    workshop.steps(reader(name))
    return name


def lag(workshop: Workshop) -> float:
    return figure(workshop.store, "processor.lag", pipeline="shop", processor="read")


def test_it_lags_by_what_it_has_not_read(workshop: Workshop, queue: str) -> None:
    an_hour_passes(workshop.store)
    read = lag(workshop)

    workshop.write("number-1", 4)
    an_hour_passes(workshop.store)
    workshop.write("number-1", 5)

    assert read == 0
    assert HOUR <= lag(workshop) < 2 * HOUR


def first_step_fails(workshop: Workshop) -> None:
    pipe = Pipeline("shop")
    pipe.queue("number")

    @pipe.sink(inputs="number")
    def read(number: DataFrame) -> None:
        raise RuntimeError("out of paper")

    workshop.write("number-1", 1, 2, 3)
    workshop.run(pipe)


def waits_for_another_input(workshop: Workshop) -> None:
    pipe = Pipeline("shop")
    for queue in ("number", "letter"):
        pipe.queue(queue)

    @pipe.sink(inputs=["number", "letter"])
    def read(number: DataFrame, letter: DataFrame) -> None: ...

    workshop.write("number-1", 1, 2, 3)
    workshop.run(pipe)


@pytest.mark.parametrize("begin", [first_step_fails, waits_for_another_input])
def test_before_its_first_step_it_lags_and_keeps_its_messages_too(
    workshop: Workshop, begin: Callable[[Workshop], None]
) -> None:
    begin(workshop)
    an_hour_passes(workshop.store)

    assert HOUR <= lag(workshop) < 2 * HOUR
    assert workshop.status(reader("number")).lag == 3
    assert workshop.store.admin.retain("number", keep_count=0) == Retained(0, "shop.read")


@pytest.mark.parametrize("target", ["number", "number-1"])
def test_retention_spares_what_it_has_not_read(workshop: Workshop, queue: str, target: str) -> None:
    workshop.write("number-1", 4, 5, 6)

    waiting = workshop.store.admin.retain(target, keep_count=0)
    left = workshop.numbers("number-1")
    workshop.steps(reader(queue))
    read = workshop.store.admin.retain(target, keep_count=0)

    assert waiting == Retained(3, "shop.read")
    assert left == [4, 5, 6]
    assert read == Retained(2, None)  # the last message of a stream stays


def test_nor_does_it_keep_other_streams(workshop: Workshop) -> None:
    workshop.write("number-1", 1)
    workshop.steps(reader("number-1"))
    workshop.write("number-1", 2)
    workshop.write("number-2", 1, 2, 3)

    assert workshop.store.admin.retain("number-2", keep_count=0) == Retained(2, None)


def retired(workshop: Workshop) -> None:
    with connect(DatabaseRef(workshop.store.settings)) as connection:
        retire(connection, "shop", "read")


def test_one_that_runs_cannot_be_retired_but_one_that_was_taken_out_can(
    workshop: Workshop, queue: str
) -> None:
    told: list[str] = []

    def look(report: StepReport) -> None:
        with connect(DatabaseRef(workshop.store.settings)) as connection:
            retire(connection, "shop", "gone")
            with pytest.raises(ValidationError) as caught:
                retire(connection, "shop", "read")
        told.append(str(caught.value))

    gone = Pipeline("shop")
    gone.queue(queue)
    gone.sink(alts=queue, name="gone")(lambda messages: None)
    workshop.run(gone)
    workshop.write("number-1", 4)
    Runner(reader(queue), workshop.store, workshop.spark, on_step=look).once()

    assert told == [
        "processor must be one that does not run: take it out of its pipeline, and start that "
        "again; got 'shop.read'"
    ]
    assert workshop.status(gone).retired_at is not None
    assert workshop.status(reader(queue)).retired_at is None
    retired(workshop)


@pytest.mark.parametrize("target", ["number", "number-1"])
def test_one_that_is_retired_holds_up_nobody(workshop: Workshop, queue: str, target: str) -> None:
    workshop.write("number-1", 4, 5, 6)

    retired(workshop)

    names = {one.name for one in workshop.store.admin.health() if "processor" in one.subject}
    assert names == set()
    assert workshop.store.admin.retain(target, keep_count=0) == Retained(5, None)


def test_one_that_comes_back_is_told_what_was_removed(
    workshop: Workshop, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    retired(workshop)
    workshop.write("number-1", 4, 5, 6)
    workshop.store.admin.retain(queue, keep_count=1)

    workshop.steps(reader(queue))
    told = list(caplog.messages)
    workshop.write("number-1", 7)
    workshop.steps(reader(queue))

    [warning] = [one for one in told if "fell behind retention" in one]
    assert int(re.findall(r"up to (\d+) messages", warning)[0]) >= 2
    assert caplog.messages == told


def test_who_begins_misses_nothing(workshop: Workshop, caplog: pytest.LogCaptureFixture) -> None:
    workshop.write("number-1", 1, 2, 3)
    workshop.store.admin.retain("number", keep_count=1)

    workshop.steps(reader("number"))

    assert caplog.messages == []


def test_one_that_comes_back_goes_on_where_it_stood(workshop: Workshop, queue: str) -> None:
    retired(workshop)
    workshop.write("number-1", 4, 5)

    workshop.steps(reader(queue))

    with connect(DatabaseRef(workshop.store.settings)) as connection:
        (status,) = processors(connection)
    assert (status.messages_in, status.lag, status.retired_at) == (5, 0, None)
