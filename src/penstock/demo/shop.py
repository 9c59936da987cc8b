"""The shop's pipeline: orders become invoices and reservations of scarce products.

penstock graph src/penstock/demo/shop.py
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from penstock import RecordedMessage
from penstock.pipeline import Pipeline, messages

CUSTOMER = "customer_id string, discount int"
PRODUCT = "product_id string, price_cents long, stock int"
ORDER = "order_id string, customer_id string, product_id string, quantity string, day string"

pipe = Pipeline("shop")
pipe.schema("customer", CUSTOMER)
pipe.schema("product", PRODUCT)
pipe.schema("order", ORDER)
pipe.schema("invoice", "order_id string, product_id string, quantity int, total_cents long")


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
    invoices = messages(
        priced,
        type="Invoiced",
        data=["data.order_id", "product_id", "quantity", "total_cents"],
        stream=f.concat(f.lit("invoice-"), "data.day"),
        error=f.when(wrong, f.concat(f.lit("no quantity: "), "data.quantity")),
    )
    reservations = messages(
        priced.where(~wrong & f.col("stock").isNotNull()),
        type="reservation.requested",
        data=["data.order_id", "product_id", "quantity"],
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
