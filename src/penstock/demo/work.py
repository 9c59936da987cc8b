"""The process that runs the Spark jobs, and that is killed: a dispatcher of the shop's outbox.

    python -m penstock.demo.work DATABASE_URL FOLDER

Its handlers run Spark jobs. The id of the outbox message is the id of the delivery, so a retry
publishes nothing twice. The transformation runs the pipeline. If the process dies, the message
becomes available when its lease ends, and the next process continues.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import penstock
from penstock import ClaimedMessage, Dispatcher, Store
from penstock.demo.shop import CUSTOMER, ORDER, PRODUCT, pipe
from penstock.pipeline import messages
from penstock.spark import Frames, on_spark, session

#: of each file's messages, the category, the type and the fields
TABLES = {
    "customers": ("customer", "Registered", CUSTOMER),
    "products": ("product", "Offered", PRODUCT),
    "orders": ("order", "Ordered", ORDER),
}
LEASE = 5.0  # seconds until another process takes over
PAUSE = 0.2  # seconds between two looks for messages


def start(store: Store) -> None:
    """Enqueue the extractions and the transformation after them, in one transaction."""
    with store.transaction() as tx:
        join_id = tx.joins.start(grouping_key="shop", expected_steps=len(TABLES))
        for table in TABLES:
            tx.outbox.enqueue(f"extract.{table}", {"table": table}, joins=[join_id])
        tx.joins.enqueue_wait(join_id, on_complete_topic="shop.transform")


def dispatcher(store: Store, spark: SparkSession, folder: Path) -> Dispatcher:
    """Return the dispatcher with its handlers."""
    extracting = Dispatcher(store, concurrency=1, lease=LEASE)

    @on_spark(spark)
    def extract(message: ClaimedMessage) -> None:
        table = message.topic.removeprefix("extract.")
        frame = messages_of(spark, folder, table)
        Frames(store, spark).write(frame, delivery=f"{message.topic} {message.id}")

    @on_spark(spark)
    def transform(message: ClaimedMessage) -> None:
        pipe.run(store, spark, wait=True)

    for table in TABLES:
        extracting.handler(f"extract.{table}")(extract)
    extracting.handler("shop.transform")(transform)
    return extracting


def messages_of(spark: SparkSession, folder: Path, table: str) -> DataFrame:
    """Return the rows of a file as messages, one stream per entity."""
    category, type, fields = TABLES[table]
    reader = spark.read.schema(fields)
    if table == "orders":
        rows = reader.json(str(folder / table))
    else:
        rows = reader.option("header", True).csv(str(folder / f"{table}.csv"))
    stream = f.concat(f.lit(f"{category}-"), f.col(f"{category}_id"))
    return messages(rows, type=type, data=rows.columns, stream=stream)


def run_until_empty(store: Store, extracting: Dispatcher) -> None:
    """Handle all messages, also those that a killed process had claimed: until their leases end.

    `run_until_idle` returns when nothing is due, which may be before that.
    """
    while any(one.state in ("ready", "in_progress") for one in store.outbox.summary()):
        extracting.run_until_idle()
        time.sleep(PAUSE)


def main(url: str, folder: str) -> None:
    """Run until the outbox is empty."""
    spark = session("penstock demo", master="local[*]")
    with penstock.connect(url) as store:
        run_until_empty(store, dispatcher(store, spark, Path(folder)))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
