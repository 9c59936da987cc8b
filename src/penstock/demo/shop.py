"""The shop's pipeline: orders become invoices and reservations of scarce products.

penstock graph src/penstock/demo/shop.py
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from penstock import RecordedMessage
from penstock.pipeline import Pipeline

pipe = Pipeline("shop")
pipe.queue("customer", "customer_id string, discount int")
pipe.queue("product", "product_id string, price_cents long, stock int")
pipe.queue(
    "order",
    "order_id string, customer_id string, product_id string, quantity string, day string",
)
pipe.queue("invoice", "order_id string, product_id string, quantity int, total_cents long")


@pipe.stream(
    inputs="order",
    tables=["customer", "product"],
    output=["invoice", "reservation"],
    errors="rejected",
    limit=20_000,
)
def invoicing(order: DataFrame, customer: DataFrame, product: DataFrame) -> dict[str, DataFrame]:
    """Turn each order into an invoice. An order without a valid quantity is rejected."""
    priced = (
        order.withColumn("quantity", f.expr("try_cast(data.quantity as int)"))
        .withColumn("product_id", f.col("data.product_id"))
        .withColumn("customer_id", f.col("data.customer_id"))
        .join(product.select("data.*"), "product_id")
        .join(customer.select("data.*"), "customer_id")
        .withColumn("total_cents", f.expr("quantity * price_cents * (100 - discount) div 100"))
    )
    wrong = f.expr("quantity is null or quantity < 1")
    invoices = priced.select(
        "id",
        "global_position",
        f.when(wrong, f.concat(f.lit("no quantity: "), "data.quantity")).alias("error"),
        f.concat(f.lit("invoice-"), "data.day").alias("stream_name"),
        f.lit("Invoiced").alias("type"),
        f.struct("data.order_id", "product_id", "quantity", "total_cents").alias("data"),
    )
    reservations = priced.where(~wrong & f.col("stock").isNotNull()).select(
        "id",
        "global_position",
        f.lit("reservation.requested").alias("type"),
        f.struct("data.order_id", "product_id", "quantity").alias("data"),
    )
    return {"invoice": invoices, "reservation": reservations}


@pipe.project("invoice", into="revenue_by_day", columns="invoices long, total_cents long")
def revenue(state: dict[str, Any] | None, invoice: RecordedMessage) -> dict[str, Any]:
    """Add up the revenue per day: the invoices of a day are a stream."""
    before = state or {"invoices": 0, "total_cents": 0}
    return {
        "invoices": before["invoices"] + 1,
        "total_cents": before["total_cents"] + invoice.data["total_cents"],
    }
