"""Upkeep: fewer files and snapshots, the same rows, and no file removed that somebody needs."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from pyarrow import parquet
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.types import StringType

from penstock.errors import WrongTable
from penstock.lake.catalog_rows import drop_table
from penstock.lake.compaction import Compacted, compact
from penstock.lake.declaration import lake_table
from penstock.lake.store_catalog import OWNER, StoreCatalog
from penstock.lake.transactions import TableTransaction
from penstock.lake.unused import remove_dropped_tables, remove_unused_files
from penstock.lake.upkeep import (
    EVERY,
    expire_snapshots,
    maintain,
    maintain_when_due,
)
from tests.lake.sales import (
    NAME,
    another,
    change,
    create,
    files_in,
    lake,
    never_committed,
    numbers,
    path_of,
    rows,
    sell,
)
from tests.lake.writing import lake_writer

__all__ = ["lake"]
NOW = timedelta(0)
DAY = timedelta(days=1)


def file_count(table: Table) -> int:
    return len(list(table.scan().plan_files()))


def unused_since(table: Table) -> Path:
    return Path(path_of(table.location())) / "metadata/_penstock_unused.json"


def let_a_day_pass(table: Table) -> None:
    """Make what was seen unused so far have been seen a day earlier."""
    seen = json.loads(unused_since(table).read_text())
    for path, at in seen.items():
        seen[path] = f"2026-01-01{at[10:]}"
    unused_since(table).write_text(json.dumps(seen))


# Fewer files


def test_small_files_of_a_partition_become_one_and_the_rows_stay(lake: StoreCatalog) -> None:
    create(lake, partition_by="day", sort_by="n desc")
    for n in range(6):
        sell(lake, n, day=date(2026, 1, 1 + n % 2))

    done = compact(lake, NAME, small_files=3)

    table = lake.load_table(NAME)
    tasks = list(table.scan().plan_files())
    assert done == Compacted(6, 2)
    assert numbers(table) == [0, 1, 2, 3, 4, 5]
    assert [one.file.record_count for one in tasks] == [3, 3]
    assert summary(table)["operation"] == Operation.REPLACE
    assert summary(table)["total-records"] == "6"


def summary(table: Table) -> Summary:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    return snapshot.summary


def test_few_small_files_and_large_ones_are_left_alone(lake: StoreCatalog) -> None:
    create(lake)
    for n in range(4):
        sell(lake, n)

    assert compact(lake, NAME, small_files=5) == Compacted()
    assert len(lake.load_table(NAME).snapshots()) == 4


def test_a_larger_file_is_not_written_again_with_small_ones(lake: StoreCatalog) -> None:
    create(lake)
    sell(lake, *range(5000))
    for n in range(4):
        sell(lake, n)

    assert compact(lake, NAME, small_files=4) == Compacted(4, 1)


def test_a_transaction_has_all_changes_that_are_staged_in_it(lake: StoreCatalog) -> None:
    transaction = TableTransaction(create(lake))

    for name in ("first", "second"):
        transaction.set_properties({name: "yes"})
        assert transaction.table_metadata.properties[name] == "yes"
    transaction.commit_transaction()

    assert {"first", "second"} <= set(lake.load_table(NAME).properties)


def test_the_manifests_of_many_overwrites_are_merged(lake: StoreCatalog) -> None:
    create(lake, partition_by="item")
    for n in range(4):
        sell(lake, n)
    for n in range(3):
        lake.load_table(NAME).delete(f"n = {n}")
    before = lake.load_table(NAME)

    compact(lake, NAME, manifests=2)

    after = lake.load_table(NAME)
    assert numbers(after) == [3]
    assert len(manifests(after)) == 1 < len(manifests(before))
    assert summary(after)["total-records"] == "1"


def manifests(table: Table) -> list[object]:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return list(snapshot.manifests(table.io))


def once(action: Callable[[], None]) -> Callable[[int, int], None]:
    """Return a callback that does something when it is called for the first time."""
    actions = [action]

    def call(done: int, of: int) -> None:
        if actions:
            actions.pop()()

    return call


def test_what_a_step_commits_during_compaction_is_not_lost(
    lake: StoreCatalog, database_url: str, tmp_path: Path
) -> None:
    create(lake)
    for n in range(3):
        sell(lake, n)
    step = another(database_url, tmp_path)
    written = files_in(lake.load_table(NAME).location())

    compact(lake, NAME, small_files=2, progress=once(lambda: sell(step, 3)))

    table = lake.load_table(NAME)
    data = [one for one in files_in(table.location()) - written if one.endswith(".parquet")]
    assert numbers(table) == [0, 1, 2, 3]
    assert file_count(table) == 2
    assert len(data) == 2  # of the step, and the compacted one: which was written once


def test_a_row_that_a_step_removes_during_compaction_does_not_return(
    lake: StoreCatalog, database_url: str, tmp_path: Path
) -> None:
    create(lake)
    for n in range(3):
        sell(lake, n)
    step = another(database_url, tmp_path)

    def remove() -> None:
        step.load_table(NAME).delete("n = 1")

    compact(lake, NAME, small_files=2, progress=once(remove))

    table = lake.load_table(NAME)
    assert numbers(table) == [0, 2]
    assert file_count(table) == 1
    assert remove_unused_files(lake, NAME, NOW).kept == 0


@pytest.mark.parametrize("key", [{}, {"key": "n"}])
def test_a_step_that_was_staged_before_a_compaction_is_committed_after_it(
    lake: StoreCatalog, database_url: str, key: dict[str, str]
) -> None:
    create(lake, **key)
    for n in range(3):
        sell(lake, n)
    with psycopg.connect(database_url, autocommit=True) as connection:
        step = change(lake, connection, *([1, 3] if key else [3]), **key)
        step.stage()
        compact(lake, NAME, small_files=2)
        with connection.transaction():
            step.commit()

    table = lake.load_table(NAME)
    assert numbers(table) == [0, 1, 2, 3]
    assert file_count(table) == 2


def test_columns_that_came_later_are_null_in_what_is_compacted(lake: StoreCatalog) -> None:
    create(lake)
    sell(lake, 1)
    with lake.load_table(NAME).update_schema() as update:
        update.add_column("note", StringType())
    with_note = rows(2).append_column("note", pa.array(["note"]))
    lake.load_table(NAME).append(with_note)

    compact(lake, NAME, small_files=2)

    found = lake.load_table(NAME).scan().to_arrow().sort_by("n")
    assert found["note"].to_pylist() == [None, "note"]


def test_what_is_compacted_stays_null_or_empty(database_url: str, tmp_path: Path) -> None:
    parts = pa.list_(pa.struct([("name", pa.string())]))
    columns = pa.schema({"n": pa.int64(), "parts": parts})
    with lake_writer(database_url, tmp_path) as writer:
        for n, value in enumerate((None, [], [None], [{"name": None}])):
            row = pa.Table.from_pylist([{"n": n, "parts": value}], columns)
            writer.write(lake_table(NAME), row)
        before = stored(writer.catalog)

        compact(writer.catalog, NAME, small_files=2)

        assert stored(writer.catalog) == before
        assert before == [None, [], [None], [{"name": None}]]


def stored(lake: StoreCatalog) -> list[object]:
    """Return a column as it is in the files."""
    files = [path_of(one.file.file_path) for one in lake.load_table(NAME).scan().plan_files()]
    found = pa.concat_tables(parquet.read_table(one) for one in files).sort_by("n")
    return list(found["parts"].to_pylist())


# Fewer snapshots


def test_old_snapshots_are_expired_and_too_many(lake: StoreCatalog) -> None:
    create(lake)
    for n in range(5):
        sell(lake, n)

    too_many = expire_snapshots(lake, NAME, DAY, 3)
    old = expire_snapshots(lake, NAME, NOW, 3)

    table = lake.load_table(NAME)
    assert (too_many, old) == ((2, ()), (2, ()))
    assert len(table.snapshots()) == 1
    assert numbers(table) == [0, 1, 2, 3, 4]


def test_a_snapshot_with_a_tag_stays(lake: StoreCatalog) -> None:
    create(lake)
    sell(lake, 1)
    table = lake.load_table(NAME)
    kept = table.current_snapshot()
    assert kept is not None
    table.manage_snapshots().create_tag(kept.snapshot_id, "audit").commit()
    sell(lake, 2)

    maintain(lake, NAME, keep_snapshots_for=NOW, keep_files_for=NOW)

    found = lake.load_table(NAME).scan(snapshot_id=kept.snapshot_id, selected_fields=("n",))
    assert found.to_arrow()["n"].to_pylist() == [1]


# No files that nobody needs


def test_files_of_steps_that_never_committed_are_removed_and_no_others(lake: StoreCatalog) -> None:
    create(lake, partition_by="day")
    sell(lake, 1, 2)
    sell(lake, 3, day=date(2026, 2, 1))
    table = lake.load_table(NAME)
    before = files_in(table.location())
    left = never_committed(lake, 4, 5)

    removed = remove_unused_files(lake, NAME, NOW)

    assert removed.files == len(left) == 1
    assert removed.size_in_bytes > 0
    assert files_in(table.location()) == before
    assert numbers(lake.load_table(NAME)) == [1, 2, 3]


def test_a_file_is_removed_when_it_was_unused_for_long_enough(lake: StoreCatalog) -> None:
    table = create(lake)
    (left,) = never_committed(lake, 1)

    first = remove_unused_files(lake, NAME, DAY)
    again = remove_unused_files(lake, NAME, DAY)
    let_a_day_pass(table)
    (young,) = never_committed(lake, 2)
    last = remove_unused_files(lake, NAME, DAY)

    assert (first.files, first.kept) == (again.files, again.kept) == (0, 1)
    assert (last.files, last.kept) == (1, 1)
    assert not Path(left).exists()
    assert Path(young).exists()


def test_a_file_that_was_seen_unused_and_is_committed_then_stays(lake: StoreCatalog) -> None:
    table = create(lake)
    (slow,) = never_committed(lake, 1)
    remove_unused_files(lake, NAME, DAY)
    let_a_day_pass(table)
    lake.load_table(NAME).add_files([f"file://{slow}"])

    removed = remove_unused_files(lake, NAME, DAY)

    assert removed.files == 0
    assert numbers(lake.load_table(NAME)) == [1]


def test_a_reader_of_an_expired_snapshot_can_finish(lake: StoreCatalog) -> None:
    create(lake)
    for n in range(3):
        sell(lake, n)
    reading = lake.load_table(NAME)

    done = maintain(lake, NAME, small_files=2, keep_snapshots_for=NOW)

    assert (done.compacted_files, done.expired_snapshots) == (3, 3)
    assert numbers(reading) == [0, 1, 2]
    let_a_day_pass(reading)
    assert maintain(lake, NAME).removed_files >= 3
    with pytest.raises(FileNotFoundError):
        numbers(reading)
    assert numbers(lake.load_table(NAME)) == [0, 1, 2]


def test_the_folder_of_a_table_of_another_database_is_left_alone(
    lake: StoreCatalog, new_database: Callable[[str], str], tmp_path: Path
) -> None:
    table = create(lake)
    sell(lake, 1)
    copy = another(new_database("penstock"), tmp_path)
    copy.create_namespace("shop")
    copy.register_table(NAME, lake.load_table(NAME).metadata_location)
    sell(lake, 2)
    before = files_in(table.location())

    removed = remove_unused_files(copy, NAME, NOW)

    assert (removed.files, removed.kept) == (0, 0)
    assert files_in(table.location()) == before


def test_nothing_is_removed_if_the_files_of_a_table_are_not_found_in_its_folder(
    lake: StoreCatalog, caplog: pytest.LogCaptureFixture
) -> None:
    table = create(lake)
    sell(lake, 1)
    (left,) = never_committed(lake, 2)
    (task,) = lake.load_table(NAME).scan().plan_files()
    Path(path_of(task.file.file_path)).rename(Path(left).with_name("elsewhere.parquet"))

    remove_unused_files(lake, NAME, NOW)

    assert Path(left).exists()
    assert f"some of its files are not in {table.location()}" in caplog.text


def test_the_files_of_a_dropped_table_go_later_and_those_of_others_never(
    lake: StoreCatalog, database_url: str
) -> None:
    old, live = create(lake), create(lake, "shop.live")
    sell(lake, 1)
    sell(lake, 2, name="shop.live")
    foreign = create(lake, "shop.foreign")
    with foreign.transaction() as change:
        change.set_properties({OWNER: "of another database"})
    with psycopg.connect(database_url) as connection:
        for name in (NAME, "shop.foreign"):
            drop_table(connection, name)

    (first,) = remove_dropped_tables(lake, DAY).values()
    let_a_day_pass(old)
    (last,) = remove_dropped_tables(lake, DAY).values()

    assert (first.files, last.kept) == (0, 0)
    assert first.kept == last.files > 2
    assert not Path(path_of(old.location())).exists()
    assert files_in(foreign.location())
    assert numbers(lake.load_table("shop.live")) == [2]
    assert remove_dropped_tables(lake, DAY) == {}
    assert live.location() != old.location()


def test_a_table_in_a_catalog_of_another_name_is_not_dropped(
    lake: StoreCatalog, database_url: str
) -> None:
    create(lake)
    sell(lake, 1)
    with psycopg.connect(database_url) as connection:
        connection.execute("update iceberg_tables set catalog_name = 'spark'")

    assert remove_dropped_tables(lake, NOW) == {}


# By itself


def test_the_cost_of_a_commit_stays_the_same(lake: StoreCatalog) -> None:
    create(lake)
    lake.load_table(NAME).transaction().set_properties({EVERY: "5"}).commit_transaction()
    for n in range(30):
        sell(lake, n)
        maintain_when_due(lake, lake.load_table(NAME), max_snapshots=10)

    table = lake.load_table(NAME)
    assert numbers(table) == list(range(30))
    assert len(table.snapshots()) <= 15
    assert len(table.metadata.metadata_log) <= 20
    assert len(manifests(table)) <= 21
    assert file_count(table) <= 21


def test_upkeep_is_due_after_each_so_many_commits(lake: StoreCatalog) -> None:
    create(lake)
    lake.load_table(NAME).transaction().set_properties({EVERY: "3"}).commit_transaction()
    due = []
    for n in range(7):
        sell(lake, n)
        due.append(maintain_when_due(lake, lake.load_table(NAME)) is not None)

    assert due == [False, False, True, False, False, True, False]


def test_the_commit_of_a_step_is_followed_by_upkeep(lake: StoreCatalog, database_url: str) -> None:
    create(lake)
    lake.load_table(NAME).transaction().set_properties({EVERY: "20"}).commit_transaction()
    for n in range(19):
        sell(lake, n)

    with psycopg.connect(database_url, autocommit=True) as connection:
        step = change(lake, connection, 19)
        step.stage()
        with connection.transaction():
            step.commit()
        before = file_count(lake.load_table(NAME))
        step.committed()

    assert (before, file_count(lake.load_table(NAME))) == (20, 1)
    assert numbers(lake.load_table(NAME)) == list(range(20))


def test_upkeep_that_fails_is_logged_and_left_for_later(
    lake: StoreCatalog, caplog: pytest.LogCaptureFixture
) -> None:
    create(lake)
    lake.load_table(NAME).transaction().set_properties({EVERY: "often"}).commit_transaction()
    sell(lake, 1)

    with caplog.at_level(logging.WARNING):
        done = maintain_when_due(lake, lake.load_table(NAME))

    assert done is None
    assert "the upkeep of shop.sale is left for later" in caplog.text
    assert "'often'" in caplog.text


def test_a_table_that_does_not_exist_is_named_with_those_that_do(lake: StoreCatalog) -> None:
    create(lake)
    create(lake, "shop.europe.sale")

    with pytest.raises(WrongTable, match=r"shop.sales does not exist; there are shop.europe.sale"):
        maintain(lake, "shop.sales")
