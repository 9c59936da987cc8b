"""Messages per second from log to log, beside the same job by hand: JDBC in, JDBC out."""

from __future__ import annotations

import time
from functools import partial
from itertools import pairwise

import psycopg
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from bench.measuring import Contender, measure
from bench.pipeline.invoicing import billed, invoicing, run_once
from bench.results import Comparison, ratio
from bench.spark.place import FETCH, Place
from bench.spark.reading import FIELDS_IN_SQL
from bench.spark.sales import make_log

DATABASE = "pipeline"
PARTITIONS = 4
TITLE = "A map-only stream, log to log"
BY_HAND = "by hand with JDBC, reWriteBatchedInserts"
OURS = (
    "{messages:,} sales become as many invoices. Ours runs in steps of up to 100,000, each "
    "published in one transaction with its tailer; every invoice names its cause, its "
    "correlation and its step, and has a stream of its own."
)
THEIRS = (
    "By hand is a Spark job that reads the same messages by JDBC in four ranges of their "
    "positions, their fields taken out by SQL, and appends to a table with the columns and indexes "
    "of message_store.messages, ids in the order of time and no triggers, in batches of "
    f"{FETCH:,} rows and with the driver's reWriteBatchedInserts. It remembers nothing: if it is "
    "killed, half is there, and a second run doubles it."
)
_PLAIN = """
create table public.plain (like message_store.messages including all);
alter table public.plain alter column id set default uuidv7();
"""


def compare(place: Place, messages: int, rounds: int) -> Comparison:
    """Measure messages per second."""
    make_log(place.server, DATABASE, messages)
    with psycopg.connect(place.url(DATABASE), autocommit=True) as connection:
        connection.execute(_PLAIN)
    contenders = [Contender("ours", partial(_ours, place, messages))]
    if place.has_jdbc:
        contenders.append(Contender(BY_HAND, partial(_by_hand, place, messages)))
    ours, *theirs = measure(TITLE, "messages/s", contenders, rounds).values()
    place.server.drop(DATABASE)
    notes = [OURS.format(messages=messages), THEIRS, *place.notes]
    ratios = [ratio(ours, one, at_least=0.8) for one in theirs]
    return Comparison(TITLE, [ours, *theirs], ratios, notes, f"{messages:,} messages")


def _ours(place: Place, messages: int) -> float:
    began = time.perf_counter()
    summary = run_once(place, DATABASE, invoicing())
    seconds = time.perf_counter() - began
    assert summary.progress["invoice"].messages_out == messages
    return messages / seconds


def _by_hand(place: Place, messages: int) -> float:
    began = time.perf_counter()
    place.jdbc_append(_invoices(place, messages), DATABASE, "public.plain")
    return messages / (time.perf_counter() - began)


def _invoices(place: Place, messages: int) -> DataFrame:
    options = place.jdbc(DATABASE)
    bounds = [messages * number // PARTITIONS for number in range(PARTITIONS + 1)]
    sales = place.spark.read.jdbc(
        options.pop("url"),
        FIELDS_IN_SQL,
        predicates=[
            f"global_position > {low} and global_position <= {high}"
            for low, high in pairwise(bounds)
        ],
        properties=options,
    )
    return sales.withColumn("data", f.struct("amount", "currency", "customer")).select(
        f.concat(f.lit("invoice-"), f.expr("uuid()")).alias("stream_name"),
        f.lit(0).alias("position"),
        f.lit("Invoiced").alias("type"),
        f.to_json(billed()).alias("data"),
        "metadata",
    )
