"""The expected result of the demo, computed from the files in plain Python.

It uses neither the log, nor Spark, nor the pipeline's code.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Truth:
    """The expected result."""

    customers: int = 0
    products: int = 0
    orders: int = 0
    rejected: int = 0
    invoices: int = 0
    total_cents: int = 0
    #: by day
    invoices_by_day: Counter[str] = field(default_factory=Counter)
    cents_by_day: Counter[str] = field(default_factory=Counter)
    #: by scarce product
    stock: dict[str, int] = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)


def compute(folder: Path) -> Truth:
    """Compute the expected result from the files."""
    truth = Truth()
    customers = _csv(folder / "customers.csv")
    discounts = {row["customer_id"]: int(row["discount"]) for row in customers}
    prices = {}
    for row in _csv(folder / "products.csv"):
        prices[row["product_id"]] = int(row["price_cents"])
        if row["stock"]:
            truth.stock[row["product_id"]] = int(row["stock"])
    truth.customers, truth.products = len(discounts), len(prices)
    for part in sorted((folder / "orders").glob("*.jsonl")):
        with part.open() as lines:
            for order in map(json.loads, lines):
                _count(truth, order, discounts, prices)
    return truth


def _count(
    truth: Truth, order: dict[str, str], discounts: dict[str, int], prices: dict[str, int]
) -> None:
    truth.orders += 1
    text = order["quantity"]
    if not text.isdecimal() or int(text) < 1:
        truth.rejected += 1
        return
    quantity, product = int(text), order["product_id"]
    cents = quantity * prices[product] * (100 - discounts[order["customer_id"]]) // 100
    truth.invoices += 1
    truth.total_cents += cents
    truth.invoices_by_day[order["day"]] += 1
    truth.cents_by_day[order["day"]] += cents
    if product in truth.stock:
        truth.requests[product] += 1


def _csv(path: Path) -> Iterator[dict[str, str]]:
    with path.open(newline="") as file:
        yield from csv.DictReader(file)
