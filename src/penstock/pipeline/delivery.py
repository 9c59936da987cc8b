"""What a function is told about its step, and what it can ask to be done with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from pyspark.sql import DataFrame

from penstock.errors import ValidationError
from penstock.pipeline.files import Files, Naming
from penstock.pipeline.snapshot import Snapshot
from penstock.pipeline.upsert import Upsert, upsert_of


@dataclass
class Delivery:
    """One step, as its function sees it. `hash` stays the same whenever the step is run again."""

    pipeline: str
    snapshot: Snapshot
    #: which of the `alts` this step takes; the input of any other processor
    input: str | None = None
    upserts: list[Upsert] = field(default_factory=list)
    files: list[Files] = field(default_factory=list)
    advanced: bool = False
    #: tells this database from others; None: it is only tried, and nothing of it is kept
    database: Callable[[], str] | None = None
    _cursor: Any = None

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
        """Of a source: what it handed to `advance` in its last step; None in its first."""
        return self.snapshot.cursor

    def advance(self, cursor: Any) -> None:
        """Of a source: where to go on after this step. Kept with what the step publishes."""
        try:
            plain = msgspec.to_builtins(cursor, str_keys=True)
            json.dumps(plain, allow_nan=False)
            self._cursor = msgspec.json.decode(msgspec.json.encode(cursor))
        except (TypeError, ValueError, OverflowError) as error:
            raise ValidationError("cursor", cursor, f"what JSON can hold: {error}") from None
        self.advanced = True

    @property
    def next_cursor(self) -> Any:
        """What was handed to `advance`."""
        return self._cursor

    def upsert(
        self, frame: DataFrame, table: str, *, key: str | Sequence[str], add: Sequence[str] = ()
    ) -> None:
        """Put the frame's rows into a table of this database, in the transaction of the step.

        So they are there exactly once. A row whose key exists replaces the old one, except for the
        columns in `add`, whose values are added. The table is made if there is none. The frame is
        evaluated after the function has returned, together with what it returns.
        """
        self.upserts.append(upsert_of(frame, table, key, add))

    def write_files(self, frame: DataFrame, folder: str, *, format: str = "parquet") -> str:
        """Write the frame's rows to files, and return where they will be.

        They are in `folder`, under a name of this step's, once the step is committed: readers see
        the files of each step exactly once, however often it was run.
        """
        if not isinstance(folder, str) or not folder:
            raise ValidationError("folder", folder, "the path of a folder")
        if self.database is None:
            frame.write.format("noop").mode("overwrite").save()
            return folder
        naming = Naming(self.pipeline, self.processor, self.database())
        number = 1 + sum(one.folder == folder for one in self.files)
        files = naming.files(self.snapshot, folder, number)
        frame.write.mode("overwrite").format(format).save(files.attempt)
        self.files.append(files)
        return files.place
