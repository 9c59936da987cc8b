"""Read as Spark's processes do, plan and tasks, without starting Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.types import DataType, StructType

from penstock.pipeline.batch_reader import Part
from penstock.pipeline.data_source import PenstockDataSource


def reader_of(url: str, schema: str | StructType | None = None, **options: str) -> Any:
    """Return the reader that Spark would be given."""
    source = PenstockDataSource({"url": url, **options})
    if isinstance(schema, str):
        schema = DataType.fromDDL(schema)  # type: ignore[assignment]
    return source.reader(schema or source.schema())  # type: ignore[arg-type]


def parts(url: str, **options: str) -> list[Part]:
    """Return what each task would read."""
    return list(reader_of(url, **options).partitions())


def read(url: str, schema: str | StructType | None = None, **options: str) -> pa.Table:
    """Return all that the tasks of a read give."""
    reader = reader_of(url, schema, **options)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return pa.Table.from_batches(batches) if batches else pa.table({})


def column(url: str, schema: str, name: str = "data", **options: str) -> list[Any]:
    """Return one column of all messages, in the order of the log."""
    options = options or {"category": "$all"}
    table = read(url, f"{schema}, global_position bigint", **options)
    return table.sort_by("global_position").column(name).to_pylist() if table else []
