"""A few messages that make the function fail, among many that do not."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from uuid import uuid4

import psycopg
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from bench.measuring import Contender, measure
from bench.pipeline.invoicing import run_once
from bench.results import Comparison, ratio
from bench.spark.place import Place
from bench.spark.sales import make_log
from penstock.pipeline import Pipeline

NOTE = (
    "{messages:,} sales, of which {bad}, spread over the log, have an amount that is no number. "
    "Found by splitting: Spark's cast fails, and the step is split until a bad message stands "
    "alone. Told by the function: it puts what is wrong into a column error. Each run ends with "
    "these messages in the errors queue and all others processed, which is checked."
)
_SPOIL = """
update message_store.messages set data = data || '{"amount": "many"}'
where global_position = any (%s)
"""


def compare(place: Place, messages: int, bad: int, rounds: int) -> Comparison:
    """Measure seconds without bad messages and with them."""
    good = make_log(place.server, "pipeline_good", messages)
    spoilt = make_log(place.server, "pipeline_bad", messages)
    _spoil(place.url(spoilt), messages, bad)
    runs: dict[str, Callable[[], float]] = {
        "none is bad": partial(_seconds, place, good, messages, 0, told=False),
        "found by splitting": partial(_seconds, place, spoilt, messages, bad, told=False),
        "told by the function": partial(_seconds, place, spoilt, messages, bad, told=True),
    }
    contenders = [Contender(name, run) for name, run in runs.items()]
    title = f"A pipeline with {bad} bad messages"
    clean, *poisoned = measure(title, "s", contenders, rounds, warm_up=False).values()
    place.server.drop(good, spoilt)
    ratios = [ratio(one, clean) for one in poisoned]
    notes, sizes = [NOTE.format(messages=messages, bad=bad)], f"{messages:,} messages"
    return Comparison(title, [clean, *poisoned], ratios, notes, sizes)


def _spoil(url: str, messages: int, bad: int) -> None:
    positions = [messages * (2 * number + 1) // (2 * bad) for number in range(bad)]
    with psycopg.connect(url) as connection:
        connection.execute(_SPOIL, (positions,))


def _seconds(place: Place, database: str, messages: int, bad: int, *, told: bool) -> float:
    began = time.perf_counter()
    summary = run_once(place, database, _pipeline(told=told))
    seconds = time.perf_counter() - began
    done = summary.progress["invoice"]
    assert (done.failed, done.messages_out) == (bad, messages - bad)
    return seconds


def _pipeline(*, told: bool) -> Pipeline:
    pipe = Pipeline(f"poisoned_{uuid4().hex}")
    pipe.schema("sale", "amount string, currency string, customer string")
    amount = f.col("data.amount")

    @pipe.stream(inputs="sale", output="invoice", errors="invoice_error")
    def invoice(sale: DataFrame) -> DataFrame:
        kept = sale.select(
            "id", "global_position", "metadata", f.lit("Invoiced").alias("type"), "data"
        )
        if not told:
            return kept.withColumn("data", _billed(amount.cast("double")))
        wrong = f.when(amount.try_cast("double").isNull(), f.concat(amount, f.lit(" is no number")))
        return kept.withColumn("error", wrong).withColumn(
            "data", _billed(amount.try_cast("double"))
        )

    return pipe


def _billed(amount: Column) -> Column:
    return f.struct("data.customer", "data.currency", amount.alias("total"))
