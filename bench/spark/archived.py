"""Scanning history: the same messages in PostgreSQL, and in the files of the archive."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psycopg
from psycopg import sql
from pyspark.sql import DataFrame

import penstock
from bench.measuring import Contender, measure, tell
from bench.results import Comparison, ratio
from bench.server import Server
from bench.spark.place import Place, drain
from bench.spark.sales import FIELDS
from penstock.log.archive import archive
from penstock.log.retention import Keep
from penstock.spark import FrameReader, Frames

#: of each stream the last message stays in the table
STREAMS = 1_000
NOTE = (
    "{messages:,} messages of one category in {streams:,} streams, read in one Spark session with "
    "two cores, four partitions, into the noop sink: from PostgreSQL over TCP, and from a twin of "
    "that log of which all but the last message of each stream are archived, in Parquet files on "
    "the same disk. Both are frames of `Frames(store, spark).read.category`, {what}."
)
_FILL = sql.SQL("""
insert into message_store.messages (id, stream_name, position, type, data, metadata)
select uuidv7(), 'sale-' || n % {streams}, n / {streams}, 'Sold',
  jsonb_build_object('amount', n % 1000 + 0.5, 'currency', 'EUR',
    'customer', 'c' || n % greatest(1, {count} / 10)),
  '{{"correlation_id": "0b8b6f1c"}}'
from generate_series(0, {count} - 1) n
""")


def compare(place: Place, messages: int, rounds: int) -> Iterator[Comparison]:
    """Measure rows per second of all columns, and of three typed fields."""
    plain, archived = (_make_log(place.server, one, messages) for one in ("plain", "archived"))
    with tempfile.TemporaryDirectory() as warehouse:
        _archive(place.url(archived), Path(warehouse))
        for title, read, aim, what in (
            ("Spark counts archived messages by type", _by_type, 5.0, "grouped by type"),
            ("Spark scans the archive, two columns", _two, None, "with the option `columns`"),
            ("Spark scans the archive, all columns", _all, 5.0, "with all columns"),
            (
                "Spark scans the archive, three typed fields", _typed, None,
                "with a schema, so tasks in Python read the files",
            ),
        ):  # fmt: skip
            contenders = [
                Contender(name, partial(_rows_per_second, place, read, database, messages))
                for name, database in (("archive", archived), ("PostgreSQL", plain))
            ]
            files, table = measure(title, "rows/s", contenders, rounds).values()
            note = NOTE.format(messages=messages, streams=STREAMS, what=what)
            ratios = [ratio(files, table, at_least=aim)]
            yield Comparison(title, [files, table], ratios, [note], f"{messages:,} messages")
    for database in (plain, archived):
        place.server.drop(database)


def _make_log(server: Server, name: str, messages: int) -> str:
    database = f"spark_{name}"
    tell(f"making a log of {messages:,} messages, to be scanned")
    with psycopg.connect(server.ours(database, 0), autocommit=True) as connection:
        connection.execute(_FILL.format(count=messages, streams=STREAMS))
        connection.execute("vacuum analyze")
        connection.execute("checkpoint")
    return database


def _archive(url: str, warehouse: Path) -> None:
    tell("archiving it")
    with penstock.connect(url, warehouse=warehouse.as_uri()) as store:
        archive(store.context, "sale", Keep(count=0), max_load=1)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("vacuum analyze")


def _rows_per_second(place: Place, read: object, database: str, messages: int) -> float:
    assert callable(read)
    began = time.perf_counter()
    drain(read(place, database))  # what loading it takes is part of it
    return messages / (time.perf_counter() - began)


def _all(place: Place, database: str) -> DataFrame:
    return _reader(place, database).category("sale")


def _by_type(place: Place, database: str) -> DataFrame:
    return _all(place, database).groupBy("type").agg({"*": "count", "time": "max"})


def _two(place: Place, database: str) -> DataFrame:
    return _reader(place, database).category("sale", columns=["type", "time"])


def _typed(place: Place, database: str) -> DataFrame:
    fields = ", ".join(":".join(one.split()) for one in FIELDS.split(","))
    return _reader(place, database).category("sale", f"data struct<{fields}>").select("data.*")


def _reader(place: Place, database: str) -> FrameReader:
    with penstock.connect(place.url(database)) as store:
        return Frames(store, place.spark).read
