"""Read as Spark's processes do, plan and tasks, or as a step does, without starting Spark."""

from __future__ import annotations

from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, StructType

from penstock.spark.connections import connected
from penstock.spark.read.binary_rows import BATCH_ROWS
from penstock.spark.read.columns import read_plan
from penstock.spark.read.driver_read import read_table
from penstock.spark.read.readers import SplitPartition
from penstock.spark.source import PenstockDataSource


class Reading(Protocol):
    """A way to read messages."""

    def __call__(self, url: str, schema: StructType | None = None, **options: str) -> pa.Table: ...


def struct(**fields: str | DataType) -> StructType:
    """Return a struct; simple types by name, such as `integer` or `decimal(10,2)`."""
    return struct_of(fields)


def struct_of(fields: dict[str, Any]) -> StructType:
    """Return a struct whose fields have any names."""
    found = StructType()
    for name, kind in fields.items():
        found.add(name, kind)
    return found


def reader_of(url: str, schema: StructType | None = None, **options: str) -> Any:
    """Return the reader that Spark would be given."""
    source = PenstockDataSource({"url": url, **options})
    return source.reader(schema or source.schema())


def partitions(url: str, **options: str) -> list[SplitPartition]:
    """Return what each task would read."""
    return list(reader_of(url, None, **options).partitions())


def read(url: str, schema: StructType | None = None, **options: str) -> pa.Table:
    """Return all that the tasks of a read give, in the order of the log."""
    reader = reader_of(url, schema, **options)
    batches = [batch for one in reader.partitions() for batch in reader.read(one)]
    table = pa.Table.from_batches(batches, reader_schema(reader))
    ordered = "global_position" in table.column_names
    return table.sort_by("global_position") if ordered else table


def read_on_driver(
    url: str,
    schema: StructType | None = None,
    *,
    batch_rows: int = BATCH_ROWS,
    **options: str,
) -> pa.Table:
    """Return the same, read as a step on the driver reads a few messages."""
    reader = reader_of(url, schema, partitions="1", **options)
    (one,) = reader.partitions()
    plan = read_plan(reader.schema, null_if_wrong=reader.options.null_if_wrong)
    with connected(reader.database) as connection:
        table = read_table(connection, one.target, plan, one.split, batch_rows=batch_rows)
    ordered = "global_position" in table.column_names
    return table.sort_by("global_position") if ordered else table


def reader_schema(reader: Any) -> pa.Schema:
    """Return the Arrow schema that Spark expects of a reader."""
    return to_arrow_schema(reader.schema, timezone="UTC")


def typed_data(url: str, data: DataType, how: Reading = read, **options: str) -> list[Any]:
    """Return `data` of messages, read as a type, in the order of the log."""
    schema = struct(data=data, global_position="long")
    return list(how(url, schema, **options).column("data").to_pylist())
