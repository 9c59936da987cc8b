"""A frame becomes messages: all of it in one transaction, and once however often the job runs."""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import penstock
from penstock import Store
from penstock.spark import Frames, session

CATEGORY = f"order{penstock.new_id().hex}"
COLUMNS = "stream_name string, type string, data struct<number: int, total: int>, line int"


def main() -> None:
    with penstock.connect() as store, session() as spark:
        frames, orders = Frames(store, spark), frame(spark)

        for attempt in (1, 2):
            frames.write(orders, delivery=f"{CATEGORY} of Monday", order_by="line")
            print(f"after run {attempt}:", in_log(store))
        frames.write(orders.drop("line"))
        print("without a delivery a second run repeats it:", len(in_log(store)))
        refuse(store, spark)


def frame(spark: SparkSession) -> DataFrame:
    rows = [
        (f"{CATEGORY}-1", "Paid", (1, 120), 3),
        (f"{CATEGORY}-1", "Placed", (1, 120), 1),
        (f"{CATEGORY}-2", "Placed", (2, 80), 2),
    ]
    return spark.createDataFrame(rows, COLUMNS)


def in_log(store: Store) -> list[str]:
    return [f"{message.data['number']} {message.type}" for message in store.read_category(CATEGORY)]


def refuse(store: Store, spark: SparkSession) -> None:
    """One row that expects another version, and nothing of the frame is written."""
    rows = [(f"{CATEGORY}-2", "Paid", (2, 80), 9), (f"{CATEGORY}-3", "Placed", (3, 5), -1)]
    columns = COLUMNS.replace("line int", "expected_version int")
    try:
        Frames(store, spark).write(spark.createDataFrame(rows, columns))
    except PySparkException as error:
        [reason] = [line for line in str(error).splitlines() if "[PENSTOCK." in line]
        print("refused:", reason.partition("] ")[2].replace(CATEGORY, "order"))
    print("still:", len(in_log(store)))


if __name__ == "__main__":
    main()

# Output:
# after run 1: ['1 Placed', '2 Placed', '1 Paid']
# after run 2: ['1 Placed', '2 Placed', '1 Paid']
# without a delivery a second run repeats it: 6
# refused: stream order-2 is at version 1, not 9
# still: 6
