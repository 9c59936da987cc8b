"""Runs a pipeline over the accounts on Spark, as they come: an image, totals, and states."""

from __future__ import annotations

import signal
import time
from threading import Thread
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from penstock import RecordedMessage
from penstock.pipeline import Delivery, Pipeline, Runner, session
from tests.chaos.actors.actor import Actor, play
from tests.chaos.names import ACCOUNT, IMAGE, PIPELINE, STATES, TOTALS

SETTINGS = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"}

pipe = Pipeline(PIPELINE)
pipe.queue(ACCOUNT, "key string")


@pipe.stream(inputs=ACCOUNT, output=IMAGE)
def image(account: DataFrame) -> DataFrame:
    """Say again what was said, and where it stood."""
    return account.select(
        "id",
        "global_position",
        f.lit("Imaged").alias("type"),
        f.struct("data.key", f.col("global_position").alias("source")).alias("data"),
        f.col("global_position").alias("ordinal"),
    )


@pipe.sink(inputs=ACCOUNT)
def totals(account: DataFrame, delivery: Delivery) -> None:
    """Count the messages of each stream."""
    counted = account.groupBy("stream_name").agg(f.count("*").alias("messages"))
    delivery.upsert(counted, TOTALS, key="stream_name", add=["messages"])


@pipe.project(ACCOUNT, into=STATES, columns="messages long, last_key string")
def states(state: dict[str, Any] | None, message: RecordedMessage) -> dict[str, Any]:
    """Count them, too, and keep the last."""
    before = state["messages"] if state else 0
    return {"messages": before + 1, "last_key": message.data["key"]}


def run(actor: Actor) -> None:
    spark = session("chaos", master="local[2]", config=SETTINGS)
    with actor.store() as store:
        runner = Runner(pipe, store, spark)

        def stop(*_: object) -> None:
            actor.stop()
            runner.stop()

        signal.signal(signal.SIGTERM, stop)
        Thread(target=_stop_if_one_has_stopped, args=(runner,), daemon=True).start()
        if not actor.goes_on():
            return  # it was asked to while Spark was starting
        summary = actor.patiently(lambda: runner.follow(wait=True))
    spark.stop()
    for one in summary.progress.values():
        if one.error is not None:
            raise one.error


def _stop_if_one_has_stopped(runner: Runner) -> None:
    """A run goes on with the other processors; here it is to be noticed at once."""
    while len(runner._working) in (0, len(pipe.processors)):
        time.sleep(0.5)
    runner.stop()


main = play(run)
