"""The format `penstock`: the data source that Spark calls to read and write the log.

Spark creates these objects in several processes: planners on the driver, tasks on executors, and
for streams one process that lives as long as the query. So they hold little more than options, and
the database that the driver resolved is sent with the plan.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from penstock.errors import ValidationError
from penstock.spark.connections import find_database
from penstock.spark.options import read_options, write_options
from penstock.spark.read.columns import default_schema, read_plan
from penstock.spark.read.readers import BatchReader, StreamReader
from penstock.spark.sink import BatchWriter, StreamWriter, freeze_loaded_modules
from penstock.spark.write.rows import rows_to_stage


class PenstockDataSource(DataSource):
    """`format("penstock")`, for `read`, `readStream`, `write` and `writeStream`."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "penstock"

    def schema(self) -> StructType:
        """Return the columns of a message, or those of option `columns`."""
        return default_schema(read_options(self.options).columns)

    def reader(self, schema: StructType) -> BatchReader:
        """Return the reader of a batch.

        It takes no filters. Spark 4.3.0 keeps the filters of one query with the loaded frame, so
        the next query on it, or the other side of a union, silently lacks rows.
        """
        options = read_options(self.options)
        read_plan(schema)  # refuses what cannot be read
        return BatchReader(find_database(options.url, **options.replica), options, schema)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802
        """Return the reader of a stream."""
        options = read_options(self.options)
        read_plan(schema)
        return StreamReader(find_database(options.url, **options.replica), options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return the writer of a batch."""
        options = write_options(self.options)
        if overwrite:
            raise ValidationError("mode", "overwrite", "append: a log cannot be overwritten")
        rows = rows_to_stage(schema, options.order_by)
        return BatchWriter(find_database(options.url), rows, options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        """Return the writer of a stream."""
        options = write_options(self.options, streaming=True)
        if overwrite:
            raise ValidationError("output mode", "complete", "append: a log cannot be overwritten")
        if options.delivery is not None:
            expected = "left out: a streaming query names its deliveries by its id and batches"
            raise ValidationError("delivery", options.delivery, expected)
        rows = rows_to_stage(schema, options.order_by)
        return StreamWriter(find_database(options.url), rows, options)


freeze_loaded_modules()  # planners load all of them
