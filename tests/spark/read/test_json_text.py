"""What Arrow reads of JSON is what PostgreSQL reads, or it is left to PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import psycopg
import pyarrow as pa
import pytest
from hypothesis import given, settings
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, LongType

from penstock.spark.connections import Connection
from penstock.spark.read.archived import as_rows
from penstock.spark.read.binary_rows import read_columns
from penstock.spark.read.columns import read_plan
from penstock.spark.read.json_text import plain_values
from tests.spark.reading import struct

KINDS: dict[str, str | DataType] = {
    "byte": "byte", "integer": "integer", "long": "long", "float": "float", "double": "double",
    "decimal": "decimal(10,2)", "boolean": "boolean", "string": "string", "date": "date",
    "timestamp": "timestamp", "timestamp_ntz": "timestamp_ntz", "longs": ArrayType(LongType()),
}  # fmt: skip
PLAIN: list[tuple[str, str, Any]] = [
    ("integer", "-12", -12),
    ("double", "1e-7", 1e-7),
    ("float", "0.1", pytest.approx(0.1)),
    ("decimal", "12345678.25", Decimal("12345678.25")),
    ("boolean", "true", True),
    ("string", r'"a \"b\" \u00fc"', 'a "b" ü'),
    ("date", '"2026-02-28"', date(2026, 2, 28)),
    ("timestamp", '"2026-01-01T10:00:00.5+02:00"', datetime(2026, 1, 1, 8, 0, 0, 500000, UTC)),
    ("timestamp", '"2026-01-01 10:00:00"', datetime(2026, 1, 1, 10, tzinfo=UTC)),
    ("timestamp_ntz", '"2026-01-01T10:00:00"', datetime(2026, 1, 1, 10)),  # noqa: DTZ001
    ("longs", "[1, null, 3]", [1, None, 3]),
]
TEXTS = st.sampled_from(
    [
        "12", "-1", "1e5", "yes", "NaN", "inf", "2026-02-28", "2026-02-30", "0001-01-01",
        "2026-01-01T10:00:00Z", "2026-01-01T10:00:00.1234567Z", "2026-01-01T10:00", "", "ü",
        "2026-01-01T23:59:60Z", "2026-01-01 10:00:00+0200", "9999-12-31T23:59:59-10:00", "1_000",
    ]
)  # fmt: skip
NUMBERS = st.one_of(
    st.integers(-130, 130),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.decimals(-(10**9), 10**9, places=3),
)
SCALARS = st.one_of(
    st.none(), st.booleans(), NUMBERS, TEXTS, st.lists(st.integers(0, 9), max_size=2)
)


def arrow_of(kind: Any) -> tuple[DataType, pa.DataType]:
    schema = struct(data=struct(value=kind))
    return schema["data"].dataType, to_arrow_schema(schema, timezone="UTC").field("data").type


@pytest.mark.parametrize(("kind", "text", "expected"), PLAIN)
def test_plain_values_are_read_by_arrow(kind: str, text: str, expected: Any) -> None:
    texts = pa.array([f'{{"value": {text}, "other": [{{}}]}}', None, "null", "{}"])

    found = plain_values(texts, *arrow_of(KINDS[kind]))

    assert found is not None
    assert found.to_pylist() == [{"value": expected}, None, None, {"value": None}]


@pytest.fixture(scope="module")
def connection(shared_url: str) -> Iterator[Connection]:
    with psycopg.connect(shared_url, autocommit=True) as connection:
        connection.execute("set timezone = 'UTC'")
        yield connection


@settings(max_examples=60)
@given(kind=st.sampled_from(sorted(KINDS)), values=st.lists(SCALARS, min_size=1, max_size=3))
def test_no_value_differs_from_what_postgresql_reads(
    connection: Connection, kind: str, values: list[Any]
) -> None:
    texts = [json.dumps({"value": one}, default=float) for one in values]
    normal = connection.execute("select array(select unnest(%s::jsonb[])::text)", (texts,))
    [stored] = normal.fetchone() or [None]

    found = plain_values(pa.array(stored), *arrow_of(KINDS[kind]))

    if found is not None:
        schema = struct(data=struct(value=KINDS[kind]))
        batch = pa.RecordBatch.from_pydict({"global_position": [1] * len(stored), "data": stored})
        plan = read_plan(schema)
        [columns] = read_columns(connection, plan.query(as_rows(batch)))
        assert found.to_pylist() == plan.batch(columns).column("data").to_pylist()
