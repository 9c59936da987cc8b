"""An invoice for each order. Spark knows the format `penstock` in both directions."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()

dp.create_sink("invoices", "penstock")


@dp.append_flow(target="invoices")
def invoice() -> DataFrame:
    """Return the invoices for the orders that are new: one stream for each order's stream."""
    orders = (
        spark.readStream.format("penstock")
        .option("category", "order")
        .schema("stream_name string, global_position long, data struct<amount: decimal(10, 2)>")
        .load()
    )
    return orders.selectExpr(
        "replace(stream_name, 'order-', 'invoice-') as stream_name",
        "'Invoiced' as type",
        "named_struct('total', data.amount * 1.2) as data",
        "global_position as ordinal",
    )
