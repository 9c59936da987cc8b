"""What a step costs when the log is small, and when it is large: promise 6, no growth."""

from __future__ import annotations

import time
from uuid import uuid4

import psycopg

import penstock
from bench.measuring import Contender, measure
from bench.pipeline.invoicing import invoicing
from bench.results import Comparison, ratio
from bench.spark.place import Place
from bench.spark.sales import insert_sales, make_log
from penstock.pipeline.attempt import StepContext
from penstock.pipeline.connection import RunConnection
from penstock.pipeline.state import open_processor, place_tailers
from penstock.pipeline.step import run_step
from penstock.spark.connections import DatabaseRef as Database
from penstock.spark.connections import connect

MESSAGES = 200  # of a step: so few that a small log stays small
TITLE = "A step of a pipeline, as the log grows"
NOTES = [
    f"A step takes {MESSAGES} new messages of a category that holds the whole log, maps them and "
    "publishes as many, in one transaction with its tailer. It is timed from the look for new "
    "messages to the end of the commit."
]


class Log:
    """A log of so many messages, and a processor that has read all of them."""

    def __init__(self, place: Place, messages: int) -> None:
        self.messages = messages
        self.database = make_log(place.server, f"steps_{messages}", messages)
        self._store = penstock.connect(place.url(self.database))
        pipe = invoicing()
        database = Database(self._store.settings)
        self._connection = RunConnection(connect(database), database.where)
        self._connection.raw.execute("set enable_sort = off")  # as a Runner does
        processor = pipe.processors["invoice"]
        self._connection.run(open_processor(pipe.name, processor.name, processor.kind))
        self._connection.run(place_tailers(pipe.name, processor.name, {"sale": messages}))
        self._context = StepContext(pipe, processor, database, self._connection, place.spark)

    def step(self) -> float:
        """Write messages, and return the milliseconds of the step that processes them."""
        with psycopg.connect(self._store.settings.conninfo()) as connection:
            insert_sales(connection, MESSAGES, f"sale-{uuid4().hex}")
        began = time.perf_counter()
        report = run_step(self._context)
        seconds = time.perf_counter() - began
        assert report is not None
        assert report.messages_out == MESSAGES
        return seconds * 1000

    def close(self) -> None:
        """Leave the database."""
        self._connection.raw.close()
        self._store.close()


def compare(place: Place, sizes: tuple[int, ...], rounds: int) -> Comparison:
    """Measure milliseconds of a step on logs of different sizes."""
    logs = [Log(place, size) for size in sizes]
    contenders = [Contender(f"at {log.messages:,} messages", log.step) for log in logs]
    smallest, *larger = measure(TITLE, "ms", contenders, rounds).values()
    for log in logs:
        log.close()
        place.server.drop(log.database)
    ratios = [ratio(one, smallest, at_most=1.2) for one in larger]
    return Comparison(TITLE, [smallest, *larger], ratios, NOTES)
