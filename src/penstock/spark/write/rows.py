"""The rows to stage, made from the columns of a frame. Pure: Arrow in, Arrow out.

`type` and `data` make a message. `data` and `metadata` are JSON text, or a struct or map that
becomes JSON (fields that are null are left out). A message without a `stream_name` gets a stream of
its own, in the given category, or else in the category of its type's name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import DataType, StructType

from penstock.errors import ValidationError, WrongColumns, WrongValue
from penstock.message import as_uuid, new_id
from penstock.spark.json_columns import json_texts, refuse_duplicate_columns, refuse_without_json

#: the columns of the staging table that are always filled, besides the token
STAGED = (
    "ordinal", "order_number", "order_text", "stream_name", "category", "type", "data",
    "metadata", "expected_version",
)  # fmt: skip
_ONLY_READ = {"position", "global_position", "time"}
_TEXT, _JSON, _WHOLE = "string", "string or a struct or a map", "a whole number"
_COLUMNS = {
    "stream_name": _TEXT, "type": _TEXT, "data": _JSON, "metadata": _JSON, "id": _TEXT,
    "expected_version": _WHOLE, "ordinal": _WHOLE,
}  # fmt: skip
_ALLOWED = {
    _TEXT: {"string", "void"},
    _JSON: {"string", "struct", "map", "void"},
    _WHOLE: {"byte", "short", "integer", "long", "void"},
}
_EXPECTED = "columns are stream_name, type, data, metadata, id, expected_version and ordinal"
_SORTABLE = {
    "string", "byte", "short", "integer", "long", "float", "double", "boolean", "date", "timestamp",
    "timestamp_ntz",
}  # fmt: skip


@dataclass(frozen=True)
class RowsToStage:
    """Turns batches of a frame into rows of the staging table."""

    names: tuple[str, ...]
    order_by: str | None
    #: of messages without a stream; None: the name of their type
    category: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the staging table that are filled."""
        return (*STAGED, "id") if "id" in self.names else STAGED

    def of(self, batch: pa.RecordBatch, first: int) -> pa.Table:
        """Return the rows of a batch; the first of them has that ordinal."""
        types = _column(batch, "type")
        _refuse(pc.or_kleene(pc.is_null(types), pc.equal(types, "")), "type", types, "a name")
        streams = _column(batch, "stream_name")
        versions = _column(batch, "expected_version", "int64")
        _check_streams(streams, versions)
        columns: dict[str, Any] = {
            "ordinal": pa.array(range(first, first + batch.num_rows), pa.int64()),
            **self._order(batch),
            "stream_name": streams,
            "category": self._categories(streams, types),
            "type": types,
            "data": _json(batch, "data"),
            "metadata": _json(batch, "metadata"),
            "expected_version": versions,
        }
        if "id" in self.names:
            ids = _column(batch, "id").to_pylist()
            columns["id"] = pa.array([one or str(new_id()) for one in ids], pa.string())
        return pa.table(columns)

    def _order(self, batch: pa.RecordBatch) -> dict[str, Any]:
        nothing = pa.nulls(batch.num_rows, pa.int64())
        if self.order_by is None:
            return {"order_number": nothing, "order_text": nothing}
        column = batch.column(self.order_by)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            return {"order_number": nothing, "order_text": column}
        return {"order_number": _sortable(column), "order_text": nothing}

    def _categories(self, streams: pa.Array, types: pa.Array) -> pa.Array:
        if self.category is not None:
            elsewhere = pc.invert(in_category(streams, self.category))
            expected = f"a stream of category {self.category}"
            _refuse(elsewhere, "stream_name", streams, expected)
            return pa.array([self.category] * len(types), pa.string())
        lost = pc.and_(pc.is_null(streams), pc.match_substring(types, "-"))
        _refuse(lost, "type", types, "a name without '-', or give a stream_name")
        return types


