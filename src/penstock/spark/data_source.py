"""The format `penstock`: what Spark asks of a data source, answered by the modules beside this one.

Spark makes these objects in several processes: planners on the driver, tasks on executors, and for
streams one process that lives as long as the query. So they hold options and little else, and the
database that the driver found travels with the plan.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from penstock.errors import ValidationError
from penstock.spark.connections import find_place
from penstock.spark.options import read_options, write_options
from penstock.spark.read.batch_reader import BatchReader
from penstock.spark.read.columns import default_schema, plan
from penstock.spark.read.stream_reader import StreamReader
from penstock.spark.sink import BatchWriter, StreamWriter
from penstock.spark.worker import settle
from penstock.spark.write.outgoing import outgoing


class PenstockDataSource(DataSource):
    """`spark.read.format("penstock")` and its three siblings."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "penstock"

    def schema(self) -> StructType:
        """Return the columns of a message, or those of option `columns`."""
        return default_schema(read_options(self.options).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch.

        It takes no filters. Spark 4.3.0 keeps what was pushed for one query with the loaded frame,
        so that the next query on it, or the other side of a union, silently lacks rows.
        """
        options = read_options(self.options)
        plan(schema)  # refuses what cannot be read
        return BatchReader(find_place(options.url), options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the reader of a stream."""
        options = read_options(self.options)
        plan(schema)
        return StreamReader(find_place(options.url), options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch."""
        options = write_options(self.options)
        if overwrite:
            raise ValidationError("mode", "overwrite", "append: a log is not overwritten")
        columns = outgoing(schema, options.order_by)
        return BatchWriter(find_place(options.url), columns, options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return the writer of a stream."""
        options = write_options(self.options, streaming=True)
        if overwrite:
            raise ValidationError("output mode", "complete", "append: a log is not overwritten")
        if options.delivery is not None:
            expected = "left out: a stream's deliveries are its query and its batches"
            raise ValidationError("delivery", options.delivery, expected)
        columns = outgoing(schema, options.order_by)
        return StreamWriter(find_place(options.url), columns, options)


settle()  # planners load all of it
