"""A pipeline whose reads say a word on the wire. As a program, it runs once and tells how it went.

The word is a field of its queue's messages, so the query that reads them names it, and no other.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame

import penstock
from penstock.pipeline import Pipeline, Runner
from penstock.spark import session
from tests.spark.sessions import SETTINGS

WORD = "cut_off_here"


def reading() -> Pipeline:
    """Return a pipeline that copies numbers from `a` to `b`."""
    pipe = Pipeline("shop")
    pipe.schema("a", f"n bigint, {WORD} string")

    @pipe.stream(inputs="a", output="b")
    def copy(a: DataFrame) -> DataFrame:
        return a.selectExpr("id", "global_position", "'Copied' as type", "to_json(data) as data")

    return pipe


def main(url: str) -> None:
    with (
        session("cut off", master="local[2]", config=SETTINGS) as spark,
        penstock.connect(url) as store,
    ):
        progress = Runner(reading(), store, spark).run_until_idle(check=False).progress["copy"]
    print(f"copied {progress.messages_out}, error {progress.error}")


if __name__ == "__main__":
    main(sys.argv[1])
