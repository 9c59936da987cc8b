"""Every example runs by itself, on a log that others have written to, and prints what it says."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Server
from tests.docs.pages import ROOT, imports_spark
from tests.docs.running import check_lines
from tests.docs.spark_examples import SparkExamples
from tests.forked_python import penstock_server, spark_server

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
ON_SPARK = [one for one in EXAMPLES if imports_spark(one.read_text(encoding="utf-8"))]
OUTPUT = "\n# Output:\n"


@pytest.fixture(scope="module")
def spark_examples(
    server: Server, java: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkExamples]:
    database = server.create_database(server.template("penstock"))
    folder = tmp_path_factory.mktemp("examples")
    process = SparkExamples(spark_server(), java, server.url(database), folder)
    yield process
    process.close()
    server.drop_database(database)


@pytest.mark.parametrize(
    "example",
    [one for one in EXAMPLES if one not in ON_SPARK],
    ids=lambda example: str(example.name),
)
def test_an_example_prints_what_it_says_also_the_second_time(
    example: Path, database_url: str, tmp_path: Path
) -> None:
    expected = _expected_output(example)

    first = _run(example, database_url, tmp_path)
    second = _run(example, database_url, tmp_path)

    check_lines(example.name, first, expected)
    check_lines(f"{example.name}, the second time,", second, expected)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("example", ON_SPARK, ids=lambda example: str(example.name))
def test_an_example_on_spark_prints_what_it_says_also_the_second_time(
    example: Path, spark_examples: SparkExamples
) -> None:
    expected = _expected_output(example)

    first = spark_examples.run(example)
    second = spark_examples.run(example)

    check_lines(example.name, first, expected)
    check_lines(f"{example.name}, the second time,", second, expected)


def _run(example: Path, url: str, folder: Path) -> str:
    """Run an example and return what it printed. It has to end well, without an error text."""
    process = penstock_server().start(
        str(example),
        cwd=folder,
        env={**os.environ, "PENSTOCK_URL": url},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    output, errors = process.communicate(timeout=250)
    assert (process.returncode, errors) == (0, "")
    return output


def _expected_output(example: Path) -> list[str]:
    _, heading, output = example.read_text(encoding="utf-8").partition(OUTPUT)
    assert heading, f"{example.name} does not say what it prints"
    return [line.removeprefix("#").removeprefix(" ") for line in output.splitlines()]
