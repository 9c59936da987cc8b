"""A processor begins when those that fill its tables have caught up once."""

from __future__ import annotations

from penstock.pipeline import Pipeline
from penstock.pipeline.readiness import CatchingUp


def shop() -> Pipeline:
    """Products come from a source through a stream; bills look them up."""
    pipe = Pipeline("shop")
    pipe.queue("order")
    pipe.source(output="file", name="load")(lambda: None)
    pipe.stream(inputs="file", output="product", name="parse")(lambda file: None)
    pipe.stream(inputs="order", tables="product", output="bill", name="bill")(
        lambda order, product: None
    )
    pipe.sink(inputs="bill", name="send")(lambda bill: None)
    return pipe


def test_who_looks_nothing_up_begins_at_once() -> None:
    catching_up = CatchingUp(shop())

    assert [name for name in shop().processors if catching_up.may_begin(name)] == [
        "load",
        "parse",
        "send",
    ]


def test_to_rest_before_those_that_feed_it_is_not_to_have_caught_up() -> None:
    catching_up = CatchingUp(shop())

    early = catching_up.rest({"parse", "send"})
    before = catching_up.may_begin("bill")
    loaded = catching_up.rest({"load"})
    between = catching_up.may_begin("bill")
    parsed = catching_up.rest({"parse"})

    assert (early, before) == (False, False)
    assert (loaded, between) == (True, False)
    assert (parsed, catching_up.may_begin("bill")) == (True, True)


def test_who_rests_still_when_the_feeder_comes_to_rest_has_seen_all_of_it() -> None:
    catching_up = CatchingUp(shop())

    catching_up.rest({"parse", "load"})

    assert catching_up.may_begin("bill")


def test_once_is_enough_however_much_comes_later() -> None:
    catching_up = CatchingUp(shop())
    catching_up.rest({"parse", "load"})

    catching_up.rest(set())

    assert catching_up.may_begin("bill")


def test_who_has_left_is_not_waited_for() -> None:
    catching_up = CatchingUp(shop())

    catching_up.leave("load")
    catching_up.leave("parse")

    assert catching_up.may_begin("bill")


def test_a_circle_does_not_wait_for_itself() -> None:
    pipe = Pipeline("circle")
    pipe.queue("a")
    pipe.stream(inputs="a", tables="b", output="b", name="own")(lambda a, b: None)
    pipe.stream(inputs="b", tables="d", output="c", name="there")(lambda b, d: None)
    pipe.stream(inputs="c", output="d", name="back")(lambda c: None)
    catching_up = CatchingUp(pipe)

    assert catching_up.may_begin("own")
    assert not catching_up.may_begin("there")  # for own, which feeds the circle
    catching_up.rest({"own"})
    assert catching_up.may_begin("there")
