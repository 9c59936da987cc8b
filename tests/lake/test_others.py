"""Tables of the lake as others open them, who have no Penstock."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from datetime import date
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict
from pyspark.sql import SparkSession
from sqlalchemy.engine import URL

from penstock.lake.store_catalog import StoreCatalog
from tests.lake.sales import NAME, create, lake, never_committed, sell

__all__ = ["lake"]

#: what runs in a process that has the libraries and no Penstock
PROGRAM = """
import importlib.util, json, sys
address, packages, name = sys.argv[1:]
sys.path.append(packages)  # by itself: no .pth file is read, and none that leads to Penstock
assert importlib.util.find_spec("penstock") is None
import duckdb, polars
from pyiceberg.catalog.sql import SqlCatalog

table = SqlCatalog("penstock", uri=address).load_table(name)
files = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
in_duckdb = duckdb.execute("select n from read_parquet(?) order by n", [files]).fetchall()
later = polars.col("day") > polars.date(2026, 1, 31)
print(json.dumps({
    "pyiceberg": sorted(table.scan().to_arrow()["n"].to_pylist()),
    "partition": sorted(table.scan("day = '2026-02-01'").to_arrow()["n"].to_pylist()),
    "polars": polars.scan_iceberg(table).filter(later).collect()["n"].to_list(),
    "duckdb": [n for (n,) in in_duckdb],
    "files": files,
}))
"""


@pytest.fixture
def seen_by_others(lake: StoreCatalog, database_url: str) -> dict[str, list[object]]:
    """What another process reads of a partitioned table, with files of a step that was killed."""
    create(lake, partition_by="month(day)")
    sell(lake, 1, 2)
    sell(lake, 3, day=date(2026, 2, 1))
    never_committed(lake, 4)
    parts = conninfo_to_dict(database_url)
    query = {"host": str(parts["host"]), "port": str(parts["port"])}
    address = URL.create(
        "postgresql+psycopg", str(parts["user"]), database=str(parts["dbname"]), query=query
    )
    text = address.render_as_string(hide_password=False)
    command = [sys.executable, "-I", "-S", "-c", PROGRAM]
    packages = sysconfig.get_path("purelib")
    run = subprocess.run(
        [*command, text, packages, NAME], check=True, stdout=subprocess.PIPE, text=True
    )
    return dict(json.loads(run.stdout.splitlines()[-1]))


def test_pyiceberg_polars_duckdb_and_spark_read_what_is_committed(
    seen_by_others: dict[str, list[object]], spark: SparkSession
) -> None:
    files = [str(Path(str(one))) for one in seen_by_others["files"]]
    in_spark = [row.n for row in spark.read.parquet(*files).orderBy("n").collect()]

    assert seen_by_others["pyiceberg"] == [1, 2, 3]
    assert seen_by_others["partition"] == seen_by_others["polars"] == [3]
    assert seen_by_others["duckdb"] == in_spark == [1, 2, 3]
