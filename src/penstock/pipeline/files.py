"""Files of a step: seen by readers once the step is committed, and once only.

A step writes its files to a folder of the attempt's own, under `_penstock` in the user's folder;
readers such as Spark, Hive and Arrow pass over names that begin with `_`. The transaction that ends
the step records where they are and where they belong, in its Attempt. Then they are moved into
place, under a name that has the pipeline, the processor, the database, the generation and the
step's hash in it. A run that is killed between the two leaves the record, and whoever comes next
moves them. An attempt that fails leaves files that nobody reads, and that are removed after a day:
not at once, since a run that lost its lock may still be about to commit them.

What was written before a start from scratch is removed when the processor is next run.

On a file system, to move is to rename, in one moment. On an object store files are copied one after
the other, and a reader may see some of them before the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import psycopg
from pyspark.sql import SparkSession

from penstock.pipeline.snapshot import Snapshot

ATTEMPTS = "_penstock"
KEPT_MILLISECONDS = 24 * 60 * 60 * 1000


@dataclass(frozen=True)
class Files:
    """The files of one call: where they are until the step is committed, and where they belong."""

    folder: str
    attempt: str
    place: str

    def as_data(self) -> dict[str, str]:
        """Return what an Attempt keeps of them."""
        return {"folder": self.folder, "attempt": self.attempt, "place": self.place}


@dataclass(frozen=True)
class Naming:
    """How the folders of a processor's files are named."""

    pipeline: str
    processor: str
    database: str

    @property
    def prefix(self) -> str:
        """What all of them begin with."""
        return f"delivery={self.pipeline}.{self.processor}.{self.database}."

    def files(self, snapshot: Snapshot, folder: str, number: int) -> Files:
        """Return where the files of a call go: the first of a step, or another one."""
        call = f".{number}" if number > 1 else ""
        name = f"{self.prefix}{snapshot.generation}.{snapshot.hash}{call}"
        root = folder.rstrip("/") or "/"
        attempt = f"{root}/{ATTEMPTS}/{name.partition('=')[2]}.{uuid4().hex}"
        return Files(folder, attempt, f"{root}/{name}")


def database_id(connection: psycopg.Connection[Any]) -> str:
    """Return what tells this database from all others: its server's identifier and its own."""
    row = connection.execute(
        "select to_hex(c.system_identifier) || to_hex(d.oid::bigint)"
        " from pg_control_system() c, pg_database d where d.datname = current_database()"
    ).fetchone()
    assert row is not None
    return str(row[0])


def move_into_place(spark: SparkSession, files: Iterable[Files]) -> None:
    """Let readers see files. Those that are in their place already stay there."""
    for one in files:
        system, attempt = _file_system(spark, one.attempt)
        if not system.exists(attempt):
            continue  # they were moved before
        _, place = _file_system(spark, one.place)
        if system.exists(place) or not system.rename(attempt, place):
            _move_each(spark, one)


def remove_older(
    spark: SparkSession, folders: Iterable[str], naming: Naming, generation: int
) -> None:
    """Remove what a processor wrote before it started from scratch, and attempts of long ago."""
    pattern = re.compile(re.escape(naming.prefix) + r"(\d+)\.[0-9a-f]+(\.\d+)?")
    for folder in folders:
        for status in _listed(spark, folder):
            match = pattern.fullmatch(str(status.getPath().getName()))
            if match and int(match[1]) < generation:
                _delete(spark, str(status.getPath().toString()))
        attempts = _listed(spark, f"{folder.rstrip('/')}/{ATTEMPTS}")
        now = _jvm(spark).java.lang.System.currentTimeMillis()
        for status in attempts:
            if now - status.getModificationTime() > KEPT_MILLISECONDS:
                _delete(spark, str(status.getPath().toString()))


def discard(spark: SparkSession, files: Sequence[Files]) -> None:
    """Remove the files of an attempt that will not be committed."""
    for one in files:
        _delete(spark, one.attempt)


def _move_each(spark: SparkSession, files: Files) -> None:
    """Move files one by one: some were moved before, and the run was killed."""
    system, place = _file_system(spark, files.place)
    system.mkdirs(place)
    for status in _listed(spark, files.attempt):
        target = _jvm(spark).org.apache.hadoop.fs.Path(place, status.getPath().getName())
        if system.exists(target):
            system.delete(target, True)
        if not system.rename(status.getPath(), target):
            raise OSError(f"{status.getPath().toString()} could not be moved to {files.place}")
    _delete(spark, files.attempt)


def _listed(spark: SparkSession, folder: str) -> list[Any]:
    system, path = _file_system(spark, folder)
    return list(system.listStatus(path)) if system.exists(path) else []


def _delete(spark: SparkSession, path: str) -> None:
    system, found = _file_system(spark, path)
    system.delete(found, True)


def _file_system(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """Return the file system of a path as Spark has it, and the path there."""
    found = _jvm(spark).org.apache.hadoop.fs.Path(path)
    settings = spark._jsparkSession.sessionState().newHadoopConf()
    return found.getFileSystem(settings), found


def _jvm(spark: SparkSession) -> Any:
    assert spark._jvm is not None
    return spark._jvm
