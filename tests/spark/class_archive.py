"""An archive of the Java classes that Spark loads, made once and mapped by every JVM of the tests.

A JVM that maps it starts Spark and runs a first job with a third of the processor time. Where it
does not fit (another Java, other jars) the JVM ignores it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pyspark

from penstock.spark.java import find_java_home

FOLDER = Path(__file__).parents[2] / ".cache"
#: what reads the options: a session, and the processes of a cluster
VARIABLES = ("SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS")

#: loads the classes that most tests need
_PROGRAM = """
from penstock.spark import session
spark = session(master="local[1]", config={"spark.driver.memory": "1g"})
rows = spark.createDataFrame([(1, "a"), (2, "b")], "n long, text string")
rows = rows.selectExpr("n", "to_json(named_struct('n', n)) as data", "text")
rows = rows.where("get_json_object(data, '$.n') > 0")
rows.mapInArrow(lambda batches: batches, rows.schema).persist().collect()
rows.groupBy("text").agg({"n": "sum"}).orderBy("text").toArrow()
rows.join(rows, "n").count()

from pyspark.sql.datasource import (
    DataSource, DataSourceReader, DataSourceWriter, SimpleDataSourceStreamReader,
    DataSourceStreamWriter, WriterCommitMessage,
)

class Reader(DataSourceReader):
    def read(self, partition):
        yield (1,)

class StreamReader(SimpleDataSourceStreamReader):
    def initialOffset(self):
        return {"n": 0}
    def read(self, start):
        return iter([(1,)] if start["n"] == 0 else []), {"n": 1}
    def readBetweenOffsets(self, start, end):
        return iter([(1,)])

class Writer(DataSourceWriter):
    def write(self, rows):
        list(rows)
        return WriterCommitMessage()

class StreamWriter(DataSourceStreamWriter):
    write = Writer.write

class Source(DataSource):
    def schema(self):
        return "n int"
    def reader(self, schema):
        return Reader()
    def simpleStreamReader(self, schema):
        return StreamReader()
    def writer(self, schema, overwrite):
        return Writer()
    def streamWriter(self, schema, overwrite):
        return StreamWriter()

spark.dataSource.register(Source)
spark.read.format("Source").load().write.format("Source").mode("append").save()
coming = spark.readStream.format("Source").load().writeStream.format("Source")
coming = coming.option("checkpointLocation", "checkpoint").trigger(availableNow=True)
coming.start().awaitTermination()
"""


@cache
def use() -> None:
    """Have the JVMs that are started from now on map the archive, which is made if need be."""
    path = FOLDER / f"{_key()}.jsa"
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / "class-archive.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of two workers, one makes it
        os.environ["SPARK_HOME"] = str(_home_without_zip(FOLDER / "spark-home"))
        if not path.exists():
            _make(path)
    if path.exists():
        for name in VARIABLES:
            os.environ[name] += f" -XX:SharedArchiveFile={path} -Xlog:disable"


def _home_without_zip(home: Path) -> Path:
    """Return an installation of Spark whose Python processes import pyspark as it is installed.

    Spark puts `python/lib/pyspark.zip` of its installation first on their path. Python compiles
    what it imports from a zip file in each process, which takes half a second of the processor.
    """
    home.mkdir(exist_ok=True)
    for name in ("bin", "jars", "sbin"):
        link, target = home / name, Path(pyspark.__file__).parent / name
        if link.resolve() != target.resolve():
            link.unlink(missing_ok=True)
            link.symlink_to(target)
    return home


def _make(path: Path) -> None:
    """Run Spark and let its JVM write the archive at its end; without one, tests are slower."""
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        made = Path(folder) / "classes"
        options = f"{os.environ['SPARK_SUBMIT_OPTS']} -XX:ArchiveClassesAtExit={made} -Xlog:disable"
        subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            env={**os.environ, "SPARK_SUBMIT_OPTS": options},
            cwd=folder,
            capture_output=True,
            check=False,
        )
        if made.exists():
            made.rename(path)


def _key() -> str:
    """What an archive fits to."""
    java = (find_java_home() / "bin" / "java").resolve()
    facts = f"{java} {java.stat().st_mtime} {pyspark.__version__} {pyspark.__file__} {FOLDER}"
    facts += _PROGRAM
    return f"spark-classes-{hashlib.sha256(facts.encode()).hexdigest()[:16]}"
