"""A pipeline: orders meet products and become invoices, which add up in a table. Exactly once.

Run it again, or kill it anywhere and run it again: the table stays right. The same pipeline runs
with `penstock run examples/pipeline.py`.
"""

from __future__ import annotations

from uuid import NAMESPACE_URL, uuid5

import psycopg
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import penstock
from penstock import Store
from penstock.pipeline import Delivery, Latest, Pipeline, messages
from penstock.spark import session

pipe = Pipeline("bakery")
pipe.schema("bakery_order", "product string, quantity int")
pipe.schema("bakery_product", "product string, cents int")
pipe.schema("bakery_invoice", "product string, cents int")


@pipe.source(output="bakery_order")
def orders(spark: SparkSession) -> DataFrame:
    """Bring the orders in. What a source returned once is in the log, and not asked for again."""
    wanted = [("bread", 2), ("bun", 10), ("bread", 1), ("gold", 1)]
    rows = spark.createDataFrame(wanted, "product string, quantity int")
    return messages(rows, type="Ordered", data=rows.columns)


@pipe.stream(
    inputs="bakery_order",
    tables=Latest("bakery_product"),
    output="bakery_invoice",
    errors="bakery_refused",
    limit=2,
)
def invoice(bakery_order: DataFrame, bakery_product: DataFrame) -> DataFrame:
    """Price each order by the last price of its product; refuse what has none."""
    price = bakery_product.select("data.*")
    priced = bakery_order.join(price, f.col("data.product") == f.col("product"), "left")
    return messages(
        priced,
        type="Invoiced",
        data=["product", f.expr("data.quantity * cents").alias("cents")],
        error=f.when(f.col("cents").isNull(), "we do not bake that"),
    )


@pipe.sink(inputs="bakery_invoice")
def revenue(bakery_invoice: DataFrame, delivery: Delivery) -> None:
    """Add to the revenue of each product, in the transaction that ends the step."""
    totals = bakery_invoice.groupBy("data.product").agg(f.sum("data.cents").alias("cents"))
    delivery.upsert(totals, "bakery_revenue", key="product", add=["cents"])


def price(store: Store, product: str, cents: int) -> None:
    """Set a price, as the bakery's service does: the same one again changes nothing."""
    id = uuid5(NAMESPACE_URL, f"{product} {cents}")
    data = {"product": product, "cents": cents}
    store.write_message(f"bakery_product-{product}", "Priced", data, id=id)


def main() -> None:
    with penstock.connect() as store, session() as spark:
        for product, cents in (("bread", 300), ("bun", 80), ("bread", 340)):
            price(store, product, cents)

        for _ in range(2):
            print("succeeded" if pipe.run(store, spark).succeeded else "failed")

        for refused in store.read_category("bakery_refused"):
            assert refused.metadata is not None
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
