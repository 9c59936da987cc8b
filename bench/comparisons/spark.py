"""The log as Spark's data source, beside Spark's own JDBC: reads, look-ups, writes, memory."""

from __future__ import annotations

from collections.abc import Iterator

from bench.measuring import Effort
from bench.results import Comparison
from bench.server import Server
from bench.spark import looking_up, memory, reading, writing
from bench.spark.place import spark_place
from bench.spark.sales import index_customers, make_log


def compare(server: Server, effort: Effort) -> Iterator[Comparison]:
    """Measure all of it on one log, in one session, and memory in another."""
    messages = 50_000 if effort.quick else 500_000
    written = 20_000 if effort.quick else 200_000
    rounds = 1 if effort.quick else effort.rounds
    database = make_log(server, "spark_reading", messages)
    index_customers(server.url(database))
    with spark_place(server) as place:
        for partitions in (4,) if effort.quick else (1, 4):
            yield reading.all_columns(place, database, messages, rounds, partitions)
        yield reading.typed(place, database, messages, rounds)
        yield looking_up.one_stream(place, database, messages, rounds * 3)
        yield looking_up.one_attribute(place, database, messages, rounds * 3)
        yield writing.compare(place, written, rounds)
    if not effort.quick:  # of a short run the memory tells nothing
        with spark_place(server, **memory.FRESH_WORKERS) as place:
            yield memory.reading(place, database, messages)
            yield memory.writing(place, written)
    server.drop(database)
