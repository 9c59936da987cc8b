"""A step into an Iceberg table, beside the same frame written with `write.parquet` by hand."""

from __future__ import annotations

import tempfile
import time
from functools import partial
from uuid import uuid4

from pyspark.sql import DataFrame

import penstock
from bench.measuring import Contender, measure
from bench.results import Comparison, ratio
from bench.spark.place import Place
from bench.spark.sales import FIELDS, make_log
from penstock.lake import catalog
from penstock.pipeline import Pipeline, Runner

DATABASE = "lake_steps"
TITLE = "A step into an Iceberg table"
BY_HAND = "write.parquet by hand"
LESS = "write.parquet by hand, fewer columns"
OURS = (
    "{messages:,} messages become as many rows of a new table, in one step: read, written by the "
    "tasks, and committed in one transaction with the positions. The table's creation is part of "
    "it, and so are the run's start and its check of the warehouse."
)
THEIRS = (
    "By hand the same frame, with the columns that the step's function gets, is read with "
    "format('penstock'), and written by Spark's own writer with its default compression (snappy; "
    "the table has zstd). It remembers nothing: a second run doubles the rows, and a reader may "
    "see half of them. By hand one can also read fewer columns, those that are written: that is "
    "the third line."
)

#: the fields as those of a struct: `amount double` becomes `amount: double`
_DATA = ", ".join(one.strip().replace(" ", ": ", 1) for one in FIELDS.split(","))
#: the columns of a processor's frame, and those of them that are written
FRAME = (
    "id string, stream_name string, type string, position bigint, global_position bigint, "
    f"data struct<{_DATA}>, metadata string, time timestamp"
)
NEEDED = f"global_position bigint, time timestamp, data struct<{_DATA}>"


def compare(place: Place, messages: int, rounds: int) -> Comparison:
    """Measure rows per second."""
    make_log(place.server, DATABASE, messages)
    with tempfile.TemporaryDirectory() as folder:
        contenders = [
            Contender("ours", partial(_ours, place, messages, folder)),
            Contender(BY_HAND, partial(_by_hand, place, messages, folder, FRAME)),
            Contender(LESS, partial(_by_hand, place, messages, folder, NEEDED)),
        ]
        ours, theirs, less = measure(TITLE, "rows/s", contenders, rounds).values()
    place.server.drop(DATABASE)
    notes = [OURS.format(messages=messages), THEIRS]
    ratios = [ratio(ours, theirs, at_least=0.8), ratio(ours, less)]
    return Comparison(TITLE, [ours, theirs, less], ratios, notes, f"{messages:,} rows")


def selling(table: str) -> Pipeline:
    """Return a pipeline that keeps all sales in a table."""
    pipe = Pipeline(f"selling_{uuid4().hex}")
    pipe.schema("sale", FIELDS)

    @pipe.table(table, inputs="sale")
    def sales(sale: DataFrame) -> DataFrame:
        return sale.select("global_position", "time", "data.*")

    return pipe


def _ours(place: Place, messages: int, folder: str) -> float:
    table = f"bench.sale_{uuid4().hex}"
    with penstock.connect(place.url(DATABASE), warehouse=f"file://{folder}/lake") as store:
        began = time.perf_counter()
        summary = Runner(selling(table), store, place.spark).run_until_idle()
        seconds = time.perf_counter() - began
        assert summary.progress["sales"].steps == 1
        assert catalog(store).load_table(table).scan().count() == messages
    return messages / seconds


def _by_hand(place: Place, messages: int, folder: str, columns: str) -> float:
    path = f"{folder}/{uuid4().hex}"
    began = time.perf_counter()
    sales = place.read(DATABASE).schema(columns).option("category", "sale").load()
    sales.select("global_position", "time", "data.*").write.parquet(path)
    seconds = time.perf_counter() - began
    assert place.spark.read.parquet(path).count() == messages
    return messages / seconds
