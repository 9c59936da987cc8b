"""A scalar in `data` is read in the type that a schema gives it, alone and in an array.

So it is in a task, and on the driver, which reads in another way.
"""

from __future__ import annotations

import itertools
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql.types import ArrayType, DataType, MapType, StringType

from penstock import Store
from penstock.errors import WrongValue
from tests.spark.reading import Reading, read, read_on_driver, struct, typed_data

SCALARS: list[tuple[str, Any, Any]] = [
    ("string", "text", "text"),
    ("string", 1.50, "1.5"),
    ("string", 1e-7, "0.0000001"),
    ("string", True, "true"),
    ("string", {"a": [1, None]}, '{"a": [1, null]}'),
    ("byte", -128, -128),
    ("short", 32767, 32767),
    ("integer", "12", 12),
    ("long", 2**63 - 1, 2**63 - 1),
    ("float", 0.5, 0.5),
    ("double", 1e300, 1e300),
    ("double", 3, 3.0),
    ("boolean", False, False),
    ("boolean", "yes", True),
    ("decimal(10,2)", 1.235, Decimal("1.24")),
    ("decimal(38,0)", 10**37, Decimal(10**37)),
    ("date", "2026-02-28", date(2026, 2, 28)),
    ("date", "2026-02-28T10:00:00Z", date(2026, 2, 28)),
    ("timestamp", "2026-01-01T10:00:00+02:00", datetime(2026, 1, 1, 8, tzinfo=UTC)),
    ("timestamp", "2026-01-01", datetime(2026, 1, 1, tzinfo=UTC)),
    ("timestamp", "2026-01-01T10:00Z", datetime(2026, 1, 1, 10, tzinfo=UTC)),
    ("timestamp", "2026-01-01T10:00:00-0130", datetime(2026, 1, 1, 11, 30, tzinfo=UTC)),
    ("timestamp", "2026-01-01 10:00:00.123456", datetime(2026, 1, 1, 10, 0, 0, 123456, UTC)),
    ("timestamp_ntz", "2026-01-01T10:00:00+02:00", datetime(2026, 1, 1, 10)),  # noqa: DTZ001
    ("binary", "AAEC\n/w==", b"\x00\x01\x02\xff"),
]

NESTED = {
    "struct": struct(a="integer"),
    "array": ArrayType(StringType()),
    "map": MapType(StringType(), StringType()),
}

WRONG: list[tuple[str, Any]] = [
    ("byte", 128),
    ("integer", 2**31),
    ("integer", 1.5),
    ("integer", True),
    ("long", "twelve"),
    ("float", 1e39),
    ("double", "1,5"),
    ("boolean", 2),
    ("decimal(4,2)", 100),
    ("decimal(10,2)", "NaN"),
    ("date", "2026-02-30"),
    ("date", "infinity"),
    ("date", "today"),
    ("date", "now"),
    ("date", "01/02/2026"),
    ("date", "20260102"),
    ("date", "Jan 2 2026"),
    ("date", " 2026-01-02"),
    ("timestamp", "now"),
    ("timestamp", "yesterday"),
    ("timestamp", "epoch"),
    ("timestamp", "01/02/2026 10:00"),
    ("timestamp", "2026-01-02 24:00:00"),
    ("timestamp_ntz", "tomorrow"),
    ("timestamp", "10 o'clock"),
    ("timestamp", "infinity"),
    ("timestamp_ntz", "12026-01-01 00:00"),
    ("binary", "not base64!"),
    ("struct", "text"),
    ("struct", [1]),
    ("array", {"a": 1}),
    ("map", [1]),
]


class Shelf:
    """A database that many tests share; each has a category of its own."""

    _numbers = itertools.count()

    def __init__(self, store: Store, how: Reading) -> None:
        self.store = store
        self.how = how
        self.url = str(store.settings.database_url)

    def put(self, *values: Any) -> str:
        """Write a message for each value and return their category."""
        category = f"thing{next(self._numbers)}"
        for value in values:
            self.store.write_message(f"{category}-1", "Seen", {"value": value})
        return category

    def get(self, kind: str | DataType, category: str, **options: str) -> list[Any]:
        """Return the values, read as a type."""
        kind = NESTED.get(kind, kind) if isinstance(kind, str) else kind
        found = typed_data(self.url, struct(value=kind), self.how, category=category, **options)
        return [data["value"] for data in found]


@pytest.fixture(scope="module", params=[read, read_on_driver], ids=["task", "driver"])
def shelf(shared_store: Store, request: pytest.FixtureRequest) -> Shelf:
    return Shelf(shared_store, request.param)


def array_of(kind: str) -> ArrayType:
    return ArrayType(NESTED.get(kind) or struct(value=kind)["value"].dataType)


@pytest.mark.parametrize(("kind", "written", "expected"), SCALARS)
def test_a_scalar_is_read_in_its_type(shelf: Shelf, kind: str, written: Any, expected: Any) -> None:
    category = shelf.put(written)

    assert shelf.get(kind, category) == [expected]
    assert shelf.get(kind, category, onWrongType="null") == [expected]


@pytest.mark.parametrize(("kind", "written", "expected"), SCALARS)
def test_a_scalar_in_an_array_is_read_as_one_that_stands_alone(
    shelf: Shelf, kind: str, written: Any, expected: Any
) -> None:
    category = shelf.put([written, None])

    assert shelf.get(array_of(kind), category) == [[expected, None]]


@pytest.mark.parametrize(("kind", "written"), WRONG)
def test_a_value_of_the_wrong_type_is_named(shelf: Shelf, kind: str, written: Any) -> None:
    category = shelf.put(None, written)
    position = shelf.store.get_category_messages(category)[1].global_position

    with pytest.raises(WrongValue) as raised:
        shelf.get(kind, category)

    assert raised.value.field == "data.value"
    assert raised.value.global_position == position
    assert str(raised.value).startswith(f"data.value of the message at {position} is ")
    assert 'onWrongType="null"' in str(raised.value)


@pytest.mark.parametrize(("kind", "written"), WRONG)
def test_a_value_of_the_wrong_type_is_null_if_the_reader_says_so(
    shelf: Shelf, kind: str, written: Any
) -> None:
    category = shelf.put(written)

    assert shelf.get(kind, category, onWrongType="null") == [None]


@pytest.mark.parametrize(("kind", "written"), WRONG)
def test_a_wrong_value_in_an_array_is_named_or_makes_the_array_null(
    shelf: Shelf, kind: str, written: Any
) -> None:
    category = shelf.put([written])

    with pytest.raises(WrongValue) as raised:
        shelf.get(array_of(kind), category)

    assert raised.value.field == "data.value"
    assert raised.value.global_position is not None
    assert shelf.get(array_of(kind), category, onWrongType="null") == [None]
