"""Bad input gives one short line that says what is wrong, no password, and publishes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import penstock
from penstock import Store
from tests.spark.frames import frame_of, last_line, load, save

TEXT = "stream_name string, type string, data string"
PASSWORD = "sesame-open"
AWAY = f"postgresql://bob:{PASSWORD}@127.0.0.1:1/shop"

READS: dict[str, tuple[dict[str, str], str]] = {
    "no target": ({}, "exactly one of category"),
    "two targets": ({"category": "a", "stream": "a-1"}, "exactly one of category"),
    "an unknown option": ({"category": "a", "colour": "red"}, "option must be one of"),
    "an unknown column": ({"category": "a", "columns": "amount"}, "columns must be among id"),
    "an undeclared attribute": ({"attributes": '{"colour": "red"}'}, "UndeclaredType"),
}
# SQL for the columns of a frame; what is wrong with it
WRITES: dict[str, tuple[list[str], str]] = {
    "a missing column": (["stream_name", "data"], "column type is missing"),
    "a column of the wrong type": (["stream_name", "1 as type", "data"], "column type is int"),
    "a column too many": (["*", "1 as amount"], "column amount is not one of a message"),
    "malformed JSON": (["stream_name", "type", "'{\"a' as data"], "data of a message to write is"),
    "JSON that is no object": (["stream_name", "type", "'[]' as data"], "a JSON object"),
    "an id that is none": (["*", "'x' as id"], "id of a message to write is 'x'"),
    "a stream without a name": (["'' as stream_name", "type", "data"], "stream_name of a message"),
}


def said_by(call: Callable[[], object]) -> str:
    """Return the line that says what went wrong, which is short and tells no password."""
    with pytest.raises(PySparkException) as raised:
        call()
    assert PASSWORD not in str(raised.value)
    line = last_line(raised.value)
    assert len(line) < 400
    return line


@pytest.mark.parametrize("case", READS)
def test_a_read_that_makes_no_sense_is_refused(
    spark: SparkSession, database_url: str, case: str
) -> None:
    options, problem = READS[case]

    assert problem in said_by(lambda: load(spark, database_url, **options).collect())


def test_a_category_that_does_not_exist_is_an_empty_frame(
    spark: SparkSession, database_url: str
) -> None:
    assert load(spark, database_url, category="nowhere").collect() == []


@pytest.mark.parametrize("case", WRITES)
def test_a_frame_that_makes_no_messages_is_refused_whole(
    spark: SparkSession, store: Store, database_url: str, case: str
) -> None:
    columns, problem = WRITES[case]
    rows = frame_of(spark, TEXT, ("a-1", "T", "{}")).selectExpr(*columns)

    assert problem in said_by(lambda: save(rows, database_url))
    assert store.get_category_messages("$all") == []


def test_one_bad_row_among_good_ones_publishes_nothing(
    spark: SparkSession, store: Store, database_url: str
) -> None:
    rows = spark.range(0, 40, 1, 2).selectExpr(
        "'a-1' as stream_name", "'T' as type", "if(id = 31, '{', '{}') as data"
    )

    assert "data of a message to write is '{'" in said_by(lambda: save(rows, database_url))
    assert store.get_category_messages("$all") == []


@pytest.mark.parametrize(
    ("mode", "problem"), [("overwrite", "a log cannot be overwritten"), (None, '"Append"')]
)
def test_a_log_is_only_appended_to(
    spark: SparkSession, store: Store, database_url: str, mode: str | None, problem: str
) -> None:
    rows = frame_of(spark, TEXT, ("a-1", "T", "{}"))

    assert problem in said_by(lambda: save(rows, database_url, mode))
    assert store.get_category_messages("$all") == []


def test_a_database_that_is_away_is_named_by_its_host(spark: SparkSession) -> None:
    rows = frame_of(spark, TEXT, ("a-1", "T", "{}"))

    for line in (
        said_by(lambda: load(spark, AWAY, category="a").collect()),
        said_by(lambda: save(rows, AWAY)),
    ):
        assert "PostgreSQL at 127.0.0.1:1/shop cannot be reached" in line


def test_a_socket_that_is_not_on_this_machine_is_explained(
    spark: SparkSession, tmp_path: Path
) -> None:
    url = f"postgresql://bob:{PASSWORD}@/shop?host={tmp_path}"

    line = said_by(lambda: load(spark, url, category="a").collect())

    assert f"the Unix socket {tmp_path}/.s.PGSQL.5432, which this machine does not have" in line
    assert "need a host and a port" in line


def test_an_address_that_cannot_be_read_is_shown_without_its_password(spark: SparkSession) -> None:
    url = f"postgresql://bob:{PASSWORD}@x@127.0.0.1/shop"

    assert "percent-encoded" in said_by(lambda: load(spark, url, category="a").collect())


def test_the_plan_of_a_read_tells_no_password(spark: SparkSession) -> None:
    frame = load(spark, AWAY, category="a")

    assert PASSWORD not in str(frame._jdf.queryExecution().logical().toString())
    assert PASSWORD not in str(frame._jdf.queryExecution().analyzed().toString())


@pytest.mark.parametrize("edition", ["genuine", "empty"])
def test_a_database_without_penstock_is_refused_clearly(
    spark: SparkSession, new_database: Callable[[str], str], edition: str
) -> None:
    url = new_database(edition)
    rows = frame_of(spark, TEXT, ("a-1", "T", "{}"))

    for line in (
        said_by(lambda: load(spark, url, category="a").collect()),
        said_by(lambda: save(rows, url)),
    ):
        assert "NotInstalled" in line
        assert "penstock init" in line


def test_beside_a_genuine_message_db_all_works(
    spark: SparkSession, new_database: Callable[[str], str]
) -> None:
    url = new_database("beside")
    rows = frame_of(spark, TEXT, ("a-1", "T", '{"n": 1}'), (None, "U", "{}"))

    save(rows, url)

    with penstock.connect(url) as store:
        [message] = store.get_stream_messages("a-1")
        assert (message.data, message.position) == ({"n": 1}, 0)
    typed = load(spark, url, "data struct<n: int>", category="a").collect()
    assert [row.data.n for row in typed] == [1]
