"""The rows that were added to an Iceberg table, as the input of a source."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from penstock.errors import ValidationError, WrongTable
from penstock.extras import from_extra
from penstock.lake.create import usable
from penstock.lake.increments import increment_after
from penstock.lake.reading import FileReader, file_reader, from_bytes, to_bytes
from penstock.lake.store_catalog import lake_properties, open_catalog
from penstock.pipeline.delivery import Delivery
from penstock.settings import Settings

with from_extra("lake"):
    from pyiceberg.exceptions import NoSuchTableError
    from pyiceberg.table import FileScanTask, Table


def rows_added(
    settings: Settings, spark: SparkSession, name: str, delivery: Delivery, driver_rows: int
) -> DataFrame | None:
    """Return a frame of the rows added since the delivery's cursor; None if nothing happened.

    The cursor moves to the snapshot up to which they were read.
    """
    cursor = delivery.cursor
    if cursor is not None and not isinstance(cursor, int):
        raise ValidationError("cursor", cursor, f"the id of a snapshot of {name}")
    with usable(lake_properties(settings)):
        table = _table(settings, name)
        found = increment_after(table, cursor)
        if found is None:
            return None
        delivery.advance(found.snapshot_id)
        reader = file_reader(table)
        if found.rows <= driver_rows:
            rows = pa.Table.from_batches(reader.read(found.files), reader.columns)
            return spark.createDataFrame(rows)
    return _read_in_tasks(spark, reader, found.files)


def _table(settings: Settings, name: str) -> Table:
    try:
        return open_catalog(settings).load_table(name)
    except NoSuchTableError:
        raise WrongTable(name, "does not exist: create it, or write to it first") from None


def _read_in_tasks(
    spark: SparkSession, reader: FileReader, files: tuple[FileScanTask, ...]
) -> DataFrame:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from reader.read([from_bytes(one) for one in batch.column("file").to_pylist()])

    most = 2 * spark.sparkContext.defaultParallelism
    listed = spark.createDataFrame([(to_bytes(one),) for one in files], "file binary")
    schema = from_arrow_schema(reader.columns)
    assert isinstance(schema, StructType)
    return listed.repartition(min(len(files), most)).mapInArrow(read, schema)
