"""Every example runs by itself, on a log that others have written to, and prints what it says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Server
from tests.docs.example_processes import ExampleProcesses
from tests.docs.pages import ROOT, imports_spark
from tests.docs.running import check_lines
from tests.docs.spark_examples import SparkExamples
from tests.forked_python import spark_server

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
ON_SPARK = [one for one in EXAMPLES if imports_spark(one.read_text(encoding="utf-8"))]
OUTPUT = "\n# Output:\n"


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExampleProcesses]:
    processes = ExampleProcesses(tmp_path_factory.mktemp("examples"))
    yield processes
    processes.close()


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
    example: Path, database_url: str, examples: ExampleProcesses
) -> None:
    expected = _expected_output(example)

    first = examples.run(example, database_url)
    second = examples.run(example, database_url)

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


def _expected_output(example: Path) -> list[str]:
    _, heading, output = example.read_text(encoding="utf-8").partition(OUTPUT)
    assert heading, f"{example.name} does not say what it prints"
    return [line.removeprefix("#").removeprefix(" ") for line in output.splitlines()]
