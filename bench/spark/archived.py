"""Scanning history: the same messages in PostgreSQL, and in the files of the archive."""

from __future__ import annotations

import tempfile
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

#: of each stream the last message stays in the table
STREAMS = 1_000
NOTE = (
    "{messages:,} messages of one category in {streams:,} streams, read in one Spark session with "
    "two cores, four partitions, into the noop sink: from PostgreSQL over TCP, and from a twin of "
    "that log of which all but the last message of each stream are archived, in Parquet files on "
    "the same disk."
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
        for title, read, aim in (
            ("Spark scans the archive, all columns", _all, 5.0),
            ("Spark scans the archive, three typed fields", _typed, None),
        ):
            contenders = [
                Contender(name, partial(_rows_per_second, place, read, database, messages))
                for name, database in (("archive", archived), ("PostgreSQL", plain))
            ]
            files, table = measure(title, "rows/s", contenders, rounds).values()
            note = NOTE.format(messages=messages, streams=STREAMS)
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
    return messages / drain(read(place, database))


def _all(place: Place, database: str) -> DataFrame:
    return place.read(database).options(category="sale", partitions=4).load()


def _typed(place: Place, database: str) -> DataFrame:
    fields = ", ".join(":".join(one.split()) for one in FIELDS.split(","))
    reader = place.read(database).options(category="sale", partitions=4)
    return reader.schema(f"data struct<{fields}>").load().select("data.*")
