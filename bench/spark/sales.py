"""The log that is read: sales, ten to a stream, of customers who turn up all over it."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

import penstock
from bench.measuring import tell
from bench.server import Server
from penstock import TypedMessage

PER_STREAM = 10
PER_CUSTOMER = 10
#: three fields of `data`, which is all it has
FIELDS = "amount double, currency string, customer string"

_FILL = sql.SQL("""
insert into message_store.messages (id, stream_name, position, type, data, metadata)
select uuidv7(), {streams} || '-' || n / 10, n % 10, 'Sold',
  jsonb_build_object('amount', n % 1000 + 0.5, 'currency', 'EUR',
    'customer', 'c' || n % greatest(1, {count} / 10)),
  '{{"correlation_id": "0b8b6f1c"}}'
from generate_series(0, {count} - 1) n
""")


class Sold(TypedMessage, type="Sold"):
    """What is indexed of a sale: whose it was."""

    customer: str


def make_log(server: Server, database: str, messages: int) -> str:
    """Make a database with a log of sales and return its name."""
    tell(f"making a log of {messages:,} messages")
    with psycopg.connect(server.ours(database, 0), autocommit=True) as connection:
        insert_sales(connection, messages)
        connection.execute("vacuum analyze")
        connection.execute("checkpoint")
    return database


def insert_sales(connection: psycopg.Connection[Any], messages: int, streams: str = "sale") -> None:
    """Write sales to streams whose names begin like this, ten to each."""
    connection.execute(_FILL.format(streams=sql.Literal(streams), count=sql.Literal(messages)))


def index_customers(url: str) -> None:
    """Make sales findable by their customers."""
    tell("indexing an attribute")
    with penstock.connect(url) as store:
        store.declare(Sold)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("vacuum analyze penstock.message_attributes")
