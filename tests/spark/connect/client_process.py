"""A client of Spark Connect: reads, writes and copies a stream, knowing nothing but the format."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession


def main(url: str, checkpoint: str) -> None:
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    schema = "global_position long, data struct<amount: int>"
    source = {"url": url, "category": "order"}
    orders = spark.read.format("penstock").options(**source).schema(schema).load()
    print("read", orders.where("data.amount > 2").count())
    orders.selectExpr("'Invoiced' as type", "data").write.format("penstock").mode("append").option(
        "url", url
    ).save()
    coming = spark.readStream.format("penstock").options(**source).schema(schema).load()
    coming.selectExpr("'Shipped' as type", "data").writeStream.format("penstock").options(
        url=url, checkpointLocation=checkpoint
    ).trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
