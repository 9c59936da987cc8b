"""A driver that runs a pipeline with a table of each mode, until it is killed."""

from __future__ import annotations

import os
import sys

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

import penstock
from penstock.pipeline import Delivery, Pipeline, Runner, Timing
from penstock.spark import session
from tests.forked_python import ForkServer
from tests.spark.sessions import SETTINGS

QUEUE = "fact"
MODES = ("append", "upsert", "overwrite")
#: small steps, so that there are many
LIMIT = 20
#: a message's number gives its key, its partition, and whether it deletes its key
KEYS, PARTITIONS, DELETES = 7, 3, 5


def pipeline() -> Pipeline:
    """Return a pipeline whose tables all hold the same messages, each in its own way."""
    pipe = Pipeline("killed")
    pipe.schema(QUEUE, "n bigint")
    for mode in MODES:

        @pipe.table(
            f"killed.{mode}", inputs=QUEUE, mode=mode, key="k" if mode == "upsert" else None,
            partition_by="part", limit=LIMIT, name=mode,
        )  # fmt: skip
        def keep(fact: DataFrame, delivery: Delivery) -> DataFrame:
            deletes = f"n % {DELETES} = 0"
            return fact.selectExpr(
                f"data.n % {KEYS} as k", "global_position",
                f"if(data.{deletes}, null, data.n % {PARTITIONS}) as part",
                f"if(data.{deletes}, null, data.n) as n",
                f"if(data.{deletes}, null, '{delivery.hash}') as delivery",
            ).repartition(2, f.col("k"))  # fmt: skip

    return pipe


def main(url: str, warehouse: str, driver_rows: int) -> None:
    os.environ.update(ForkServer(None).spark_variables())
    spark = session("killed", master="local[2]", config=SETTINGS)
    with penstock.connect(url, warehouse=warehouse) as store:
        timing = Timing(retry_delay=0.1)
        Runner(pipeline(), store, spark, driver_rows=driver_rows, timing=timing).run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
