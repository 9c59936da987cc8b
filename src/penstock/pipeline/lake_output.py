"""The rows that a function returns, as data files of its table in the lake.

A small result is written by the driver, any other by the tasks that compute it. A task returns
what the driver needs for the commit: its data files with their statistics and, to merge by key, the
keys. No row passes through the driver.

Of several rows with the same key, the one with the greatest `global_position` counts, if the frame
has that column; without it they are refused. A row that has nothing but its key deletes.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from penstock.errors import WrongColumns, WrongTable, WrongValue, first_line, shown
from penstock.lake.changes import TableChange
from penstock.lake.create import prepare_table, usable
from penstock.lake.declaration import UPSERT, LakeTable
from penstock.lake.files import FileWriter, file_writer
from penstock.lake.store_catalog import StoreCatalog, psycopg_errors
from penstock.pipeline.outputs import is_known_to_be_small
from penstock.spark.json_columns import refuse_duplicate_columns

POSITION = "global_position"
#: what a task returns: its data files, and the keys of its rows
_PARTS = "files binary, keys binary"
_PART = pa.schema({"files": pa.binary(), "keys": pa.binary()})


def write_to_table(
    catalog: StoreCatalog,
    declared: LakeTable,
    frame: DataFrame,
    driver_rows: int,
    summary: Mapping[str, str],
    *,
    rebuilding: bool,
) -> TableChange:
    """Evaluate a frame and write its rows to data files of its table, which no reader sees yet.

    The table is the live one, or the one that is being built to replace it.
    """
    columns = _columns(declared, frame)
    name = declared.next_name if rebuilding else declared.name
    with usable(catalog.properties), psycopg_errors():
        table = prepare_table(catalog, name, declared, columns)
    rows = _Rows(declared, columns, file_writer(table))
    parts = _written(frame, rows, driver_rows)
    files = [file for part in parts for file in pickle.loads(part["files"])]
    keys = [_from_ipc(part["keys"]) for part in parts if part["keys"] is not None]
    found = pa.concat_tables(keys) if keys else None
    change = TableChange(catalog, declared, table, files, found, summary)
    change.stage()
    return change


def _columns(declared: LakeTable, frame: DataFrame) -> pa.Schema:
    """Return the columns of a frame as Arrow has them, or raise what is wrong with them."""
    refuse_duplicate_columns(frame.schema)
    for name in declared.key:
        if name not in frame.columns:
            problem = f"there is no column {name}, which is of the key of {declared.name}"
            raise WrongColumns(problem, f"there are {', '.join(frame.columns)}")
    fields = []
    for one in frame.schema.toNullable().fields:  # whether a column is nullable varies
        problem = f"cannot have a column {one.name} of type {one.dataType.simpleString()}"
        if _has_variant(one.dataType):
            raise WrongTable(declared.name, f"{problem}: cast it to string")
        try:
            fields.append(to_arrow_schema(StructType([one]), timezone="UTC").field(0))
        except Exception as error:  # Spark has types that Arrow lacks
            raise WrongTable(declared.name, f"{problem}: {first_line(error)}") from None
    return pa.schema(fields)


def _has_variant(of: DataType) -> bool:
    if isinstance(of, StructType):
        return any(_has_variant(one.dataType) for one in of.fields)
    if isinstance(of, MapType):
        return _has_variant(of.valueType)
    if isinstance(of, ArrayType):
        return _has_variant(of.elementType)
    return isinstance(of, VariantType)


def _written(frame: DataFrame, rows: _Rows, driver_rows: int) -> list[dict[str, bytes]]:
    if is_known_to_be_small(frame, driver_rows):
        batches = rows(iter(frame.toArrow().to_batches()))
        return [part for batch in batches for part in batch.to_pylist()]
    if rows.declared.mode == UPSERT:
        frame = frame.repartition(*rows.declared.key)  # each key in one task
    return [one.asDict() for one in frame.mapInArrow(rows, _PARTS).collect()]


@dataclass(frozen=True)
class _Rows:
    """Writes rows in a task or on the driver, and returns what the commit needs."""

    declared: LakeTable
    columns: pa.Schema
    writer: FileWriter

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keys = None
        if self.declared.mode == UPSERT:
            held = list(batches)
            rows = pa.Table.from_batches(held) if held else self.columns.empty_table()
            rows, keys = self._merged(rows)
            batches = iter(rows.to_batches())
        with usable(self.writer.properties):
            files = list(self.writer.write(batches))
        if files or (keys is not None and keys.num_rows):
            part = {"files": pickle.dumps(files), "keys": None if keys is None else _ipc(keys)}
            yield pa.RecordBatch.from_pylist([part], _PART)

    def _merged(self, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Return the rows to write, one for each key, and all keys."""
        key = list(self.declared.key)
        for name in key:
            if rows.column(name).null_count:
                expected, of = "a value: it is of the key", f"a row for {self.declared.name}"
                raise WrongValue(name, None, expected, None, of=of)
        rows = _latest(rows, key, self.declared.name)
        values = [name for name in rows.schema.names if name not in (*key, POSITION)]
        if not values:
            return rows, rows.select(key)
        stays = reduce(pc.or_, [pc.is_valid(rows.column(name)) for name in values])
        return rows.filter(stays), rows.select(key)


def _latest(rows: pa.Table, key: list[str], table: str) -> pa.Table:
    """Return the last row of each key by global position; refuse others that share a key."""
    by = [*key, POSITION] if POSITION in rows.schema.names and POSITION not in key else key
    counts = rows.select(by).append_column("_n", pa.array(range(rows.num_rows), pa.int64()))
    counts = counts.group_by(by).aggregate([("_n", "count")])
    if counts.num_rows < rows.num_rows:
        twice = counts.filter(pc.greater(counts.column("_n_count"), 1)).select(key).slice(0, 1)
        problem = f"several rows for {table} have the key {shown(twice.to_pylist()[0])}"
        expected = "a step needs one row for each key: group them, or keep global_position"
        raise WrongColumns(problem, expected)
    if by == key:
        return rows
    rows = rows.take(pc.sort_indices(rows, [(POSITION, "ascending")]))
    numbered = rows.select(key).append_column("_n", pa.array(range(rows.num_rows), pa.int64()))
    last = numbered.group_by(key).aggregate([("_n", "max")])
    return rows.take(last.column("_n_max").sort())


def _ipc(rows: pa.Table) -> bytes:
    text = pa.BufferOutputStream()
    with pa.ipc.new_stream(text, rows.schema) as stream:
        stream.write_table(rows)
    return bytes(text.getvalue())


def _from_ipc(text: bytes) -> pa.Table:
    with pa.ipc.open_stream(text) as stream:
        return stream.read_all()
