"""The pipeline that is measured: each sale becomes an invoice, and nothing else happens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

import penstock
from bench.spark.place import Place
from bench.spark.sales import FIELDS
from penstock.pipeline import Pipeline, Runner, Summary

TAX = 0.19


def invoicing() -> Pipeline:
    """Return a pipeline with one map-only stream."""
    pipe = Pipeline(f"invoicing_{uuid4().hex}")
    pipe.schema("sale", FIELDS)

    @pipe.stream(inputs="sale", output="invoice")
    def invoice(sale: DataFrame) -> DataFrame:
        return sale.select(
            "id", "global_position", "metadata", f.lit("Invoiced").alias("type"), billed()
        )

    return pipe


def billed() -> Column:
    """Return the data of an invoice, from the data of a sale."""
    return f.struct(
        "data.customer",
        "data.currency",
        f.round(f.col("data.amount") * (1 + TAX), 2).alias("total"),
    ).alias("data")


@contextmanager
def runner(place: Place, database: str, pipe: Pipeline) -> Iterator[Runner]:
    """Lend what runs a pipeline on a database."""
    with penstock.connect(place.url(database)) as store:
        yield Runner(pipe, store, place.spark)


def run_once(place: Place, database: str, pipe: Pipeline) -> Summary:
    """Run a pipeline over all that is there, and see that it did not stop."""
    with runner(place, database, pipe) as running:
        summary = running.run_until_idle()
    for one in summary.progress.values():
        if one.error is not None:
            raise one.error
    return summary
