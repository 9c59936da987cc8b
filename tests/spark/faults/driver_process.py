"""A Spark driver in a process of its own: does what each line says, and answers how it went."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from penstock.spark import session
from tests.forked_python import ForkServer
from tests.spark.faults import jobs


def say(text: str) -> None:
    os.write(1, (" ".join(text.split()) + "\n").encode())


def main() -> None:
    os.environ.update(ForkServer(None).spark_variables())
    if not sys.argv[1].startswith("local"):  # tasks are to be descendants of their executors
        os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = session("faults", master=sys.argv[1], config=json.loads(sys.argv[2]))
    say("ready")
    for line in sys.stdin:
        order: dict[str, Any] = json.loads(line)
        try:
            getattr(jobs, order.pop("job"))(spark, **order)
            say("done")
        except Exception as error:
            say(f"failed: {error}")


if __name__ == "__main__":
    main()
