"""The shop's files.

customers.csv  an id and a discount in percent
products.csv   an id, a price in cents, and the stock of those that are scarce
orders/        orders, one JSON object per line; a few are invalid
"""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Iterable
from datetime import date, timedelta
from pathlib import Path

SEED = 20260101
PRODUCTS, CUSTOMERS, DAYS = 200, 2_000, 90
#: the number of scarce products, and the stock of each
SCARCE, STOCK = 10, 300
INVALID = ("many", "", "-3", "two", "1e9", "?", "0")
_PARTS = 4


def generate(folder: Path, orders: int) -> None:
    """Write the files, which depend only on the number of orders."""
    chance = random.Random(SEED)
    (folder / "orders").mkdir(parents=True, exist_ok=True)
    customers = ((f"c{n}", chance.choice((0, 0, 0, 5, 10))) for n in range(CUSTOMERS))
    _write_csv(folder / "customers.csv", ("customer_id", "discount"), customers)
    products = (
        (f"p{n}", chance.randrange(199, 20_000), STOCK if n < SCARCE else "")
        for n in range(PRODUCTS)
    )
    _write_csv(folder / "products.csv", ("product_id", "price_cents", "stock"), products)
    invalid = dict(
        zip(chance.sample(range(orders), min(len(INVALID), orders)), INVALID, strict=False)
    )
    for part in range(_PARTS):
        with (folder / "orders" / f"part-{part}.jsonl").open("w") as file:
            for number in range(part, orders, _PARTS):
                file.write(json.dumps(_order(number, chance, invalid.get(number))) + "\n")


def _order(number: int, chance: random.Random, invalid: str | None) -> dict[str, str]:
    scarce = chance.random() < 0.04
    product = chance.randrange(SCARCE) if scarce else chance.randrange(SCARCE, PRODUCTS)
    quantity = str(chance.randint(1, 5)) if invalid is None else invalid
    day = date(2026, 1, 1) + timedelta(days=number % DAYS)
    return {
        "order_id": f"o{number}",
        "customer_id": f"c{chance.randrange(CUSTOMERS)}",
        "product_id": f"p{product}",
        "quantity": quantity,
        "day": day.isoformat(),
    }


def _write_csv(path: Path, header: tuple[str, ...], rows: Iterable[Iterable[object]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
