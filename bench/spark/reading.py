"""Reading the whole log: all columns, and three typed fields of its data."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from bench.measuring import Contender, measure
from bench.results import Comparison, Figure, Ratio, ratio
from bench.spark.place import FETCH, Place, drain
from bench.spark.sales import FIELDS

NOTE = (
    "{messages:,} messages of one category, read in one Spark session with two cores, over TCP, "
    "into the noop sink. Ours finds the end of the read and cuts its partitions by a sample; "
    f"JDBC is told the range of the primary key, and fetches {FETCH:,} rows at a time."
)
TYPED_NOTE = (
    "Ours reads `data` as a struct that PostgreSQL fills. JDBC does as well as it can when its "
    "dbtable is a query that takes the fields out of the JSON: that is what the aim is against. "
    "The other way, the column `data` and Spark's from_json, is shown beside it. Four partitions."
)
#: Spark's JDBC takes a query in parentheses where a table could stand
FIELDS_IN_SQL = """(
  select global_position, metadata, (data->>'amount')::float8 as amount,
    data->>'currency' as currency, data->>'customer' as customer
  from message_store.messages
) fields"""


def typed(place: Place, database: str, messages: int, rounds: int) -> Comparison:
    """Measure rows per second of three typed fields."""
    contenders = [_contender("ours", messages, partial(_our_fields, place, database))]
    if place.has_jdbc:
        in_sql = partial(_fields_in_sql, place, database, messages)
        in_spark = partial(_fields_in_spark, place, database, messages)
        contenders.append(_contender("JDBC, fields by SQL", messages, in_sql))
        contenders.append(_contender("JDBC and from_json", messages, in_spark))
    title = "Spark reads three typed fields of data"
    figures = list(measure(title, "rows/s", contenders, rounds).values())
    notes = [NOTE.format(messages=messages), TYPED_NOTE, *place.notes]
    return Comparison(title, figures, against(figures, at_least=1), notes, _sizes(messages))


def against(figures: list[Figure], *, at_least: float | None) -> list[Ratio]:
    """Return how the first compares with the others; the aim is against the best of them."""
    ours, *theirs = figures
    return [
        ratio(ours, one, at_least=None if number else at_least) for number, one in enumerate(theirs)
    ]


def all_columns(
    place: Place, database: str, messages: int, rounds: int, partitions: int
) -> Comparison:
    """Measure rows per second; with four partitions we are to be level with JDBC."""
    contenders = [_contender("ours", messages, partial(_ours, place, database, partitions))]
    if place.has_jdbc:
        theirs = partial(place.jdbc_log, database, messages, partitions)
        contenders.append(_contender("JDBC", messages, theirs))
    title = f"Spark reads all columns, {partitions} partition{'s' if partitions > 1 else ''}"
    figures = list(measure(title, "rows/s", contenders, rounds).values())
    aim = 1.0 if partitions == 4 else None
    notes = [NOTE.format(messages=messages), *place.notes]
    return Comparison(title, figures, against(figures, at_least=aim), notes, _sizes(messages))


def _sizes(messages: int) -> str:
    return f"{messages:,} messages"


def _contender(name: str, messages: int, frame: Callable[[], DataFrame]) -> Contender:
    return Contender(name, lambda: messages / drain(frame()))


def _ours(place: Place, database: str, partitions: int) -> DataFrame:
    return place.read(database).options(category="sale", partitions=partitions).load()


def _our_fields(place: Place, database: str) -> DataFrame:
    reader = place.read(database).options(category="sale", partitions=4)
    return reader.schema(f"data struct<{_struct(FIELDS)}>").load().select("data.*")


def _fields_in_sql(place: Place, database: str, messages: int) -> DataFrame:
    names = [one.split()[0] for one in FIELDS.split(",")]
    return place.jdbc_log(database, messages, 4, FIELDS_IN_SQL).select(*names)


def _fields_in_spark(place: Place, database: str, messages: int) -> DataFrame:
    log = place.jdbc_log(database, messages, 4)
    return log.select(f.from_json("data", FIELDS).alias("data")).select("data.*")


def _struct(fields: str) -> str:
    """Return fields as a struct has them: with colons."""
    return ", ".join(":".join(one.split()) for one in fields.split(","))
