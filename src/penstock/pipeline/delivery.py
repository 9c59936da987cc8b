"""A step as its function sees it: its hash, a source's cursor, and what it writes besides messages.

Upserts are applied in the transaction that commits the step (see `tables`). Files are not part of a
transaction, and still readers see those of a committed step once:

- A step writes its files to a folder of the attempt, under `_penstock` in the user's folder.
  Readers such as Spark, Hive and Arrow skip names that begin with `_`.
- The transaction that commits the step records in its Attempt where the files are and where they
  belong. Then they are moved into place, under a name with the pipeline, the processor, the
  database, the generation and the step's hash in it.
- A run that is killed between the two leaves the record, and the next run moves the files. An
  attempt that fails leaves files that no reader sees. They are removed after a day, and not at
  once, since a run that lost its lock may still commit them.
- What was written before a start from scratch is removed when the processor runs next.

On a file system, a move is a rename, in one moment. On an object store files are copied one after
the other, and a reader may see some of them before the others.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import msgspec
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import ValidationError
from penstock.pipeline.snapshot import Snapshot
from penstock.pipeline.tables import Upsert, upsert_of

ATTEMPTS = "_penstock"
KEPT_MILLISECONDS = 24 * 60 * 60 * 1000


@dataclass
class Delivery:
    """One step, as its function sees it. `hash` stays the same whenever the step is run again."""

    pipeline: str
    snapshot: Snapshot
    #: which of the `alts` this step reads; the input of any other processor
    input: str | None = None
    upserts: list[Upsert] = field(default_factory=list)
    files: list[Files] = field(default_factory=list)
    advanced: bool = False
    #: returns what tells this database from others; None: this attempt keeps nothing
    database: Callable[[], str] | None = None
    #: what was passed to `advance`
    next_cursor: Any = None

    @property
    def hash(self) -> str:
        """The name of this step. Store it beside what you write, to write it once."""
        return self.snapshot.hash

    @property
    def processor(self) -> str:
        """The name of the processor."""
        return self.snapshot.processor

    @property
    def cursor(self) -> Any:
        """Of a source: what it passed to `advance` in its last step; None in its first."""
        return self.snapshot.cursor

    def advance(self, cursor: Any) -> None:
        """Of a source: where to continue after this step. Committed with the step's messages."""
        try:
            plain = msgspec.to_builtins(cursor, str_keys=True)
            json.dumps(plain, allow_nan=False)
            self.next_cursor = msgspec.json.decode(msgspec.json.encode(cursor))
        except (TypeError, ValueError, OverflowError) as error:
            raise ValidationError("cursor", cursor, f"what JSON can hold: {error}") from None
        self.advanced = True

    def upsert(
        self, frame: DataFrame, table: str, *, key: str | Sequence[str], add: Sequence[str] = ()
    ) -> None:
        """Merge the frame's rows into a table of this database, in the transaction of the step.

        So they are there exactly once. A row whose key exists replaces the old one, except for the
        columns in `add`, whose values are added. The table is created if there is none. The frame
        is evaluated after the function has returned, together with what it returns.
        """
        self.upserts.append(upsert_of(frame, table, key, add))

    def write_files(self, frame: DataFrame, folder: str, *, format: str = "parquet") -> str:
        """Write the frame's rows to files, and return where they will be.

        They are in `folder`, under the step's own name, once the step is committed: readers see
        the files of each step exactly once, however often it was run.
        """
        if not isinstance(folder, str) or not folder:
            raise ValidationError("folder", folder, "the path of a folder")
        if self.database is None:
            frame.write.format("noop").mode("overwrite").save()
            return folder
        name = file_prefix(self.pipeline, self.processor, self.database())
        name += f"{self.snapshot.generation}.{self.hash}"
        if calls := sum(one.folder == folder for one in self.files):
            name += f".{calls + 1}"
        root = folder.rstrip("/") or "/"
        attempt = f"{root}/{ATTEMPTS}/{name.partition('=')[2]}.{uuid4().hex}"
        files = Files(folder, attempt, f"{root}/{name}")
        frame.write.mode("overwrite").format(format).save(files.attempt)
        self.files.append(files)
        return files.place


@dataclass(frozen=True)
class Files:
    """The files of one call: where they are until the step is committed, and where they belong."""

    folder: str
    attempt: str
    place: str


def file_prefix(pipeline: str, processor: str, database: str) -> str:
    """Return what the names of a processor's files begin with."""
    return f"delivery={pipeline}.{processor}.{database}."


def move_into_place(spark: SparkSession, files: Iterable[Files]) -> None:
    """Make files visible to readers. Those that are in place already stay there."""
    for one in files:
        system, attempt = _file_system(spark, one.attempt)
        if not system.exists(attempt):
            continue  # they were moved before
        _, place = _file_system(spark, one.place)
        if system.exists(place) or not system.rename(attempt, place):
            _move_each(spark, one)


def remove_older(spark: SparkSession, folders: Iterable[str], prefix: str, generation: int) -> None:
    """Remove what a processor wrote before it started from scratch, and attempts of long ago."""
    pattern = re.compile(re.escape(prefix) + r"(\d+)\.[0-9a-f]+(\.\d+)?")
    oldest = time.time() * 1000 - KEPT_MILLISECONDS
    for folder in folders:
        for status in _listed(spark, folder):
            match = pattern.fullmatch(str(status.getPath().getName()))
            if match and int(match[1]) < generation:
                _delete(spark, str(status.getPath().toString()))
        for status in _listed(spark, f"{folder.rstrip('/')}/{ATTEMPTS}"):
            if status.getModificationTime() < oldest:
                _delete(spark, str(status.getPath().toString()))


def discard(spark: SparkSession, files: Sequence[Files]) -> None:
    """Remove the files of an attempt that will not be committed."""
    for one in files:
        _delete(spark, one.attempt)


def _move_each(spark: SparkSession, files: Files) -> None:
    """Move files one by one: a run that was killed has moved some of them."""
    system, place = _file_system(spark, files.place)
    system.mkdirs(place)
    for status in _listed(spark, files.attempt):
        _, target = _file_system(spark, f"{files.place}/{status.getPath().getName()}")
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
    assert spark._jvm is not None
    found = spark._jvm.org.apache.hadoop.fs.Path(path)
    settings = spark._jsparkSession.sessionState().newHadoopConf()
    return found.getFileSystem(settings), found
