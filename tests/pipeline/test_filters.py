"""Filters that become SQL mean the same there; all others are left to Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from penstock.pipeline.filters import as_sql

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TAKEN: list[tuple[Filter, str]] = [
    (EqualTo(("type",), "Opened"), "m.\"type\" = 'Opened'"),
    (EqualTo(("type",), "it's"), "m.\"type\" = 'it''s'"),
    (EqualTo(("id",), "x"), "m.\"id\"::text = 'x'"),
    (In(("stream_name",), ("a-1", "a-2")), "m.\"stream_name\" in ('a-1', 'a-2')"),
    (StringStartsWith(("type",), "Op_%"), "starts_with(m.\"type\", 'Op_%')"),
    (GreaterThan(("global_position",), 7), 'm."global_position" > 7'),
    (GreaterThanOrEqual(("position",), 7), 'm."position" >= 7'),
    (LessThan(("position",), 7), 'm."position" < 7'),
    (LessThanOrEqual(("position",), 7), 'm."position" <= 7'),
    (GreaterThan(("time",), NOON), "m.\"time\" > '2026-01-01 12:00:00'::timestamp"),
    (IsNotNull(("type",)), "true"),
]
LEFT: list[Filter] = [
    GreaterThan(("type",), "Opened"),  # the database may sort texts in another order
    EqualTo(("data",), "{}"),  # its text is written in another way there
    EqualTo(("data", "amount"), 5),
    IsNotNull(("data",)),
    IsNull(("type",)),
    In(("type",), ("a", None)),
    EqualTo(("type",), "a\0b"),
    StringStartsWith(("type",), "a\0"),
    StringStartsWith(("id",), "a"),
    EqualTo(("position",), True),
    EqualTo(("position",), 1.5),
    EqualNullSafe(("type",), "a"),
    StringContains(("type",), "a"),
    StringEndsWith(("type",), "a"),
    Not(EqualTo(("type",), "a")),
]


@pytest.mark.parametrize(("one", "expected"), TAKEN, ids=lambda value: str(value))
def test_a_filter_on_a_plain_column_becomes_sql(one: Filter, expected: str) -> None:
    assert as_sql(one) == expected


@pytest.mark.parametrize("one", LEFT, ids=str)
def test_any_other_filter_is_left_to_spark(one: Filter) -> None:
    assert as_sql(one) is None


def test_a_time_of_another_zone_is_the_same_instant() -> None:
    there = NOON.astimezone(timezone(timedelta(hours=5)))

    assert as_sql(EqualTo(("time",), there)) == as_sql(EqualTo(("time",), NOON))
