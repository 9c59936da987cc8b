"""A processor begins when those that fill its tables have caught up once."""

from __future__ import annotations

from penstock.pipeline import Pipeline
from penstock.pipeline.schedule import Readiness


def shop() -> Pipeline:
    """Products come from a source through a stream; bills look them up."""
    pipe = Pipeline("shop")
    pipe.schema("order")
    pipe.source(output="file", name="load")(lambda: None)
    pipe.stream(inputs="file", output="product", name="parse")(lambda file: None)
    pipe.stream(inputs="order", tables="product", output="bill", name="bill")(
        lambda order, product: None
    )
    pipe.sink(inputs="bill", name="send")(lambda bill: None)
    return pipe


def test_who_looks_nothing_up_begins_at_once() -> None:
    readiness = Readiness(shop())

    assert [name for name in shop().processors if readiness.may_begin(name)] == [
        "load",
        "parse",
        "send",
    ]


def test_to_rest_before_those_that_feed_it_is_not_to_have_caught_up() -> None:
    readiness = Readiness(shop())

    early = readiness.idle({"parse", "send"})
    before = readiness.may_begin("bill")
    loaded = readiness.idle({"load"})
    between = readiness.may_begin("bill")
    parsed = readiness.idle({"parse"})

    assert (early, before) == (False, False)
    assert (loaded, between) == (True, False)
    assert (parsed, readiness.may_begin("bill")) == (True, True)


def test_who_rests_still_when_the_feeder_comes_to_rest_has_seen_all_of_it() -> None:
    readiness = Readiness(shop())

    readiness.idle({"parse", "load"})

    assert readiness.may_begin("bill")


def test_once_is_enough_however_much_comes_later() -> None:
    readiness = Readiness(shop())
    readiness.idle({"parse", "load"})

    readiness.idle(set())

    assert readiness.may_begin("bill")


def test_who_has_left_is_not_waited_for() -> None:
    readiness = Readiness(shop())

    readiness.leave("load")
    readiness.leave("parse")

    assert readiness.may_begin("bill")


def test_a_circle_does_not_wait_for_itself() -> None:
    pipe = Pipeline("circle")
    pipe.schema("a")
    pipe.stream(inputs="a", tables="b", output="b", name="own")(lambda a, b: None)
    pipe.stream(inputs="b", tables="d", output="c", name="there")(lambda b, d: None)
    pipe.stream(inputs="c", output="d", name="back")(lambda c: None)
    readiness = Readiness(pipe)

    assert readiness.may_begin("own")
    assert not readiness.may_begin("there")  # for own, which feeds the circle
    readiness.idle({"own"})
    assert readiness.may_begin("there")
