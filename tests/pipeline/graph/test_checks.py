"""A graph that cannot run is refused before anything runs, with the line that is to blame."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.pipeline import load
from penstock.pipeline.checks import check
from tests.pipeline.graph.files import refusal, write_file

FED = """
pipe.schema("order")
pipe.schema("product")
"""


def test_a_graph_with_all_kinds_of_processors_is_fine(tmp_path: Path) -> None:
    file = write_file(
        tmp_path,
        """
        pipe.schema("return", "order_id string")

        @pipe.source(output=["order", "product"])
        def shop(spark, delivery): ...

        @pipe.stream(inputs="order", tables=[Latest("product")], output="bill-1", errors="lost")
        def bill(order, product, *, spark, precision=2): ...

        @pipe.stream(alts=["return", "lost"], tables="product", output=["refund", "complaint"])
        def settle(whatever, product): ...

        @pipe.sink(inputs=["bill-1", "refund", "return"])
        def book(bill_1, refund, return_, delivery): ...

        @pipe.project("order", into="orders", columns="n int")
        def orders(state, message): ...
        """,
    )

    pipeline = load(str(file))
    check(pipeline)

    assert list(pipeline.processors) == ["shop", "bill", "settle", "book", "orders"]


@pytest.mark.parametrize(
    ("queue", "declared"),
    [
        ("inputs='odrer'", "odrer"),
        ("alts=['order', 'odrer']", "messages"),
        ("inputs='order', tables='odrer'", "order, odrer"),
    ],
)
def test_a_queue_that_nobody_writes_and_nobody_declares(
    tmp_path: Path, queue: str, declared: str
) -> None:
    file = write_file(
        tmp_path,
        f"{FED}\n@pipe.stream({queue}, output='bill')  # here\ndef bill({declared}): ...\n",
    )

    assert refusal(file) == (
        "bill reads odrer, which no processor writes and pipe.schema() does not declare; "
        "there are bill, order, product"
    )


def test_a_ring_that_nothing_feeds(tmp_path: Path) -> None:
    file = write_file(
        tmp_path,
        """
        @pipe.stream(inputs="echo", output="call")  # here
        def caller(echo): ...

        @pipe.stream(inputs="call", output="echo")
        def mountain(call): ...
        """,
    )

    assert refusal(file) == "nothing feeds caller, mountain: they wait for each other"


@pytest.mark.parametrize(
    ("first", "fed"),
    [("alts=['call', 'order']", "messages"), ("inputs='call', tables='order'", "call, order")],
)
def test_a_ring_is_fed_by_an_alternative_but_not_by_a_table(
    tmp_path: Path, first: str, fed: str
) -> None:
    file = write_file(
        tmp_path,
        f"{FED}\n@pipe.stream({first}, output='call')  # here\ndef caller({fed}): ...\n",
    )

    if "alts" in first:
        check(load(str(file)))
    else:
        assert refusal(file) == "nothing feeds caller: they wait for each other"


def test_two_processors_of_one_name(tmp_path: Path) -> None:
    file = write_file(
        tmp_path,
        """
        @pipe.source(output="order")
        def orders(spark): ...

        @pipe.sink(inputs="order", name="orders")  # here
        def again(order): ...
        """,
    )

    assert refusal(file) == "there are two processors named orders: see shop.py:5"


def test_a_queue_that_is_declared_twice(tmp_path: Path) -> None:
    file = write_file(tmp_path, 'pipe.schema("order")\n\npipe.schema("order", "n int")  # here\n')

    assert refusal(file) == "the schema of order is declared already, at shop.py:4"


@pytest.mark.parametrize(
    ("declaration", "function", "expected"),
    [
        ("stream(inputs='order')", "bill()", "bill() must take (order)"),
        ("stream(inputs='order')", "bill(orders)", "bill(orders) must take (order)"),
        (
            "stream(inputs=['order', 'product'])",
            "bill(order, delivery)",
            "bill(order, delivery) must take (order, product)",
        ),
        (
            "sink(inputs='order', tables='product')",
            "bill(order)",
            "bill(order) must take (order, product)",
        ),
        ("sink(alts=['order', 'product'])", "bill(a, b)", "bill(a, b) must take (messages)"),
        (
            "sink(alts=['order'], tables='product')",
            "bill(a, b)",
            "bill(a, b) must take (messages, product)",
        ),
        ("source(output='gift')", "bill(order)", "bill(order) must take ()"),
        (
            "project('order', into='t', columns='n int')",
            "bill(message)",
            "bill(message) must take (state, message)",
        ),
    ],
)
def test_a_function_whose_parameters_do_not_match(
    tmp_path: Path, declaration: str, function: str, expected: str
) -> None:
    file = write_file(tmp_path, f"{FED}\n@pipe.{declaration}  # here\ndef {function}: ...\n")

    assert refusal(file) == expected


@pytest.mark.parametrize(
    ("queue", "parameters"),
    [
        ("order-error", "order_error"),
        ("class", "class_"),
        ("2024orders", "_2024orders"),
        ("delivery", "delivery_, delivery"),
        ("spark", "spark_, spark"),
    ],
)
def test_a_queue_of_any_name_has_a_parameter(tmp_path: Path, queue: str, parameters: str) -> None:
    file = write_file(
        tmp_path,
        f"pipe.schema('{queue}')\n@pipe.sink(inputs='{queue}')\ndef bill({parameters}): ...\n",
    )

    check(load(str(file)))


@pytest.mark.parametrize(
    ("declaration", "problem"),
    [
        (
            "stream(inputs='order', alts='product')",
            "has inputs and alts: it can have one or the other",
        ),
        ("stream(output='bill')", "reads nothing: give inputs or alts"),
        ("sink(tables='order')", "reads nothing: give inputs or alts"),
        ("source(output=())", "has no output"),
        (
            "stream(inputs=['order', 'product'], errors='lost')",
            "has an errors queue and several inputs: a step of one input only can be split",
        ),
        (
            "stream(inputs='order', output='bill', errors='bill')",
            "has bill both as an output and as its errors queue",
        ),
        (
            "project('order-1', into='t', columns='n int')",
            "projects order-1, which is a stream: a projection takes a category",
        ),
        (
            "stream(inputs='order', types={'product': ['Made']})",
            "has types for product, which it does not read",
        ),
        (
            "sink(inputs=['order', 'order'])",
            "names a category or stream twice among its inputs and tables",
        ),
        (
            "sink(inputs='order', tables=Latest('order'))",
            "names a category or stream twice among its inputs and tables",
        ),
    ],
)
def test_parts_that_do_not_go_together(tmp_path: Path, declaration: str, problem: str) -> None:
    file = write_file(
        tmp_path, f"{FED}\n@pipe.{declaration}  # here\ndef bill(order, product): ...\n"
    )

    assert refusal(file) == f"bill {problem}"
