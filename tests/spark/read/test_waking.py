"""A streaming query at rest: its reader alone, as Spark has it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

import penstock
from penstock import Store
from tests.log.waiting import AN_HOUR, LONG
from tests.spark.faults.test_restored import reading


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "target", [{"category": "order"}, {"stream": "order-1"}, {"category": "$all"}]
)
def test_a_query_at_rest_is_woken_by_a_write(
    store: Store, database_url: str, target: dict[str, str]
) -> None:
    with (
        reading(database_url, **target) as one,
        penstock.connect(database_url) as writer,
        ThreadPoolExecutor(1) as thread,
    ):
        start = one.initialOffset()
        one._pause = AN_HOUR
        one.latestOffset(start, ReadAllAvailable())  # returns when notifications arrive

        def next_offset() -> Any:
            offset = start
            while offset == start:
                one._pause = AN_HOUR
                offset = one.latestOffset(start, ReadAllAvailable())
            return offset

        found = thread.submit(next_offset)
        writer.write_message("order-1", "Placed")

        assert found.result(LONG)["position"] == (0 if "stream" in target else 1)
