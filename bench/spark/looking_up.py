"""Reading little of a large log: the ten messages of one stream, or of one customer."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import psycopg
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from bench.measuring import Contender, measure
from bench.results import Comparison
from bench.spark.place import LOG, Place
from bench.spark.reading import against
from bench.spark.sales import PER_CUSTOMER, PER_STREAM

NOTE = "Ten messages out of {messages:,}, collected on the driver. Every read is planned anew."
STREAM_NOTE = (
    "Ours is given the stream as an option. JDBC reads the table without partitions, which is best "
    "for so few rows, and pushes a filter on stream_name down to PostgreSQL, which has an index "
    "for it."
)
ATTRIBUTE_NOTE = (
    "Ours is given the attribute as an option, and uses the attribute index, which a declared "
    "message type has without further ado. JDBC cannot push down a condition on a field of JSON, "
    "so it is given the option query, with the condition in SQL: with an index on that expression, "
    "made for it by hand, which the aim is against; and without one, when PostgreSQL scans the "
    "table."
)
#: the same field, by an expression that has an index and by one that has none
INDEXED, UNINDEXED = "data->>'customer'", "data#>>'{customer}'"
_INDEX = f"create index sale_customer on message_store.messages (({INDEXED}))"


def one_stream(place: Place, database: str, messages: int, rounds: int) -> Comparison:
    """Measure reads of one stream per second."""
    stream = f"sale-{messages // PER_STREAM // 2}"
    ours = partial(_ours, place, database, "stream", stream)
    contenders = [_contender("ours", ours, PER_STREAM)]
    if place.has_jdbc:
        pushed = partial(_of_stream, place, database, stream)
        contenders.append(_contender("JDBC, pushed down", pushed, PER_STREAM))
    notes = [NOTE.format(messages=messages), STREAM_NOTE, *place.notes]
    return _compared("Spark reads one stream", contenders, rounds, notes, messages)


def one_attribute(place: Place, database: str, messages: int, rounds: int) -> Comparison:
    """Measure reads of one attribute per second."""
    customer = f"c{messages // PER_CUSTOMER // 2}"
    ours = partial(_ours, place, database, "attributes", f'{{"customer": "{customer}"}}')
    contenders = [_contender("ours", ours, PER_CUSTOMER)]
    if place.has_jdbc:
        _index(place.url(database))
        for name, field in (("with an index", INDEXED), ("without an index", UNINDEXED)):
            theirs = partial(_of_customer, place, database, field, customer)
            contenders.append(_contender(f"JDBC query, {name}", theirs, PER_CUSTOMER))
    notes = [NOTE.format(messages=messages), ATTRIBUTE_NOTE, *place.notes]
    return _compared("Spark reads one attribute", contenders, rounds, notes, messages)


def _compared(
    title: str, contenders: list[Contender], rounds: int, notes: list[str], messages: int
) -> Comparison:
    figures = list(measure(title, "reads/s", contenders, rounds).values())
    sizes = f"10 of {messages:,} messages"
    return Comparison(title, figures, against(figures, at_least=1), notes, sizes)


def _index(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_INDEX)
        connection.execute("analyze message_store.messages")


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


def _of_stream(place: Place, database: str, stream: str) -> DataFrame:
    options = {**place.jdbc(database), "dbtable": LOG}
    log = place.spark.read.format("jdbc").options(**options).load()
    return log.where(f.col("stream_name") == stream)


def _of_customer(place: Place, database: str, field: str, customer: str) -> DataFrame:
    query = f"select * from message_store.messages where {field} = '{customer}'"
    options = {**place.jdbc(database), "query": query}
    return place.spark.read.format("jdbc").options(**options).load()
