"""Reading little of a large log: the ten messages of one stream, or of one customer."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from bench.measuring import Contender, measure
from bench.results import Comparison, ratio
from bench.spark.place import Place
from bench.spark.sales import PER_CUSTOMER, PER_STREAM

NOTE = "Ten messages out of {messages:,}, collected on the driver. Every read is planned anew."
STREAM_NOTE = (
    "Ours is given the stream as an option. Spark's JDBC reader pushes a filter on stream_name "
    "down to PostgreSQL, which has an index for it: that is the second contender. The third "
    "filters in Spark (pushDownPredicate = false), as it has to be for a condition that cannot "
    "be pushed."
)
ATTRIBUTE_NOTE = (
    "Ours is given the attribute as an option, and uses the attribute index. Spark's JDBC reader "
    "cannot push down a condition on a field of JSON: it reads every message, and Spark filters "
    "by get_json_object."
)


def one_stream(place: Place, database: str, messages: int, rounds: int) -> Comparison:
    """Measure reads of one stream per second."""
    stream = f"sale-{messages // PER_STREAM // 2}"
    ours = partial(_ours, place, database, "stream", stream)
    pushed = partial(_of_stream, place, database, messages, stream, "true")
    filtered = partial(_of_stream, place, database, messages, stream, "false")
    contenders = [_contender("ours", ours, PER_STREAM)]
    if place.has_jdbc:
        contenders += [
            _contender("JDBC, pushed down", pushed, PER_STREAM),
            _contender("JDBC, filtered in Spark", filtered, PER_STREAM),
        ]
    notes = [NOTE.format(messages=messages), STREAM_NOTE, *place.notes]
    return _compared("Spark reads one stream", contenders, rounds, notes)


def one_attribute(place: Place, database: str, messages: int, rounds: int) -> Comparison:
    """Measure reads of one attribute per second."""
    customer = f"c{messages // PER_CUSTOMER // 2}"
    ours = partial(_ours, place, database, "attributes", f'{{"customer": "{customer}"}}')
    theirs = partial(_of_customer, place, database, messages, customer)
    contenders = [_contender("ours", ours, PER_CUSTOMER)]
    if place.has_jdbc:
        contenders.append(_contender("JDBC, filtered in Spark", theirs, PER_CUSTOMER))
    notes = [NOTE.format(messages=messages), ATTRIBUTE_NOTE, *place.notes]
    return _compared("Spark reads one attribute", contenders, rounds, notes)


def _compared(title: str, contenders: list[Contender], rounds: int, notes: list[str]) -> Comparison:
    ours, *theirs = measure(title, "reads/s", contenders, rounds).values()
    ratios = [
        ratio(ours, one, at_least=10 if one.name.endswith("in Spark") else None) for one in theirs
    ]
    return Comparison(title, [ours, *theirs], ratios, notes)


def _contender(name: str, frame: Callable[[], DataFrame], expected: int) -> Contender:
    def reads_per_second() -> float:
        began = time.perf_counter()
        rows = frame().collect()
        seconds = time.perf_counter() - began
        assert len(rows) == expected, f"{name} read {len(rows)} rows"
        return 1 / seconds

    return Contender(name, reads_per_second)


def _ours(place: Place, database: str, option: str, value: str) -> DataFrame:
    return place.read(database).option(option, value).load()


def _of_stream(
    place: Place, database: str, messages: int, stream: str, push_down: str
) -> DataFrame:
    log = place.jdbc_log(database, messages, pushDownPredicate=push_down)
    return log.where(f.col("stream_name") == stream)


def _of_customer(place: Place, database: str, messages: int, customer: str) -> DataFrame:
    log = place.jdbc_log(database, messages)
    return log.where(f.get_json_object("data", "$.customer") == customer)
