"""Runs the examples that use Spark one after the other, in one process with one Spark session.

Spark and its Python workers take seconds to start. `SparkExamples` is the test's side. The other
side is this file as a program: it starts Spark, reads the path of an example from each line of its
input, runs it as Python would, and answers with a line of JSON.
"""

from __future__ import annotations

import io
import json
import os
import runpy
import subprocess
import sys
import traceback
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

from pyspark.sql import SparkSession

from penstock.spark import session

if TYPE_CHECKING:
    from tests.forked_python import ForkServer

#: what Java says of an argument that Spark's launcher always gives
OF_JAVA = "WARNING: Using incubator modules: jdk.incubator.vector\n"


class SparkExamples:
    """The process, with a database for all of the examples."""

    def __init__(self, server: ForkServer, java: Mapping[str, str], url: str, folder: Path) -> None:
        self._errors = folder / "stderr"
        with self._errors.open("w") as errors:
            self._process = server.start(
                __file__,
                cwd=folder,
                env={**os.environ, **java, "PENSTOCK_URL": url},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )

    def run(self, example: Path) -> str:
        """Run an example and return what it printed."""
        assert self._process.stdin
        assert self._process.stdout
        print(example, file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line, self._errors.read_text()
        printed, error = json.loads(line)
        assert error is None, error
        assert self._errors.read_text().replace(OF_JAVA, "") == ""
        return str(printed)

    def close(self) -> None:
        """End the process, and Spark with it."""
        self._process.communicate(timeout=60)


def main() -> None:
    """Run the examples that are asked for."""
    spark = session()
    # an example says `with session() as spark`: it gets the session above, and would stop it
    with patch.object(SparkSession, "stop"):
        for line in sys.stdin:
            print(json.dumps(run(line.strip())), flush=True)
    spark.stop()


def run(example: str) -> tuple[str, str | None]:
    """Return what an example printed, and its error."""
    printed = io.StringIO()
    try:
        with redirect_stdout(printed):
            runpy.run_path(example, run_name="__main__")
    except BaseException:
        return printed.getvalue(), traceback.format_exc()
    return printed.getvalue(), None


if __name__ == "__main__":
    main()
