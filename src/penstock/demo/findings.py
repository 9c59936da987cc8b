"""The final contents of the log and its tables, compared with the expected result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import psycopg

from penstock.demo.truth import Truth

Connection = psycopg.Connection[Any]


@dataclass
class Findings:
    """The result of the demo."""

    counts: dict[str, int]
    distinct_invoices: int
    total_cents: int
    #: by day: number of invoices, and cents
    days: dict[str, tuple[int, int]]
    #: by scarce product: pieces reserved, requests granted, requests refused
    stock: dict[str, tuple[int, int, int]]
    checks: list[tuple[str, int, int]] = field(default_factory=list)

    @property
    def all_correct(self) -> bool:
        """Whether every check passed."""
        return all(expected == found for _, expected, found in self.checks)


_COUNTS = """
select message_store.category(stream_name), count(*)
from message_store.messages
where message_store.category(stream_name) = any (%s)
group by 1
"""
_INVOICES = """
select count(distinct data ->> 'order_id'),
  coalesce(sum((data ->> 'total_cents')::bigint), 0)::bigint
from message_store.messages
where message_store.category(stream_name) = 'invoice'
"""
_DAYS = """
select substring(stream_name from 9), invoices, total_cents from revenue_by_day order by 1
"""
_STOCK = """
select data ->> 'product_id',
  coalesce(sum((data ->> 'quantity')::bigint) filter (where type = 'stock.reserved'), 0)::bigint,
  count(*) filter (where type = 'stock.reserved'),
  count(*) filter (where type = 'stock.refused')
from message_store.messages
where message_store.category(stream_name) in ('stock.reserved', 'stock.refused')
group by 1
"""
_CATEGORIES = ["customer", "product", "order", "invoice", "reservation", "rejected"]


def look(connection: Connection, truth: Truth) -> Findings:
    """Read the result and compare it with the expected one."""
    counts = dict.fromkeys(_CATEGORIES, 0) | dict(
        connection.execute(_COUNTS, (_CATEGORIES,)).fetchall()
    )
    distinct, cents = connection.execute(_INVOICES).fetchall()[0]
    days = {day: (number, total) for day, number, total in connection.execute(_DAYS).fetchall()}
    stock = {row[0]: tuple(row[1:]) for row in connection.execute(_STOCK).fetchall()}
    found = Findings(counts, distinct, cents, days, stock)
    found.checks = _checks(found, truth)
    return found


def _checks(found: Findings, truth: Truth) -> list[tuple[str, int, int]]:
    oversold = sum(pieces > truth.stock[name] for name, (pieces, _, _) in found.stock.items())
    decided = sum(granted + refused for _, granted, refused in found.stock.values())
    expected_days = {
        day: (number, truth.cents_by_day[day]) for day, number in truth.invoices_by_day.items()
    }
    right_days = sum(found.days.get(day) == value for day, value in expected_days.items())
    return [
        ("customers in the log", truth.customers, found.counts["customer"]),
        ("products in the log", truth.products, found.counts["product"]),
        ("orders in the log", truth.orders, found.counts["order"]),
        ("invoices", truth.invoices, found.counts["invoice"]),
        ("orders with an invoice", truth.invoices, found.distinct_invoices),
        ("sum of all invoices, in cents", truth.total_cents, found.total_cents),
        ("invalid orders in the errors queue", truth.rejected, found.counts["rejected"]),
        ("days with correct revenue", len(expected_days), right_days),
        ("reservations decided", sum(truth.requests.values()), decided),
        ("products oversold", 0, oversold),
    ]
