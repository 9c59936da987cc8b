"""What steps do to a table, in each mode, while others write to it too."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from pyarrow import parquet
from pyiceberg.table import FileScanTask

from penstock.errors import TableReplaced
from penstock.lake.catalog_rows import drop_table, replace_table
from penstock.lake.declaration import LakeTable, lake_table
from penstock.lake.store_catalog import psycopg_errors
from tests.lake.writing import LakeWriter, lake_writer, other_catalog
from tests.racing import wait_until_it_waits

LOG = lake_table("shop.log", partition_by="part")
STATE = lake_table("shop.state", partition_by="part", key=["n", "m"])
DAYS = lake_table("shop.day", partition_by="part", mode="overwrite")
COLUMNS = {"n": pa.int64(), "m": pa.string(), "part": pa.int32(), "step": pa.int64()}
Row = tuple[int, str, int | None, int]


@pytest.fixture
def writer(database_url: str, tmp_path: Path) -> Iterator[LakeWriter]:
    with lake_writer(database_url, tmp_path) as writer:
        yield writer


def table(*rows: Row) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [()] * 4
    return pa.table(
        {
            name: pa.array(values, COLUMNS[name])
            for name, values in zip(COLUMNS, columns, strict=True)
        }
    )


def found(writer: LakeWriter, declared: LakeTable) -> set[Row]:
    rows = writer.catalog.load_table(declared.name).scan().to_arrow().to_pylist()
    assert len(rows) == len({tuple(one.values()) for one in rows}), "a row is there twice"
    return {tuple(one.values()) for one in rows}


def test_many_steps_in_each_mode_equal_a_recomputation(writer: LakeWriter) -> None:
    chosen = random.Random(5)
    log: set[Row] = set()
    state: dict[tuple[int, str], Row] = {}
    days: dict[int | None, set[Row]] = {}

    for step in range(12):
        keys = {(chosen.randrange(8), chosen.choice("ab")) for _ in range(5)}
        rows = [(*key, chosen.choice([None, 1, 2, 3]), step) for key in sorted(keys)]
        deleted = [key for key in sorted(state) if chosen.random() < 0.2 and key not in keys]
        log |= set(rows)
        state = {key: row for key, row in state.items() if key not in deleted}
        state |= {row[:2]: row for row in rows}
        days |= {part: {row for row in rows if row[2] == part} for part in {r[2] for r in rows}}
        for declared in (LOG, STATE, DAYS):
            writer.write(declared, table(*rows))
        if deleted:
            gone = table(*((*key, None, 0) for key in deleted)).select(["n", "m"])
            writer.delete(STATE, gone)

        assert found(writer, LOG) == log
        assert found(writer, STATE) == set(state.values())
        assert found(writer, DAYS) == set().union(*days.values())


def test_a_step_without_rows_makes_no_snapshot(writer: LakeWriter) -> None:
    for declared in (LOG, STATE, DAYS):
        writer.write(declared, table())
        writer.write(declared, table((1, "a", 1, 1)))
        writer.write(declared, table())

        assert found(writer, declared) == {(1, "a", 1, 1)}
        assert len(writer.catalog.load_table(declared.name).snapshots()) == 1


def test_a_step_that_deletes_keys_that_are_not_there_makes_no_snapshot(writer: LakeWriter) -> None:
    writer.write(STATE, table((1, "a", 1, 1)))

    writer.delete(STATE, table((2, "a", None, 0)).select(["n", "m"]))

    assert len(writer.catalog.load_table("shop.state").snapshots()) == 1


def test_the_last_row_of_a_table_can_be_deleted(writer: LakeWriter) -> None:
    writer.write(STATE, table((1, "a", 1, 1)))

    writer.delete(STATE, table((1, "a", None, 0)).select(["n", "m"]))
    writer.write(STATE, table((2, "a", 1, 2)))

    assert found(writer, STATE) == {(2, "a", 1, 2)}


def test_a_row_whose_partition_changes_leaves_the_old_one(writer: LakeWriter) -> None:
    writer.write(STATE, table((1, "a", 1, 1), (2, "a", 1, 1)))

    writer.write(STATE, table((1, "a", 2, 2)))

    assert found(writer, STATE) == {(2, "a", 1, 1), (1, "a", 2, 2)}


def test_only_files_that_may_hold_a_key_are_rewritten(writer: LakeWriter) -> None:
    for number in range(5):
        writer.write(STATE, table((number, "a", 1, 1), (number, "b", 1, 1)))
    before = {task.file.file_path for task in _files(writer, STATE)}

    writer.write(STATE, table((2, "b", 1, 2)))

    after = {task.file.file_path for task in _files(writer, STATE)}
    assert len(before - after) == 1
    assert len(after - before) == 2  # the other row of that file, and the new row


def test_more_keys_than_are_compared_one_by_one(writer: LakeWriter) -> None:
    many = [(number, "a", 1, 1) for number in range(500)]
    writer.write(STATE, table(*many))

    writer.write(STATE, table(*((number, "a", 2, 2) for number in range(0, 500, 2))))

    assert found(writer, STATE) == {
        (number, "a", 1 + (number % 2 == 0), 1 + (number % 2 == 0)) for number in range(500)
    }


# Others who write


@pytest.mark.parametrize("declared", [LOG, STATE, DAYS], ids=lambda one: one.mode)
def test_a_change_that_others_overtook_is_staged_again_with_the_same_files(
    writer: LakeWriter, database_url: str, declared: LakeTable
) -> None:
    writer.write(declared, table((1, "a", 1, 1)))
    change = writer.stage(declared, table((2, "a", 2, 2)))
    files = [one.file_path for one in change.files]
    other_catalog(database_url).load_table(declared.name).append(
        _with_key(declared, table((2, "a", 3, 0), (3, "a", 2, 0)))
    )

    writer.commit(change)

    expected = {
        "append": {(1, "a", 1, 1), (2, "a", 2, 2), (2, "a", 3, 0), (3, "a", 2, 0)},
        "upsert": {(1, "a", 1, 1), (2, "a", 2, 2), (3, "a", 2, 0)},
        "overwrite": {(1, "a", 1, 1), (2, "a", 2, 2), (2, "a", 3, 0)},
    }
    assert found(writer, declared) == expected[declared.mode]
    assert set(files) <= {task.file.file_path for task in _files(writer, declared)}


def test_others_who_commit_during_a_step_wait_and_are_told(
    writer: LakeWriter, database_url: str
) -> None:
    writer.write(LOG, table((1, "a", 1, 1)))
    change = writer.stage(LOG, table((2, "a", 1, 2)))
    other = other_catalog(database_url).load_table("shop.log")

    with ThreadPoolExecutor(1) as thread:
        with writer.connection.transaction():
            change.commit()
            waiting = thread.submit(other.append, table((3, "a", 1, 0)))
            wait_until_it_waits(database_url, waiting)
        waiting.result()  # pyiceberg tried again

    assert found(writer, LOG) == {(1, "a", 1, 1), (2, "a", 1, 2), (3, "a", 1, 0)}


def test_a_change_that_was_rolled_back_can_be_made_anew(writer: LakeWriter) -> None:
    writer.write(STATE, table((1, "a", 1, 1)))

    for _ in range(2):
        with writer.connection.transaction(force_rollback=True):
            writer.stage(STATE, table((1, "a", 2, 2))).commit()
    writer.write(STATE, table((1, "a", 3, 3)))

    assert found(writer, STATE) == {(1, "a", 3, 3)}


def test_a_change_that_is_discarded_leaves_no_data_files(
    writer: LakeWriter, tmp_path: Path
) -> None:
    writer.write(STATE, table((1, "a", 1, 1), (2, "a", 1, 1)))
    before = set(tmp_path.rglob("*.parquet"))

    writer.stage(STATE, table((1, "a", 2, 2))).discard()

    assert set(tmp_path.rglob("*.parquet")) == before


@pytest.mark.parametrize("what", ["dropped", "replaced", "partitioned anew"])
def test_a_table_that_others_replace_meanwhile_is_not_written_to(
    writer: LakeWriter, what: str
) -> None:
    writer.write(LOG, table((1, "a", 1, 1)))
    change = writer.stage(LOG, table((2, "a", 1, 2)))
    other = lake_table("shop.other", partition_by="part")
    if what == "dropped":
        drop_table(writer.connection, "shop.log")
    elif what == "replaced":
        writer.write(other, table((3, "a", 1, 1)))
        replace_table(writer.connection, "shop.log", "shop.other")
    else:
        with writer.catalog.load_table("shop.log").update_spec() as update:
            update.remove_field("part")

    with pytest.raises(TableReplaced, match=r"shop\.log") as raised:
        writer.commit(change)

    assert raised.value.retryable


def test_a_connection_that_is_lost_raises_what_psycopg_raises(writer: LakeWriter) -> None:
    pid = writer.connection.info.backend_pid
    with psycopg.connect(writer.connection.info.dsn) as other:
        other.execute("select pg_terminate_backend(%s, 5000)", (pid,))

    with pytest.raises(psycopg.OperationalError), psycopg_errors():
        writer.catalog.table_exists("shop.log")


def _files(writer: LakeWriter, declared: LakeTable) -> list[FileScanTask]:
    return list(writer.catalog.load_table(declared.name).scan().plan_files())


def _with_key(declared: LakeTable, rows: pa.Table) -> pa.Table:
    """Return rows as pyiceberg takes them: columns of the key cannot be null."""
    fields = [pa.field(one.name, one.type, one.name not in declared.key) for one in rows.schema]
    return rows.cast(pa.schema(fields))


@pytest.mark.filterwarnings("error:Parquet writer option")
def test_the_size_of_row_groups_is_a_property_of_a_table(writer: LakeWriter) -> None:
    writer.write(DAYS, table(*((n, "x" * 1_000, 1, 0) for n in range(100))))
    before = row_groups(writer)
    with writer.catalog.load_table(DAYS.name).transaction() as transaction:
        transaction.set_properties({"write.parquet.row-group-size-bytes": "20000"})

    writer.write(DAYS, table(*((n, "x" * 1_000, 1, 1) for n in range(100))))

    assert before == [100]
    assert sum(row_groups(writer)) == 100
    assert all(one <= 20 for one in row_groups(writer))


def row_groups(writer: LakeWriter) -> list[int]:
    """Return how many rows each row group of the only file has."""
    files = writer.catalog.load_table(DAYS.name).inspect.files()
    [path] = files.column("file_path").to_pylist()
    footer = parquet.read_metadata(path.removeprefix("file://"))
    return [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]
