"""A driver that runs pipelines side by side, each on an address of its own, until it is killed.

Each line of its standard input says what to run. None of the pipelines is to come to its end.
"""

from __future__ import annotations

import json
import os
import sys
from threading import Thread
from typing import TypedDict

from pyspark.sql import SparkSession

import penstock
from penstock.pipeline import Runner
from penstock.spark import session
from tests.pipeline.steps.shapes import pipeline
from tests.spark import forked_python
from tests.spark.fixtures import SETTINGS

#: as many tasks as may stand at a point at once; but pieces of work as on two cores, and no
#: compiler, since a query is run once or twice
BRIEF = {
    **SETTINGS,
    "spark.default.parallelism": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


class Job(TypedDict):
    """A pipeline, the address of its database, and up to how many rows the driver works alone."""

    url: str
    pipeline: str
    folder: str
    driver_rows: int


def main() -> None:
    os.environ.update(forked_python.start())
    spark = session("doomed", master="local[99]", config=BRIEF)
    for line in sys.stdin:
        Thread(target=run, args=(spark, json.loads(line)), daemon=True).start()


def run(spark: SparkSession, job: Job) -> None:
    try:
        with penstock.connect(job["url"]) as store:
            pipe = pipeline(job["pipeline"], job["folder"])
            Runner(pipe, store, spark, driver_rows=job["driver_rows"]).run_until_idle()
    finally:
        print(job["pipeline"], "came to its end", flush=True)
        os._exit(1)


if __name__ == "__main__":
    main()
