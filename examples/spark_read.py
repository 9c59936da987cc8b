"""The log in Spark: a category as a frame, its data typed by PostgreSQL, up to one watermark."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import penstock
from penstock import Store
from penstock.spark import Frames, session

CATEGORY = f"meter{penstock.new_id().hex}"
SCHEMA = "stream_name string, position long, data struct<value: double, at: timestamp>"


def main() -> None:
    with penstock.connect() as store, session() as spark:
        measure(store, day=1)

        readings = load(spark, store)

        print("all of them:", readings.count())
        measure(store, day=2)
        print("and still, since a loaded frame stays as it was:", readings.count())
        for row in by_meter(load(spark, store)).collect():
            print(f"meter {row['meter']}: {row['readings']} readings, {row['average']:.1f}")
        hidden_by_a_writer(store, spark)


def measure(store: Store, day: int) -> None:
    for meter in ("a", "b"):
        for hour in range(3):
            data = {"value": day * 10.0 + hour, "at": f"2026-03-{day:02}T{hour:02}:00:00Z"}
            store.write_message(f"{CATEGORY}-{meter}", "Measured", data)


def load(spark: SparkSession, store: Store) -> DataFrame:
    """Return what the category holds now. It is the same on a cluster."""
    return Frames(store, spark).read.category(CATEGORY, SCHEMA)


def by_meter(readings: DataFrame) -> DataFrame:
    meter = f.split("stream_name", "-")[1].alias("meter")
    counted = f.count("*").alias("readings")
    return readings.groupBy(meter).agg(counted, f.avg("data.value").alias("average")).sort("meter")


def hidden_by_a_writer(store: Store, spark: SparkSession) -> None:
    """What commits while somebody else is still writing waits for them, so nothing is skipped."""
    with store.transaction() as slow:
        slow.write_message(f"{CATEGORY}-a", "Measured", {"value": 1.0})
        store.write_message(f"{CATEGORY}-b", "Measured", {"value": 2.0})
        print("with a writer at work:", load(spark, store).count())
    print("and when it has committed:", load(spark, store).count())


if __name__ == "__main__":
    main()

# Output:
# all of them: 6
# and still, since a loaded frame stays as it was: 6
# meter a: 6 readings, 16.0
# meter b: 6 readings, 16.0
# with a writer at work: 12
# and when it has committed: 14
