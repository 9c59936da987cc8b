"""Where the comparisons with Spark take place: a session, a database, and a way in for JDBC."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import DataFrame, DataFrameReader, DataFrameWriter, SparkSession

from bench.measuring import tell
from bench.server import Server
from bench.spark.driver import MISSING, find_driver
from penstock.spark import session

MASTER = "local[2]"
LOG = "message_store.messages"
FETCH = 10_000  # rows: by default all of a partition come before the first, and 1,000 are sent


@dataclass(frozen=True)
class Place:
    """A session, the server, and whether there is a JDBC driver."""

    spark: SparkSession
    server: Server
    has_jdbc: bool

    @property
    def notes(self) -> list[str]:
        """What a reader has to know if there is no JDBC."""
        return [] if self.has_jdbc else [MISSING]

    def url(self, database: str) -> str:
        """Return the URL of a database, over TCP as for JDBC."""
        return self.server.url_over_tcp(database)

    def read(self, database: str) -> DataFrameReader:
        """Return a reader of ours."""
        return self.spark.read.format("penstock").option("url", self.url(database))

    def write(self, frame: DataFrame, database: str) -> DataFrameWriter:
        """Return a writer of ours."""
        return frame.write.format("penstock").option("url", self.url(database)).mode("append")

    def jdbc(self, database: str) -> dict[str, str]:
        """Return the options of Spark's JDBC, for reading and for writing."""
        address = self.url(database).partition("//")[2].partition("@")[2]
        return {
            "url": f"jdbc:postgresql://{address}",
            "user": "postgres",
            "driver": "org.postgresql.Driver",
            "fetchsize": str(FETCH),
            "stringtype": "unspecified",  # so that text becomes jsonb
        }

    def jdbc_append(self, frame: DataFrame, database: str, table: str) -> None:
        """Append a frame to a table by JDBC, with what Spark and the driver document as fast."""
        options = {
            **self.jdbc(database),
            "dbtable": table,
            "batchsize": str(FETCH),
            "reWriteBatchedInserts": "true",
        }
        frame.write.format("jdbc").options(**options).mode("append").save()

    def jdbc_log(
        self, database: str, messages: int, partitions: int = 4, table: str = LOG
    ) -> DataFrame:
        """Return a log, or a query of it, by JDBC, in so many ranges of its primary key."""
        return (
            self.spark.read.format("jdbc")
            .options(**self.jdbc(database), dbtable=table)
            .options(partitionColumn="global_position", lowerBound=1, upperBound=messages)
            .options(numPartitions=partitions)
            .load()
        )


@contextmanager
def spark_place(server: Server, **config: str) -> Iterator[Place]:
    """Start Spark as a user would, with the JDBC driver if there is one."""
    driver = find_driver()
    if driver is None:
        print(MISSING)
    else:
        config["spark.jars"] = str(driver)
    tell("starting Spark")
    spark = session("bench", master=MASTER, config=config)
    try:
        yield Place(spark, server, driver is not None)
    finally:
        spark.stop()


def drain(frame: DataFrame) -> float:
    """Take every row of a frame and keep none; return the seconds that took."""
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began
