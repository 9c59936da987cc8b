"""A restored log grows over the same positions with other messages: those are other steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
from pyspark.sql import DataFrame

import penstock
from penstock.pipeline import Pipeline
from penstock.pipeline.connection import RunConnection
from penstock.pipeline.snapshot import Remembered, Snapshot, next_snapshot
from penstock.pipeline.state import open_processor
from tests.database.test_backup import dump_and_restore


def next_step(url: str) -> Snapshot:
    """Return what a processor of orders would read next."""
    pipe = Pipeline("shop")
    pipe.schema("order")

    @pipe.sink(inputs="order")
    def mail(order: DataFrame) -> None: ...

    with psycopg.connect(url, autocommit=True) as own:
        connection = RunConnection(own, "here")
        state = connection.run(open_processor("shop", "mail", "sink"))
        found = next_snapshot(connection, pipe.processors["mail"], state, Remembered())
    assert found is not None
    return found


def place_orders(url: str) -> None:
    with penstock.connect(url) as store:
        store.write_messages("order-1", [penstock.Message("Placed") for _ in range(3)])


def test_a_step_on_other_messages_has_another_hash(
    new_database: Callable[[str], str], tmp_path: Path
) -> None:
    original, restored = new_database("penstock"), new_database("empty")
    place_orders(original)
    dump_and_restore(original, restored, tmp_path / "dump")
    same = next_step(original).hash == next_step(restored).hash
    place_orders(original)
    place_orders(restored)

    before, after = next_step(original), next_step(restored)

    assert same
    assert before.ranges == after.ranges == {"order": (0, 6)}
    assert before.hash != after.hash


def test_a_snapshot_comes_back_as_it_was_written(new_database: Callable[[str], str]) -> None:
    url = new_database("penstock")
    place_orders(url)

    snapshot = next_step(url)

    assert Snapshot.from_data(snapshot.as_data()) == snapshot


def test_a_snapshot_of_0_1_keeps_its_hash() -> None:
    data = {"processor": "mail", "generation": 0, "ranges": {"order": [0, 6]}, "tables": {}}

    assert Snapshot.from_data(data).hash == "61b308dbc564a9fe275210ac6d935308"
