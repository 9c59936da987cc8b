"""What may be said in `.option(…)`, and what is refused, by name."""

from __future__ import annotations

import pytest

from penstock.errors import ValidationError
from penstock.spark.options import LATEST, read_options, write_options
from penstock.spark.target import Target


def test_a_read_needs_no_more_than_a_target() -> None:
    options = read_options({"category": "account"})

    assert options.target == Target(category="account")
    assert (options.url, options.columns, options.after, options.until) == (None,) * 4
    assert (options.partitions, options.max_rows_per_batch) == (4, None)
    assert (options.null_if_wrong, options.fail_on_data_loss) == (False, True)


def test_names_of_options_are_of_any_case() -> None:
    options = read_options({"Category": "a", "MAXROWSPERBATCH": "7", "onWrongType": "NULL"})

    assert options.max_rows_per_batch == 7
    assert options.null_if_wrong


def test_credentials_of_the_warehouse_reach_the_target_and_no_text() -> None:
    options = read_options({"category": "a", "lakeOptions": '{"s3.secret-access-key": "hush"}'})

    signed_in = options.signed_in({"s3.region": "here"})

    assert signed_in.target.lake_options == {"s3.region": "here", "s3.secret-access-key": "hush"}
    assert "hush" not in repr(signed_in)
    with pytest.raises(ValidationError, match=r"\*\*\*") as raised:
        read_options({"category": "a", "lakeOptions": '["hush"]'})
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize("said", ["Opened, Closed", "Opened,Closed,", '["Opened", "Closed"]'])
def test_a_list_is_names_with_commas_or_json(said: str) -> None:
    options = read_options({"category": "$all", "types": said})

    assert options.target.types == ("Opened", "Closed")


def test_a_json_list_has_names_with_commas() -> None:
    options = read_options({"category": "a", "types": '["a, b", "c"]'})

    assert options.target.types == ("a, b", "c")


def test_attributes_are_a_json_object_of_values_or_lists_of_alternatives() -> None:
    options = read_options({"attributes": '{"course": "Algebra", "room": [1, true]}'})

    assert options.target.attributes == (("course", ("Algebra",)), ("room", ("1", "true")))


def test_a_read_may_begin_at_the_end() -> None:
    assert read_options({"category": "a", "after": "latest"}).after == LATEST
    assert read_options({"category": "a", "after": "-1", "until": "12"}).after == -1


def test_what_spark_adds_to_the_options_is_no_mistake() -> None:
    read_options({"category": "a", "path": "x", "checkpointLocation": "y"})
    write_options({"checkpointLocation": "y", "queryName": "q"})


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"category": ""},
        {"category": "a", "stream": "a-1"},
        {"stream": "a-1", "attributes": '{"a": 1}'},
    ],
)
def test_exactly_one_target_is_needed(options: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="exactly one of category"):
        read_options(options)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("category", "account-1"),
        ("stream", "account"),
        ("category", "a\0b"),
        ("stream", "a-\0"),
        ("attributes", "course=Algebra"),
        ("attributes", "{}"),
        ("attributes", "[1]"),
        ("attributes", '{"a": []}'),
        ("types", "[1]"),
        ("types", '["a"'),
        ("types", "A,B\0"),
        ("after", "first"),
        ("after", "-2"),
        ("after", "1.5"),
        ("until", "9999999999999999999"),
        ("until", "-2"),
        ("partitions", "0"),
        ("maxRowsPerBatch", "0"),
        ("onWrongType", "ignore"),
        ("failOnDataLoss", "maybe"),
        ("maxRows", "7"),
        ("delivery", "d"),
    ],
)
def test_an_option_that_makes_no_sense_is_named(name: str, value: str) -> None:
    target = {} if name in ("category", "stream", "attributes") else {"category": "a"}

    with pytest.raises(ValidationError) as raised:
        read_options({**target, name: value})

    assert name.lower() in str(raised.value).lower()


@pytest.mark.parametrize("value", ["null", '{"b": 1}', "[null]"])
def test_the_value_of_an_attribute_is_simple(value: str) -> None:
    with pytest.raises(ValidationError, match="attribute a must be a str, int or bool"):
        read_options({"attributes": f'{{"a": {value}}}'})


def test_a_write_takes_a_delivery_and_an_order() -> None:
    options = write_options({"url": "u", "delivery": "d", "order_by": "seq"})

    assert (options.url, options.delivery, options.order_by) == ("u", "d", "seq")
    assert write_options({"orderBy": "seq"}).order_by == "seq"


def test_a_write_refuses_options_of_a_read() -> None:
    with pytest.raises(ValidationError, match="category"):
        write_options({"category": "a"})


@pytest.mark.parametrize("delivery", ["", "a\0b"])
def test_a_delivery_needs_a_name(delivery: str) -> None:
    with pytest.raises(ValidationError, match="delivery"):
        write_options({"delivery": delivery})


@pytest.mark.parametrize(
    ("options", "streaming", "rows"),
    [
        ({}, False, None),  # nobody would know what is published already
        ({"delivery": "d"}, False, 25_000),
        ({}, True, 25_000),
        ({"delivery": "d", "atomic": "true"}, False, None),
        ({"atomic": "true"}, False, None),
        ({"atomic": "true"}, True, None),
        ({"delivery": "d", "rowsPerTransaction": "7"}, False, 7),
        ({"rowsPerTransaction": "7", "atomic": "false"}, True, 7),
    ],
)
def test_a_delivery_is_published_in_several_transactions(
    options: dict[str, str], streaming: bool, rows: int | None
) -> None:
    assert write_options(options, streaming=streaming).rows_per_transaction == rows


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"rowsPerTransaction": "7"}, "given with a delivery"),
        ({"atomic": "false"}, "given with a delivery"),
        ({"delivery": "d", "rowsPerTransaction": "0"}, "a whole number from 1"),
        ({"delivery": "d", "rowsPerTransaction": "7", "atomic": "true"}, "left out"),
        ({"delivery": "d", "atomic": "maybe"}, "false or true"),
    ],
)
def test_what_cannot_be_so_published_is_refused(options: dict[str, str], expected: str) -> None:
    with pytest.raises(ValidationError, match=expected):
        write_options(options)
