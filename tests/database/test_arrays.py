"""What goes into an array literal comes out of it on the server."""

from __future__ import annotations

from uuid import uuid4

import psycopg
import pytest

from penstock.database.arrays import text_array, uuid_array


@pytest.mark.parametrize(
    "texts",
    [
        [],
        [""],
        ["plain", None, "NULL", "null"],
        ['{"a": "b\\\\c\\"d", "e": [1, 2]}'],
        ["\\", '"', "\\\\", '\\"', "{", "}", ",", " padded ", "two\nlines\ttab"],
        ["ä", "日本", "🙂"],
    ],
)
def test_texts_come_out_as_they_went_in(database_url: str, texts: list[str | None]) -> None:
    with psycopg.connect(database_url) as connection:
        row = connection.execute("select %s::text[]", (text_array(texts),)).fetchone()

    assert row == (texts,)


def test_ids_come_out_as_they_went_in(database_url: str) -> None:
    ids = [uuid4(), uuid4()]

    with psycopg.connect(database_url) as connection:
        row = connection.execute("select %s::uuid[]", (uuid_array(ids),)).fetchone()

    assert row == (ids,)
