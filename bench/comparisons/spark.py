"""The log as Spark's data source, beside Spark's own JDBC: reads, look-ups, writes, memory."""

from __future__ import annotations

from bench.measuring import Effort
from bench.results import Comparison
from bench.server import Server
from bench.spark import looking_up, memory, reading, writing
from bench.spark.place import spark_place
from bench.spark.sales import index_customers, make_log


def compare(server: Server, effort: Effort) -> list[Comparison]:
    """Measure all of it on one log, in one session, and memory in another."""
    messages = 50_000 if effort.quick else 1_000_000
    written = 20_000 if effort.quick else 500_000
    rounds = 1 if effort.quick else 7
    reads = 1 if effort.quick else 15  # short ones, and Java still compiles in the first
    partitions = (4,) if effort.quick else (1, 2, 4)
    database = make_log(server, "spark_reading", messages)
    index_customers(server.url(database))
    with spark_place(server) as place:
        compared = [
            *(reading.all_columns(place, database, messages, reads, one) for one in partitions),
            reading.typed(place, database, messages, reads),
            looking_up.one_stream(place, database, messages, rounds),
            looking_up.one_attribute(place, database, messages, rounds),
            writing.compare(place, written, rounds),
        ]
    if not effort.quick:  # of a short run the memory tells nothing
        with spark_place(server, **memory.FRESH_WORKERS) as place:
            compared += memory.compare(place, database, messages)
    server.drop(database)
    return compared
