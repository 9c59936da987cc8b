"""Names, limits and schemas that nothing can have are refused, with the line that is to blame."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock import Store
from penstock.errors import GraphError, ValidationError
from penstock.pipeline import Pipeline, Runner, load
from penstock.pipeline.checks import check
from tests.pipeline.graph.files import line_marked, refusal, write_file

FED = """
pipe.schema("order")
pipe.schema("product")
"""


@pytest.mark.parametrize("limit", ["0", "-5", "True", "1.5", "'many'", "None"])
def test_a_limit_that_is_no_count(tmp_path: Path, limit: str) -> None:
    file = write_file(
        tmp_path, f"{FED}\n@pipe.sink(inputs='order', limit={limit})  # here\ndef s(order): ...\n"
    )

    assert refusal(file) == f"limit must be a whole number from 1; got {limit}"


@pytest.mark.parametrize("name", ["'a b'", "'order-1'", "'a.b'"])
def test_a_name_that_a_processor_cannot_have(tmp_path: Path, name: str) -> None:
    file = write_file(
        tmp_path, f"{FED}\n@pipe.sink(inputs='order', name={name})  # here\ndef s(order): ...\n"
    )

    assert refusal(file) == f"a processor cannot be named {name}: use letters and _"


@pytest.mark.parametrize("queue", ["''", "'a\\0b'", "5"])
@pytest.mark.parametrize(
    "declared",
    [
        "pipe.schema({queue})  # here",
        "@pipe.sink(inputs=[{queue}])  # here\ndef s(x): ...",
        "@pipe.source(output=[{queue}])  # here\ndef s(): ...",
        "@pipe.stream(inputs='order', tables=[{queue}])  # here\ndef s(order): ...",
    ],
)
def test_a_name_that_no_queue_can_have(tmp_path: Path, queue: str, declared: str) -> None:
    file = write_file(tmp_path, FED + declared.format(queue=queue) + "\n")

    assert refusal(file).startswith("queue must be ")


@pytest.mark.parametrize("reader", ["inputs='$all'", "alts=['$all', 'order']"])
def test_the_whole_log_would_include_what_its_reader_writes(tmp_path: Path, reader: str) -> None:
    file = write_file(
        tmp_path, f"{FED}\npipe.schema('$all')\n@pipe.sink({reader})  # here\ndef s(_all): ...\n"
    )

    assert refusal(file) == "s reads $all, where its own steps are recorded: it would never end"


@pytest.mark.parametrize("queue", ["shop:try", "shop:try-s"])
@pytest.mark.parametrize(
    "declared", ["sink(inputs='{}')", "stream(inputs='order', output='{}')", "sink(alts='{}')"]
)
def test_the_records_of_its_own_steps_are_no_queue(
    tmp_path: Path, queue: str, declared: str
) -> None:
    file = write_file(
        tmp_path,
        f"{FED}\npipe.schema('{queue}')\n@pipe.{declared.format(queue)}  # here\ndef s(x): ...\n",
    )

    assert refusal(file) == f"s has {queue}, where its pipeline's own steps are recorded"


def test_a_pipeline_without_processors() -> None:
    with pytest.raises(GraphError, match="pipeline shop: it has no processors"):
        check(Pipeline("shop"))


@pytest.mark.parametrize("name", ["", "a-b", "1a", "a b", "ä", None, 5])
def test_a_name_that_a_pipeline_cannot_have(name: str) -> None:
    with pytest.raises(ValidationError, match="name"):
        Pipeline(name)


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        (
            "pipe.schema('gift', 'n whole')  # here",
            "gift has a schema that Spark cannot read",
        ),
        ("pipe.schema('gift', metadata='n')  # here", "gift has a schema that Spark cannot"),
        (
            "@pipe.project('order', into='t', columns='n whole')  # here\n"
            "def p(state, message): ...",
            "p has columns that Spark cannot read",
        ),
        (
            "@pipe.project('order', into='t', columns='position int')  # here\n"
            "def p(state, message): ...",
            "p has a column position, which every projection's table has",
        ),
        (
            "@pipe.project('order', into='a.b.c', columns='n int')  # here\n"
            "def p(state, message): ...",
            "table must be a table's name, with or without a schema",
        ),
        (
            "@pipe.project('order', into='t', columns='n binary')  # here\n"
            "def p(state, message): ...",
            "a column is binary",
        ),
        (
            "@pipe.project('order', into='t', columns='n interval day')  # here\n"
            "def p(state, message): ...",
            "column n is interval day",
        ),
        (
            "@pipe.project('order', into='t', columns='n int, m int, n int')  # here\n"
            "def p(state, message): ...",
            "column n is there twice",
        ),
        (
            f"@pipe.project('order', into='s.{58 * 't'}', columns='n int')  # here\n"
            "def p(state, message): ...",
            "p has a table whose name is longer than 57 bytes: s.ttt",
        ),
    ],
)
def test_a_schema_that_spark_cannot_read(
    tmp_path: Path, spark: SparkSession, store: Store, declared: str, problem: str
) -> None:
    file = write_file(
        tmp_path, f"{FED}\n@pipe.sink(inputs='order')\ndef s(order): ...\n{declared}\n"
    )

    with pytest.raises(GraphError) as caught:
        Runner(load(str(file)), store, spark)

    assert caught.value.location == line_marked(file)
    assert caught.value.problem.startswith(problem)