def rows_to_stage(
    schema: StructType, order_by: str | None = None, category: str | None = None
) -> RowsToStage:
    """Return how frames of this schema become rows to stage, or raise if they cannot."""
    refuse_duplicate_columns(schema)
    found = {one.name: one.dataType for one in schema.fields}
    if order_by is not None and order_by not in found:
        raise WrongColumns(f"there is no column {order_by} to order by", _EXPECTED)
    for name in ("type", "data"):
        if name not in found:
            raise WrongColumns(f"column {name} is missing", _EXPECTED)
    for name, kind in found.items():
        _check(name, kind, order_by)
    by = order_by or ("ordinal" if "ordinal" in found else None)
    if by is not None and found[by].typeName() not in _SORTABLE:
        problem = f"column {by} is {found[by].simpleString()}, which has no order here"
        raise WrongColumns(problem, "order by a number, a text, a date or a time")
    return RowsToStage(tuple(found), by, category)


def _check(name: str, kind: DataType, order_by: str | None) -> None:
    if name not in _COLUMNS:
        if name in _ONLY_READ or name == order_by:
            return
        raise WrongColumns(f"column {name} is not one of a message", _EXPECTED)
    expected = _COLUMNS[name]
    if kind.typeName() not in _ALLOWED[expected]:
        raise WrongColumns(f"column {name} is {kind.simpleString()}", f"it has to be {expected}")
    refuse_without_json(name, kind)


def _column(batch: pa.RecordBatch, name: str, kind: str = "string") -> Any:
    if name not in batch.schema.names:
        return pa.nulls(batch.num_rows, kind)
    return batch.column(name).cast(kind)


def _json(batch: pa.RecordBatch, name: str) -> Any:
    if name not in batch.schema.names or pa.types.is_null(batch.column(name).type):
        return _column(batch, name)
    column = batch.column(name)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return json_texts(column, name)
    begins = pc.starts_with(pc.utf8_ltrim_whitespace(column), "{")
    _refuse(pc.invert(begins), name, column, "a JSON object")
    return column


def find_malformed(rows: pa.Table) -> WrongValue | None:
    """Return the first value that the database cannot store, after it refused the rows."""
    for name in ("stream_name", "type"):
        for text in rows.column(name).to_pylist():
            if "\0" in (text or ""):
                return WrongValue(name, text, "text without NUL characters", None)
    for text in rows.column("id").to_pylist() if "id" in rows.column_names else ():
        try:
            as_uuid(text)
        except ValidationError as error:
            return WrongValue("id", text, error.expected, None)
    for name in ("data", "metadata"):
        for text in rows.column(name).to_pylist():
            try:
                msgspec.json.decode(text or "{}")
            except msgspec.DecodeError:
                return WrongValue(name, text, "a JSON object", None)
            if "\\u0000" in (text or ""):
                return WrongValue(name, text, "JSON without NUL characters", None)
    return None


def _check_streams(streams: Any, versions: Any) -> None:
    """Refuse invalid stream names, as the client does."""
    lost = pc.and_(pc.is_null(streams), pc.is_valid(versions))
    for wrong, expected in (
        (pc.equal(streams, ""), "a name, or null for a stream of its own"),
        (pc.starts_with(streams, "-"), "a name with a category before its '-'"),
        (pc.equal(streams, "$all"), "a stream; '$all' is the whole log"),
        (lost, "a name, which an expected_version needs"),
    ):
        _refuse(wrong, "stream_name", streams, expected)


def in_category(streams: Any, category: str) -> Any:
    """Return for each stream whether it is in a category; null where there is no stream."""
    return pc.or_(pc.equal(streams, category), pc.starts_with(streams, f"{category}-"))


def _refuse(wrong: Any, name: str, values: Any, expected: str) -> None:
    """Raise for the first value that is wrong."""
    found = pc.index(wrong, True).as_py()
    if found >= 0:
        raise WrongValue(name, values[found].as_py(), expected, None)


def _sortable(column: Any) -> Any:
    """Return integers that sort like the values, which may be numbers or times."""
    if pa.types.is_floating(column.type):
        bits = np.asarray(column.cast(pa.float64()).fill_null(0.0)).view(np.int64)
        ordered = np.where(bits < 0, np.int64(-(2**63)) - bits - 1, bits)
        return pc.if_else(pc.is_valid(column), pa.array(ordered), None)
    if pa.types.is_boolean(column.type) or pa.types.is_integer(column.type):
        return column.cast(pa.int64())
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32()).cast(pa.int64())
    return column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
