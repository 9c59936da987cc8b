"""Structured Streaming from the log to the log: stopped and started again, each message once."""

from __future__ import annotations

import tempfile

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import penstock
from penstock import Store
from penstock.spark import Frames, session

RUN = penstock.new_id().hex
READINGS, ALARMS = f"reading{RUN}", f"alarm{RUN}"
SCHEMA = "stream_name string, data struct<celsius: double>"


def main() -> None:
    with (
        penstock.connect() as store,
        session() as spark,
        tempfile.TemporaryDirectory() as checkpoint,
    ):
        for round, temperatures in enumerate([(19.0, 83.5), (91.0, 20.5), ()], 1):
            for celsius in temperatures:
                store.write_message(f"{READINGS}-oven", "Measured", {"celsius": celsius})
            stream_alarms(spark, store, checkpoint)
            print(f"round {round}:", [one.data["celsius"] for one in store.read_category(ALARMS)])


def stream_alarms(spark: SparkSession, store: Store, checkpoint: str) -> None:
    """Continue from the checkpoint, and write what is too hot, once."""
    frames = Frames(store, spark)
    readings = frames.read_stream.category(
        READINGS, SCHEMA, types=["Measured"], max_rows_per_batch=1000
    )
    alarms = readings.where("data.celsius > 80").select(
        f.concat(f.lit(f"{ALARMS}-"), f.split("stream_name", "-")[1]).alias("stream_name"),
        f.lit("TooHot").alias("type"),
        "data",
    )
    writer = frames.write_stream(alarms).trigger(availableNow=True)  # else it never ends
    writer.option("checkpointLocation", checkpoint).start().awaitTermination()


if __name__ == "__main__":
    main()

# Output:
# round 1: [83.5]
# round 2: [83.5, 91.0]
# round 3: [83.5, 91.0]
