"""Ids are written as everybody writes them."""

from __future__ import annotations

from uuid import UUID

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.spark.read.columns import uuid_texts


# The Arrow driver brings them in the first form up to 1.8, and later in the second, as psycopg.
@settings(deadline=None)
@given(
    ids=st.lists(st.uuids(allow_nil=True)),
    start=st.integers(0, 3),
    form=st.sampled_from([pa.binary(), pa.binary(16)]),
)
def test_ids_are_written_as_python_writes_them(
    ids: list[UUID], start: int, form: pa.DataType
) -> None:
    column = pa.array([id.bytes for id in ids], form).slice(start)

    assert uuid_texts(column).to_pylist() == [str(id) for id in ids[start:]]
