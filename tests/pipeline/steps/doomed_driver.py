"""A driver that runs pipelines side by side, each on an address of its own, until it is killed.

Each line of its standard input says what to run. None of the pipelines is to come to its end.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from threading import Thread
from typing import TypedDict

from pyspark.sql import SparkSession

from penstock.pipeline import Runner
from penstock.spark import session
from tests.forked_python import ForkServer
from tests.pipeline.steps.shapes import connect, pipeline
from tests.spark.sessions import INTERPRETED, SETTINGS

#: as many tasks as may stand at a point at once; but pieces of work as on two cores
BRIEF = {**SETTINGS, **INTERPRETED, "spark.default.parallelism": "2"}


class Job(TypedDict):
    """A pipeline, the address of its database, and up to how many rows the driver works alone."""

    url: str
    pipeline: str
    folder: str
    driver_rows: int


def main() -> None:
    os.environ.update(ForkServer(None).spark_variables())
    spark = session("doomed", master="local[99]", config=BRIEF)
    for line in sys.stdin:
        Thread(target=run, args=(spark, json.loads(line)), daemon=True).start()


def run(spark: SparkSession, job: Job) -> None:
    try:
        with connect(job["url"], job["folder"]) as store:
            pipe = pipeline(job["pipeline"], job["folder"])
            Runner(pipe, store, spark, driver_rows=job["driver_rows"]).run_until_idle()
    except BaseException:
        traceback.print_exc()
    finally:
        print(job["pipeline"], "came to its end", flush=True)
        os._exit(1)


if __name__ == "__main__":
    main()
