"""Ids are written as everybody writes them."""

from __future__ import annotations

from uuid import UUID

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.pipeline.id_texts import id_texts


@settings(deadline=None)
@given(ids=st.lists(st.uuids(allow_nil=True)), start=st.integers(0, 3))
def test_ids_are_written_as_python_writes_them(ids: list[UUID], start: int) -> None:
    column = pa.array([id.bytes for id in ids], pa.binary()).slice(start)

    assert id_texts(column).to_pylist() == [str(id) for id in ids[start:]]
