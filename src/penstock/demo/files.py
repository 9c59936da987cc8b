"""The shop's files: customers and products as CSV, orders as JSON lines, some of them spoilt."""

from __future__ import annotations

import csv
import json
import random
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

SEED = 20260101
PRODUCTS, CUSTOMERS, DAYS = 200, 2_000, 90
#: products of which there are few, and how many
SCARCE, STOCK = 10, 300
SPOILT = ("many", "", "-3", "two", "1e9", "?", "0")
_PARTS = 4


@dataclass(frozen=True)
class Files:
    """Where the shop's files are."""

    folder: Path

    @property
    def customers(self) -> Path:
        """Customers: an id and a discount in percent."""
        return self.folder / "customers.csv"

    @property
    def products(self) -> Path:
        """Products: an id, a price in cents, and the stock of those that are scarce."""
        return self.folder / "products.csv"

    @property
    def orders(self) -> Path:
        """A folder of orders, one JSON object in a line."""
        return self.folder / "orders"


def generate(folder: Path, orders: int) -> Files:
    """Write the files. The same number of orders gives the same files."""
    chance = random.Random(SEED)
    files = Files(folder)
    files.orders.mkdir(parents=True, exist_ok=True)
    _write_csv(
        files.customers,
        ("customer_id", "discount"),
        ((f"c{n}", chance.choice((0, 0, 0, 5, 10))) for n in range(CUSTOMERS)),
    )
    _write_csv(
        files.products,
        ("product_id", "price_cents", "stock"),
        (
            (f"p{n}", chance.randrange(199, 20_000), STOCK if n < SCARCE else "")
            for n in range(PRODUCTS)
        ),
    )
    spoilt = dict(zip(chance.sample(range(orders), min(len(SPOILT), orders)), SPOILT, strict=False))
    for part in range(_PARTS):
        with (files.orders / f"part-{part}.jsonl").open("w") as file:
            for number in range(part, orders, _PARTS):
                file.write(json.dumps(_order(number, chance, spoilt.get(number))) + "\n")
    return files


def _order(number: int, chance: random.Random, spoilt: str | None) -> dict[str, str]:
    scarce = chance.random() < 0.04
    product = chance.randrange(SCARCE) if scarce else chance.randrange(SCARCE, PRODUCTS)
    quantity = str(chance.randint(1, 5)) if spoilt is None else spoilt
    day = date(2026, 1, 1) + timedelta(days=number % DAYS)
    return {
        "order_id": f"o{number}",
        "customer_id": f"c{chance.randrange(CUSTOMERS)}",
        "product_id": f"p{product}",
        "quantity": quantity,
        "day": day.isoformat(),
    }


def _write_csv(path: Path, header: tuple[str, ...], rows: object) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)  # type: ignore[arg-type]
