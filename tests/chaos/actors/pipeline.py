"""Runs a pipeline over the accounts on Spark, as they come: an image, totals, and states."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from penstock import RecordedMessage
from penstock.pipeline import Delivery, Pipeline, Runner
from penstock.spark import session
from tests.chaos.actors.actor import Actor, play
from tests.chaos.names import ACCOUNT, IMAGE, PIPELINE, STATES, TOTALS

SETTINGS = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"}

pipe = Pipeline(PIPELINE)
pipe.schema(ACCOUNT, "key string")


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


class ActorsRunner(Runner):
    """A runner that ends its actor, too, when SIGTERM stops it."""

    actor: Actor

    def stop(self) -> None:
        self.actor.stop()
        super().stop()


def run(actor: Actor) -> None:
    spark = session("chaos", master="local[2]", config=SETTINGS)
    with actor.store() as store:
        runner = ActorsRunner(pipe, store, spark)
        runner.actor = actor
        if not actor.goes_on():
            return  # SIGTERM came while Spark was starting
        # one that fails is to be noticed at once
        actor.patiently(lambda: runner.run(wait=True, retry_for=0))
    spark.stop()


main = play(run)
