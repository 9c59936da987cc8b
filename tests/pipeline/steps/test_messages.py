"""`messages` builds the frames that sources and streams return."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock import Message
from penstock.errors import ValidationError
from penstock.pipeline import messages
from tests.pipeline.steps.running import Harness, pipeline


def test_a_frame_without_an_input_gives_new_messages(spark: SparkSession) -> None:
    rows = spark.range(1).selectExpr("id", "'red' as colour")  # an id, and no global_position

    found = messages(rows, type="Painted", data=["colour", f.col("id").alias("number")])

    assert found.columns == ["type", "data"]
    assert [row.asDict(recursive=True) for row in found.collect()] == [
        {"type": "Painted", "data": {"colour": "red", "number": 0}}
    ]


def test_type_and_stream_may_be_columns(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("Opened", "7"), ("Closed", "8")], "kind string, number string")

    found = messages(
        rows,
        type=f.col("kind"),
        data=f.to_json(f.struct("number")),
        stream=f.concat(f.lit("account-"), "number"),
    )

    assert [tuple(row) for row in found.collect()] == [
        ("account-7", "Opened", '{"number":"7"}'),
        ("account-8", "Closed", '{"number":"8"}'),
    ]


@pytest.mark.parametrize("data", ["n", [], ()])
def test_data_that_is_no_list_of_columns_is_refused(spark: SparkSession, data: Any) -> None:
    with pytest.raises(ValidationError, match="data must be a list of columns, or one Column"):
        messages(spark.range(1), type="Numbered", data=data)


@pytest.mark.parametrize("metadata", [None, "correlation_id string", "by string"])
def test_a_stream_carries_cause_and_correlation_on(harness: Harness, metadata: str | None) -> None:
    pipe = pipeline()
    del pipe.schemas["number"]
    pipe.schema("number", "n int", metadata=metadata)

    @pipe.stream(inputs="number", output="half", errors="odd")
    def halve(number: DataFrame) -> DataFrame:
        return messages(
            number,
            type="Halved",
            data=[f.expr("data.n div 2 as n")],
            stream="half-all",
            error=f.when(f.expr("data.n % 2 = 1"), f.lit("it is odd")),
        )

    facts = {"correlation_id": "first", "by": "hand"}
    harness.store.write_messages("number-1", [Message("Numbered", {"n": 4}, metadata=facts)])
    harness.write("number", 5, 6)
    harness.steps(pipe)

    carried, alone = harness.messages("half-all")
    first, odd, last = harness.messages("number")
    assert (carried.type, carried.data, alone.data) == ("Halved", {"n": 2}, {"n": 3})
    expected = str(first.id) if metadata == "by string" else "first"
    assert (carried.metadata or {})["correlation_id"] == expected
    assert (carried.metadata or {})["causation_id"] == str(first.id)
    assert (alone.metadata or {})["correlation_id"] == str(last.id)
    assert "by" not in (carried.metadata or {})
    (failed,) = harness.messages("odd")
    assert (failed.metadata or {})["causation_id"] == str(odd.id)
    assert (failed.metadata or {})["error"] == "it is odd"
