"""Runs processors that write to tables of the lake, and reads what they have written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession

from penstock import Message, Store
from penstock.lake.store_catalog import open_catalog
from penstock.pipeline import Pipeline
from tests.lake.writing import other_catalog
from tests.pipeline.steps.running import Harness

#: the fields of messages, as columns, with what orders them
FIELDS = "n bigint, part string, v string"


class LakeHarness(Harness):
    """A harness with a warehouse."""

    def __init__(self, store: Store, spark: SparkSession, warehouse: Path) -> None:
        super().__init__(store, spark)
        self.warehouse = warehouse
        self.catalog = open_catalog(store.settings)

    def send(self, *rows: dict[str, Any], queue: str = "sale") -> None:
        """Write messages, each to a stream of its own."""
        for number, data in enumerate(rows):
            self.store.write_messages(f"{queue}-{number}", [Message("Sold", data)])

    def sent(self, queue: str = "sale") -> list[dict[str, Any]]:
        """Return the messages of a queue, as rows."""
        keys = ("n", "part", "v")
        return [
            {**{key: one.data.get(key) for key in keys}, "global_position": one.global_position}
            for one in self.messages(queue)
        ]

    def table(self, name: str) -> Table:
        """Return a table, as somebody opens it who has pyiceberg and no Penstock."""
        return other_catalog(self.database.settings.conninfo()).load_table(name)

    def lake_rows(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of a table, in the order of the log."""
        rows = self.table(name).scan().to_arrow().to_pylist()
        return sorted(rows, key=lambda one: json.dumps(one, default=str, sort_keys=True))

    def files(self) -> set[str]:
        """Return the data files in the warehouse."""
        return {str(one) for one in self.warehouse.rglob("*.parquet")}


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows in the order of `LakeHarness.lake_rows`."""
    return sorted(rows, key=lambda one: json.dumps(one, default=str, sort_keys=True))


def sales() -> Pipeline:
    """Return a pipeline that knows the queue `sale`."""
    pipe = Pipeline("shop")
    pipe.schema("sale", FIELDS)
    return pipe


def fields(sale: DataFrame) -> DataFrame:
    """Return the fields of messages as columns, in two tasks where executors write."""
    return sale.select("data.*", "global_position").repartition(2, "n")
