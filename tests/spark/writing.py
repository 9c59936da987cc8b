"""Stage and publish as Spark's tasks and driver do, without starting Spark."""

from __future__ import annotations

from typing import Any

import psycopg
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.spark.write.rows import rows_to_stage
from penstock.spark.write.staging import Published, Staged, publish, stage
from tests.spark.reading import struct

MESSAGE = struct(stream_name="string", type="string", data="string")
VERSIONED = struct(stream_name="string", type="string", data="string", expected_version="long")
IDENTIFIED = struct(id="string", stream_name="string", type="string", data="string")


class Writer:
    """Stages and publishes on one connection, as tasks and driver do on theirs."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def stage(
        self, schema: StructType, *rows: tuple[Any, ...], order_by: str | None = None
    ) -> Staged:
        arrow = to_arrow_schema(schema, timezone="UTC")
        columns = zip(*rows, strict=True) if rows else ([] for _ in arrow)
        arrays = [pa.array(values, one.type) for values, one in zip(columns, arrow, strict=True)]
        batch = pa.RecordBatch.from_arrays(arrays, names=schema.fieldNames())
        return stage(self.connection, rows_to_stage(schema, order_by), [batch], "here")

    def publish(
        self,
        *staged: Staged,
        source: str | None = None,
        batch: int = 0,
        rows_per_transaction: int | None = None,
        own_ids: bool = False,
    ) -> Published:
        return publish(
            self.connection,
            source,
            batch,
            staged,
            "here",
            rows_per_transaction=rows_per_transaction,
            own_ids=own_ids,
        )

    def count(self, table: str) -> int:
        row = self.connection.execute(f"select count(*) from {table}".encode()).fetchone()
        return int(row[0]) if row else -1
