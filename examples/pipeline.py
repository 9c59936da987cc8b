"""A pipeline: orders meet products and become invoices, which add up in a table. Exactly once.

Run it again, or kill it anywhere and run it again: the table stays right. The same pipeline runs
with `penstock run examples/pipeline.py`.
"""

from __future__ import annotations

import psycopg
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import penstock
from penstock.pipeline import Delivery, Latest, Pipeline, Runner, session

pipe = Pipeline("bakery")
pipe.queue("bakeryOrder", "product string, quantity int")
pipe.queue("bakeryProduct", "product string, cents int")
pipe.queue("bakeryInvoice", "product string, cents int")


@pipe.source(output="bakeryProduct")
def products(spark: SparkSession) -> DataFrame:
    prices = [("bread", 300), ("bread", 340), ("bun", 80)]
    return messages(spark.createDataFrame(prices, "product string, cents int"), "Priced").select(
        "*", f.concat(f.lit("bakeryProduct-"), "data.product").alias("stream_name")
    )


@pipe.source(output="bakeryOrder")
def orders(spark: SparkSession) -> DataFrame:
    wanted = [("bread", 2), ("bun", 10), ("bread", 1), ("gold", 1)]
    return messages(spark.createDataFrame(wanted, "product string, quantity int"), "Ordered")


@pipe.stream(
    inputs="bakeryOrder",
    tables=Latest("bakeryProduct"),
    output="bakeryInvoice",
    errors="bakeryRefused",
    limit=2,
)
def invoice(bakeryOrder: DataFrame, bakeryProduct: DataFrame) -> DataFrame:  # noqa: N803
    """Price each order by the last price of its product; refuse what has none."""
    price = bakeryProduct.select("data.*")
    return (
        bakeryOrder.join(price, f.col("data.product") == f.col("product"), "left")
        .withColumn("error", f.when(f.col("cents").isNull(), "we do not bake that"))
        .withColumn("data", f.struct("product", f.expr("data.quantity * cents").alias("cents")))
        .select("id", "global_position", "error", f.lit("Invoiced").alias("type"), "data")
    )


@pipe.sink(inputs="bakeryInvoice")
def revenue(bakeryInvoice: DataFrame, delivery: Delivery) -> None:  # noqa: N803
    """Add to the revenue of each product, in the transaction that ends the step."""
    totals = bakeryInvoice.groupBy("data.product").agg(f.sum("data.cents").alias("cents"))
    delivery.upsert(totals, "bakery_revenue", key="product", add=["cents"])


def messages(rows: DataFrame, type: str) -> DataFrame:
    return rows.select(f.lit(type).alias("type"), f.struct("*").alias("data"))


def main() -> None:
    with penstock.connect() as store, session() as spark:
        runner = Runner(pipe, store, spark)
        for _ in range(2):
            summary = runner.once()
            print("succeeded" if summary.succeeded else summary.progress)
        for refused in store.read_category("bakeryRefused"):
            print("refused:", refused.data["product"], "because", refused.metadata["error"])
        with psycopg.connect(store.settings.conninfo()) as connection:
            for row in connection.execute("select * from bakery_revenue order by product"):
                print(*row)


if __name__ == "__main__":
    main()

# Output:
# succeeded
# succeeded
# refused: gold because we do not bake that
# bread 1020
# bun 800
