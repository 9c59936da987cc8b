"""The declaration of a table: what is taken, and what is refused before anything runs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ValidationError
from penstock.lake.declaration import PartitionField, SortField, lake_table

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True).filter(
    lambda name: not name.endswith("__next")
)
TIMES = st.sampled_from(["year", "month", "day", "hour"])
SIZES = st.sampled_from(["bucket", "truncate"])
SPACE = st.sampled_from(["", " ", "  "])


@given(column=NAMES, kind=TIMES, space=SPACE)
def test_a_transform_of_time_is_read_as_it_is_written(column: str, kind: str, space: str) -> None:
    declared = lake_table("shop.sale", partition_by=f"{kind}({space}{column}{space})")

    assert declared.partition_by == (PartitionField(column, kind),)
    assert declared.partition_by[0].name == f"{column}_{kind}"


@given(column=NAMES, kind=SIZES, size=st.integers(1, 10**9 - 1), space=SPACE)
def test_a_transform_with_a_size_is_written_as_iceberg_writes_it(
    column: str, kind: str, size: int, space: str
) -> None:
    declared = lake_table("shop.sale", partition_by=f"{kind}({size},{space}{column})")

    assert declared.partition_by == (PartitionField(column, f"{kind}[{size}]"),)


@given(columns=st.lists(NAMES, min_size=1, max_size=4, unique=True), data=st.data())
def test_columns_alone_are_partitions_by_value_and_an_order(
    columns: list[str], data: st.DataObject
) -> None:
    descending = data.draw(st.lists(st.booleans(), min_size=4, max_size=4))
    texts = [f"{one} desc" if down else one for one, down in zip(columns, descending, strict=False)]

    declared = lake_table("shop.sale", partition_by=columns, sort_by=texts)

    assert [one.name for one in declared.partition_by] == columns
    assert declared.sort_by == tuple(
        SortField(one, down) for one, down in zip(columns, descending, strict=False)
    )


@given(parts=st.lists(NAMES, min_size=2, max_size=4))
def test_a_name_has_a_namespace(parts: list[str]) -> None:
    assert lake_table(".".join(parts)).name == ".".join(parts)


@given(text=st.text(max_size=20))
def test_any_other_text_is_refused_by_its_name_or_taken_whole(text: str) -> None:
    for argument in ("partition_by", "sort_by", "key"):
        try:
            declared = lake_table("shop.sale", **{argument: text})
        except ValidationError as error:
            named = error.name
        else:
            named = argument if getattr(declared, argument) else "nothing"
        assert named == argument


def test_a_key_makes_it_an_upsert() -> None:
    assert lake_table("shop.sale", key="n").mode == "upsert"
    assert lake_table("shop.sale").mode == "append"


@pytest.mark.parametrize(
    ("name", "options", "wrong"),
    [
        ("sale", {}, "table"),
        ("shop.", {}, "table"),
        ("shop.a b", {}, "table"),
        ("shop.sale;drop", {}, "table"),
        (None, {}, "table"),
        (f"shop.{'a' * 200}", {}, "table"),
        ("shop.sale__next", {}, "table"),
        ("shop.sale", {"key": "a.b"}, "key"),
        ("shop.sale", {"key": ["a", "a"]}, "key"),
        ("shop.sale", {"key": 3}, "key"),
        ("shop.sale", {"mode": "upsert"}, "key"),
        ("shop.sale", {"mode": "append", "key": "n"}, "key"),
        ("shop.sale", {"mode": "merge"}, "mode"),
        ("shop.sale", {"partition_by": "week(sold_at)"}, "partition_by"),
        ("shop.sale", {"partition_by": "bucket(0, n)"}, "partition_by"),
        ("shop.sale", {"partition_by": "bucket(n)"}, "partition_by"),
        ("shop.sale", {"partition_by": ["bucket(2, n)", "bucket(4, n)"]}, "partition_by"),
        ("shop.sale", {"sort_by": "n sideways"}, "sort_by"),
        ("shop.sale", {"sort_by": ["n", "n desc"]}, "sort_by"),
    ],
)
def test_what_is_wrong_is_named_with_its_value(
    name: Any, options: dict[str, Any], wrong: str
) -> None:
    with pytest.raises(ValidationError) as raised:
        lake_table(name, **options)

    assert raised.value.name == wrong
