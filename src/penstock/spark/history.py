"""A frame of messages: what is archived by Spark's own Parquet reader, the rest by our source.

A source in Python hands its rows to Spark through a pipe. For the files of the archive that is not
necessary: they are ordinary Parquet files, which Spark reads by itself, with its filters and only
the columns that are needed. So a frame that reaches into the archive is a union. One part has the
files of the archive as it is when the frame is loaded. The other reads all that was not in these
files then: the rows of the database, and messages that were archived since. Each message is in one
of the two, however much is archived before the frame is evaluated.

Spark reads local files only, since it would need a jar for others, and columns as they are stored:
typed fields are read as PostgreSQL reads them, see `read.archived`. Otherwise our source reads all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import DataType, StructType

from penstock.lake.archive_batches import files_of
from penstock.spark.connections import connected, find_database, run
from penstock.spark.options import LATEST, ReadOptions, read_options
from penstock.spark.read import planning
from penstock.spark.read.archive_rows import archived_range, find_archive
from penstock.spark.read.columns import MESSAGE
from penstock.spark.session import activate, separate_session
from penstock.spark.target import Target

Schema = str | StructType | None
#: no settings of the session may skip files, or shift times
_PARQUET = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "mergeSchema": "false",
    "datetimeRebaseMode": "CORRECTED",
}
#: how many tasks each of Spark's cores gets at least, so that all have about as much to do; and
#: what a task has at least
TASKS_PER_CORE, SMALLEST_TASK = 4, 1024 * 1024
#: in a path, Spark takes these for a pattern
_PATTERN = frozenset("{}[]*?\\")
#: no position is greater
_LAST = 2**63 - 1


def load_frame(spark: SparkSession, chosen: Mapping[str, str], schema: Schema = None) -> DataFrame:
    """Return the messages that options of the format `penstock` choose."""
    options = read_options(chosen)  # raises here, and not inside Spark
    activate(spark)
    loading = spark.read.format("penstock").options(**chosen)
    if schema is not None:
        loading = loading.schema(schema)
    found = _archived_files(options) if _is_readable(spark, options, schema) else None
    if found is None:
        return loading.load()
    location, paths = found
    rest = loading.option("withoutArchive", location).load()
    archived = _files(spark, paths)
    for condition in _conditions(options.target, options):
        archived = archived.where(condition)
    if rest.columns != archived.columns:  # Spark would analyse the whole plan once more
        archived = archived.select(rest.columns)
    return archived.union(rest)


def _is_readable(spark: SparkSession, options: ReadOptions, schema: Schema) -> bool:
    """Whether Spark itself could fill the columns from the files of an archive."""
    if options.target.attributes or options.after == LATEST or getattr(spark, "_jvm", None) is None:
        return False
    if schema is None:
        return True
    given = DataType.fromDDL(schema) if isinstance(schema, str) else schema
    return isinstance(given, StructType) and all(one in MESSAGE.fields for one in given.fields)


def _archived_files(options: ReadOptions) -> tuple[str, list[str]] | None:
    """Return where the archive is, and its files that the frame needs; None if Spark reads none."""
    database = find_database(options.url, **options.replica)
    target = options.signed_in(database.settings.lake_options).target
    after = target.before_first if options.after is None else int(options.after)
    until = _LAST if options.until is None else options.until
    with connected(database) as connection:
        planning.prepare(connection, target, database.where)
        location = run(connection, find_archive(target, after, until)) if after < until else None
    if location is None:
        return None
    paths = [one.path for one in files_of(archived_range(target, after, until, location))]
    is_local = all(one.startswith("file:") and not _PATTERN & set(one) for one in paths)
    return (location, paths) if paths and is_local else None


def _files(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return the messages of files, which Spark splits evenly.

    By default it makes as many tasks as there are cores, and counts each file as 4 MB more than it
    has. So a core with the large files works on when the others have nothing left to do. These are
    settings of a session, of which the files get their own. They are listed by the driver: for more
    than 32 Spark would run a job.
    """
    own = separate_session(spark)
    cores = spark.sparkContext.defaultParallelism
    for name, value in (
        ("spark.sql.files.minPartitionNum", TASKS_PER_CORE * cores),
        ("spark.sql.files.openCostInBytes", SMALLEST_TASK),
        ("spark.sql.sources.parallelPartitionDiscovery.threshold", len(paths)),
    ):
        own.conf.set(name, value)
    found = own.read.schema(MESSAGE).options(**_PARQUET).parquet(*paths)
    activate(spark)
    assert spark._jvm is not None
    datasets = spark._jvm.org.apache.spark.sql.classic.Dataset
    plan = found._jdf.queryExecution().analyzed()
    return DataFrame(datasets.ofRows(spark._jsparkSession, plan), spark)


def _conditions(target: Target, options: ReadOptions) -> list[Column]:
    """Return which messages of the files belong to the frame."""
    axis = f.col("position" if target.stream else "global_position")
    found = []
    if target.stream:
        found.append(f.col("stream_name") == target.stream)
    if options.after is not None:
        found.append(axis > int(options.after))
    if options.until is not None:
        found.append(axis <= options.until)
    if target.types:
        found.append(f.col("type").isin(list(target.types)))
    return found
