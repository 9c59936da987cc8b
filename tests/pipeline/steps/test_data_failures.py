"""What Spark's functions cannot take is the message's fault: it goes to the errors queue."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from penstock.pipeline import Delivery
from tests.pipeline.steps.running import Harness, numbered, pipeline, renumbered

pytestmark = pytest.mark.usefixtures("compiled_queries")

#: expressions of `n` and `text` that fail for number 2, whose text is "bad", and for no other
FAILING = {
    "cast to int": "cast(text as int)",
    "cast to date": "cast(if(n = 2, text, '2026-01-02') as date)",
    "to_timestamp": "to_timestamp(if(n = 2, text, '2026-01-02'), 'yyyy-MM-dd')",
    "division by zero": "1 / (n - 2)",
    "remainder by zero": "1 % (n - 2)",
    "overflow": "cast(2147483645 as int) + cast(if(n = 2, 9, 1) as int)",
    "narrowing": "cast(if(n = 2, 123456789012, 1) as int)",
    "decimal": "cast(if(n = 2, 12345, 1) as decimal(3, 0))",
    "array index": "array(1)[if(n = 2, 5, 0)]",
    "element_at": "element_at(array(1), if(n = 2, 5, 1))",
    "make_date": "make_date(2026, if(n = 2, 13, 1), 1)",
    "null map key": "map(if(n = 2, null, n), 1)",
    "url_decode": "url_decode(if(n = 2, '%zz', 'a'))",
    "time zone": "from_utc_timestamp(timestamp '2026-01-02', if(n = 2, 'Nowhere', 'UTC'))",
    "regexp_replace": "regexp_replace('a', if(n = 2, '(', 'a'), 'b')",
    # the eight of the issue
    "from_json": "from_json(if(n = 2, '{', '{}'), 'a int', map('mode', 'FAILFAST'))",
    "parse_json": "string(parse_json(if(n = 2, '{', '1')))",
    "raise_error": "if(n = 2, raise_error('no such number'), 'x')",
    "assert_true": "string(assert_true(n <> 2))",
    "duplicate map key": "map_from_arrays(array(n, 2), array(1, 2))",
    "to_number": "to_number(text, '999')",
    "sequence": "sequence(1, if(n = 2, -5, 5), 1)",
    "xpath": "xpath(if(n = 2, '<a>', '<a/>'), 'a')",
    # and more of the same kind
    "from_csv": "from_csv(text, 'a int', map('mode', 'FAILFAST'))",
    "rlike": "'a' rlike if(n = 2, '(', 'a')",
    "array_repeat": "size(array_repeat(1, if(n = 2, 2147483647, 1)))",
}


@pytest.mark.parametrize("expression", FAILING.values(), ids=FAILING.keys())
def test_a_value_that_a_function_of_spark_cannot_take(harness: Harness, expression: str) -> None:
    pipe = pipeline()

    @pipe.stream(inputs="number", output="out", errors="lost")
    def compute(number: DataFrame) -> DataFrame:
        read = numbered(number).withColumn("text", f.get_json_object("data", "$.text"))
        computed = read.withColumn("made", f.to_json(f.struct(f.expr(expression).alias("v"))))
        return renumbered(computed.where("made is not null"))

    for number in (1, 2, 3):
        harness.write("number", number, text="bad" if number == 2 else str(number))
    harness.steps(pipe)

    assert (harness.numbers("out"), harness.numbers("lost")) == ([1, 3], [2])


def test_it_is_found_in_the_executors_too(harness: Harness, shape: str) -> None:
    pipe = pipeline()

    @pipe.stream(inputs="number", output="out", errors="lost")
    def compute(number: DataFrame) -> DataFrame:
        return renumbered(numbered(number), "string(parse_json(if(n = 2, '{', string(n))))")

    harness.write("number", 1, 2, 3)
    harness.steps(pipe)

    assert len(harness.numbers("out")) == 2
    [lost] = harness.messages("lost")
    assert lost.data["n"] == 2
    assert "MALFORMED_RECORD_IN_PARSING" in (lost.metadata or {})["error"]


class TestOutput:
    """What a message's rows cannot be is its fault as well, though only the commit finds out."""

    def test_ids_that_are_there_twice(self, harness: Harness, shape: str) -> None:
        pipe = pipeline()
        one = "0190b2c4-7a2b-7c3d-8e4f-5a6b7c8d9e0"

        @pipe.stream(inputs="number", output="out", errors="lost")
        def copy(number: DataFrame) -> DataFrame:
            return numbered(number).selectExpr(
                f"concat('{one}', string(n % 3)) as id", "'Made' as type", "struct(n) as data"
            )

        harness.write("number", 0, 1, 2, 4, 5)
        harness.steps(pipe)

        assert harness.numbers("out") == [0, 1, 2]
        assert harness.numbers("lost") == [4, 5]
        assert "DuplicateMessageId" in (harness.messages("lost")[0].metadata or {})["error"]

    def test_an_upsert_without_its_key(self, harness: Harness) -> None:
        pipe = pipeline()

        @pipe.sink(inputs="number", errors="lost")
        def keep(number: DataFrame, delivery: Delivery) -> None:
            rows = numbered(number).selectExpr("nullif(n, 2) as n", "type")
            delivery.upsert(rows, "kept", key="n")

        harness.write("number", 1, 2, 3)
        harness.steps(pipe)

        assert sorted(harness.rows("select n from kept")) == [(1,), (3,)]
        [lost] = harness.messages("lost")
        assert lost.data["n"] == 2
        assert "n of a row for kept is None" in (lost.metadata or {})["error"]

    def test_a_row_that_its_table_refuses(self, harness: Harness) -> None:
        pipe = pipeline()

        @pipe.sink(inputs="number", errors="lost")
        def keep(number: DataFrame, delivery: Delivery) -> None:
            delivery.upsert(numbered(number).select("n"), "kept", key="n")

        harness.execute("create table kept (n bigint primary key check (n <> 2))")
        harness.write("number", 1, 2, 3)
        harness.steps(pipe)

        assert sorted(harness.rows("select n from kept")) == [(1,), (3,)]
        assert harness.numbers("lost") == [2]
