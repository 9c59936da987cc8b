"""What the driver reads by itself is, to the last bit, what tasks would have read."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from penstock import Message, Store
from tests.spark.reading import read, read_on_driver, struct

FIELDS = {
    "text": "string",
    "tiny": "byte",
    "small": "short",
    "whole": "integer",
    "large": "long",
    "rough": "float",
    "fine": "double",
    "is_so": "boolean",
    "price": "decimal(10,2)",
    "day": "date",
    "instant": "timestamp",
    "wall": "timestamp_ntz",
    "raw": "binary",
}
FIRST: dict[str, Any] = {
    "text": "", "tiny": -128, "small": -(2**15), "whole": -(2**31), "large": -(2**63),
    "rough": "NaN", "fine": "-Infinity", "is_so": False, "price": "-0.01", "day": "0001-01-01",
    "instant": "0001-01-01T00:00:00Z", "wall": "0001-01-01T00:00:00", "raw": "",
}  # fmt: skip
LAST: dict[str, Any] = {
    "text": 'a "quoted"\n\tline, and 🦔', "tiny": 127, "small": 2**15 - 1, "whole": 2**31 - 1,
    "large": 2**63 - 1, "rough": 1e38, "fine": 1e308, "is_so": True, "price": "99999999.99",
    "day": "9999-12-31", "instant": "9999-12-31T23:59:59.999999Z",
    "wall": "9999-12-31T23:59:59.999999", "raw": "AAEC/w==",
}  # fmt: skip
TYPED = struct(data=struct(**FIELDS), metadata=struct(user="string"), global_position="long")


def told(table: Any) -> list[str]:
    """Return rows as text, since not a number is not itself."""
    return [repr(row) for row in table.to_pylist()]


def test_messages_are_the_same(store: Store, database_url: str) -> None:
    store.write_messages(
        "thing-1", [Message("Seen", data, {"user": "ann"}) for data in (FIRST, {}, LAST)]
    )
    store.write_message("thing-2", "Seen")

    driver = read_on_driver(database_url, category="thing")

    assert driver.num_rows == 4
    assert driver.equals(read(database_url, category="thing"))


def test_typed_fields_are_the_same_at_both_ends_of_each_type_and_absent(
    store: Store, database_url: str
) -> None:
    store.write_messages(
        "thing-1", [Message("Seen", data, {"user": "ann"}) for data in (FIRST, {}, LAST)]
    )
    with psycopg.connect(database_url) as connection:
        connection.execute("update message_store.messages set metadata = null where position = 1")

    driver = read_on_driver(database_url, TYPED, category="thing")
    task = read(database_url, TYPED, category="thing")

    assert driver.schema == task.schema
    assert told(driver) == told(task)
    assert [row["data"]["day"] is None for row in driver.to_pylist()] == [False, True, False]
    assert [row["metadata"] is None for row in driver.to_pylist()] == [False, True, False]


@pytest.mark.parametrize("time", ["infinity", "-infinity", "12026-01-01", "0044-03-15 BC"])
def test_times_that_python_does_not_know_are_the_same(
    store: Store, database_url: str, time: str
) -> None:
    store.write_message("thing-1", "Seen")
    with psycopg.connect(database_url) as connection:
        connection.execute("update message_store.messages set time = %s", (time,))

    driver = read_on_driver(database_url, category="thing")

    assert driver.equals(read(database_url, category="thing"))


@pytest.mark.parametrize("count", [0, 1, 3, 4, 9])
def test_many_batches_are_one_table(store: Store, database_url: str, count: int) -> None:
    for _ in range(count):
        store.write_message("thing-1", "Seen")

    driver = read_on_driver(database_url, batch_rows=3, category="thing")

    assert driver.column("position").to_pylist() == list(range(count))
    assert driver.equals(read(database_url, category="thing"))


def test_it_reads_whatever_a_session_is_set_to(store: Store, database_url: str) -> None:
    store.write_message("thing-1", "Seen", FIRST)
    expected = told(read(database_url, TYPED, category="thing"))
    with psycopg.connect(database_url, autocommit=True) as connection:
        name = connection.info.dbname
        for setting in (
            "datestyle = 'SQL, DMY'",
            "extra_float_digits = -15",
            "bytea_output = escape",
        ):
            connection.execute(f"alter database {name} set {setting}".encode())

    assert told(read_on_driver(database_url, TYPED, category="thing")) == expected
