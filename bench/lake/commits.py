"""What a commit to a table costs after few commits, and after many: promise 6, no growth."""

from __future__ import annotations

import tempfile
import time
from functools import partial
from uuid import uuid4

import psycopg
import pyarrow as pa

from bench.measuring import Contender, measure, tell
from bench.results import Comparison, ratio
from bench.server import Server
from penstock.lake.changes import TableChange
from penstock.lake.create import prepare_table
from penstock.lake.declaration import LakeTable, lake_table
from penstock.lake.files import file_writer
from penstock.lake.store_catalog import StoreCatalog, open_catalog
from penstock.settings import Settings

DATABASE = "lake_commits"
FEW, MANY = 10, 1000
#: as many as there are from one round of upkeep to the next
COMMITS = 25
TITLE = "A commit to an Iceberg table, as commits pile up"
NOTES = [
    f"Milliseconds of one commit, the mean of {COMMITS}, of 10 rows each: data file, manifests, "
    "metadata, the transaction, and the upkeep that falls to these commits. Without Spark, on "
    "local files."
]
_ROWS = pa.table({"n": list(range(10)), "item": [f"item {n}" for n in range(10)]})


class Table:
    """A table and the connection on which it is committed to."""

    def __init__(self, lake: StoreCatalog, connection: psycopg.Connection[tuple[object, ...]]):
        self._lake = lake.on(connection)
        self._connection = connection
        self._declared: LakeTable = lake_table(f"bench.sale_{uuid4().hex}")

    def commit(self, times: int) -> float:
        """Commit as steps do, so many times; return the milliseconds of one."""
        began = time.perf_counter()
        for _ in range(times):
            table = prepare_table(self._lake, self._declared.name, self._declared, _ROWS.schema)
            files = list(file_writer(table).write(_ROWS.to_batches()))
            change = TableChange(self._lake, self._declared, table, files)
            change.stage()
            with self._connection.transaction():
                change.commit()
            change.committed()
        return (time.perf_counter() - began) * 1000 / times


def compare(server: Server, rounds: int, many: int = MANY) -> Comparison:
    """Measure milliseconds of a commit to a new table and to one with many commits."""
    url = server.ours(DATABASE, 0)
    with (
        tempfile.TemporaryDirectory() as folder,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        lake = open_catalog(Settings.load(url, warehouse=f"file://{folder}/lake"))
        old = Table(lake, connection)
        tell(f"committing {many:,} times")
        old.commit(many)
        contenders = [
            Contender(f"at {FEW} commits", partial(_on_new_table, lake, connection)),
            Contender(f"at {many:,} commits", partial(old.commit, COMMITS)),
        ]
        few, late = measure(TITLE, "ms", contenders, rounds).values()
    server.drop(DATABASE)
    return Comparison(TITLE, [few, late], [ratio(late, few, at_most=1.3)], NOTES)


def _on_new_table(lake: StoreCatalog, connection: psycopg.Connection[tuple[object, ...]]) -> float:
    table = Table(lake, connection)
    table.commit(FEW)
    return table.commit(COMMITS)
