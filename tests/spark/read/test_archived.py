"""A log of which a part is archived reads like its twin, of which nothing is."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import ArrayType, MapType, StringType, StructType

import penstock
from penstock import Message, Store, TypedMessage
from penstock.errors import ArchiveUnreachable, WrongValue
from penstock.log.retention import Keep
from penstock.spark.connections import connected, run
from penstock.spark.read import planning
from penstock.spark.read.arrow import find_location, read_query, snapshot
from penstock.spark.read.columns import read_plan
from penstock.spark.read.driver_read import read_table
from penstock.spark.read.plan import ReadPlan
from penstock.spark.read.readers import SplitPartition
from penstock.spark.read.splits import Split
from penstock.spark.source import PenstockDataSource
from penstock.spark.target import Target
from tests.conftest import Server
from tests.log.archiving import archived, in_table, store_with_warehouse
from tests.spark.read.test_typed_fields import NESTED, SCALARS, WRONG
from tests.spark.reading import Reading, read, read_on_driver, reader_of, struct

LOG = """
insert into message_store.messages (stream_name, type, position, data, metadata, time)
select 'account-' || n % 7, case when n % 3 = 0 then 'Paid' else 'Opened' end, n / 7,
  jsonb_build_object('n', n, 'name', 'Ünal "' || n || '"', 'price', n * 0.25, 'day', '2026-01-31',
    'at', '2026-01-31T10:00:00.5+02:00', 'owner', jsonb_build_object('age', n),
    'tags', '["a"]'::jsonb),
  case n % 5 when 0 then null when 1 then 'null'::jsonb else '{"by": "me"}' end,
  '2026-01-01 00:00'::timestamp + n * interval '1 second'
from generate_series(0, 209) n
"""
TYPED = struct(
    global_position="long",
    time="timestamp_ntz",
    data=struct(
        n="integer", name="string", price="decimal(6,2)", day="date", at="timestamp",
        owner=struct(age="long"), tags=ArrayType(StringType()), missing="double",
    ),
    metadata=struct(by="string"),
)  # fmt: skip


class Lent(TypedMessage, type="archived_read.lent"):
    book: str | None = None


class Returned(TypedMessage, type="archived_read.returned"):
    book: str | None = None


@dataclass(frozen=True)
class Twins:
    """Two stores with the same messages; a part of the second's is archived."""

    plain: Store
    archived: Store
    warehouse: Path

    @property
    def urls(self) -> tuple[str, str]:
        return self.plain.settings.conninfo(), self.archived.settings.conninfo()


@pytest.fixture(scope="module")
def twins(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    first = server.create_database(server.template("penstock"))
    with penstock.connect(server.url(first)) as store:
        with store.transaction() as transaction:
            transaction.connection.execute(LOG)
        for number in range(30):
            store.append([Message("Sold", {"number": number})])
        store.write_message("other-1", "Seen", {"n": 1})
        store.declare(Lent, Returned)
        for number in range(12):
            store.append([Lent(book=f"b{number % 3}"), Returned(book=f"b{number % 4}")])
    second = server.create_database(first)
    warehouse = tmp_path_factory.mktemp("lake")
    with (
        penstock.connect(server.url(first)) as plain,
        store_with_warehouse(server.url(second), warehouse) as other,
    ):
        archived(other, "account", Keep(count=60), batch_size=50)
        archived(other, "Sold", batch_size=20)
        archived(other, "archived_read.lent", Keep(count=3))
        archived(other, "archived_read.returned", batch_size=5)
        assert len(in_table(other)) < 100
        yield Twins(plain, other, warehouse)
    for name in (first, second):
        server.drop_database(name)


@pytest.fixture(params=[read, read_on_driver], ids=["tasks", "driver"])
def how(request: pytest.FixtureRequest) -> Reading:
    found: Reading = request.param
    return found


class TestTwins:
    @pytest.mark.parametrize(
        "options",
        [
            {"category": "account"},
            {"category": "$all"},
            {"category": "Sold"},
            {"category": "account", "types": "Paid"},
            {"category": "account", "after": "31", "until": "119"},
            {"category": "$all", "after": "-1", "until": "60"},
            {"category": "account", "after": "200"},
            {"stream": "account-3"},
            {"stream": "account-3", "after": "4", "until": "26", "types": "Opened"},
            {"stream": "account-4", "until": "2", "columns": "stream_name,id"},
            {"stream": "account-99"},
            {"category": "account", "columns": "type,time"},
        ],
        ids=str,
    )
    def test_each_kind_of_read_is_the_same(
        self, twins: Twins, how: Reading, options: dict[str, str]
    ) -> None:
        expected, found = (how(url, None, **options) for url in twins.urls)

        assert found.schema == expected.schema
        assert in_some_order(found) == in_some_order(expected)

    def test_a_stream_that_is_archived_whole_is_found(self, twins: Twins, how: Reading) -> None:
        name = twins.plain.get_category_messages("Sold")[3].stream_name

        expected, found = (how(url, stream=name) for url in twins.urls)

        assert found.num_rows == 1
        assert found.equals(expected)

    @pytest.mark.parametrize(
        "options",
        [
            {"attributes": '{"book": "b1"}'},
            {"attributes": '{"book": ["b0", "b2"]}', "columns": "type,data"},
            {"attributes": '{"book": "b3"}'},
            {"attributes": '{"book": "b1"}', "after": "245", "until": "255"},
            {"attributes": '{"book": "b1"}', "types": "archived_read.returned"},
        ],
        ids=str,
    )
    def test_messages_are_found_by_their_attributes(
        self, twins: Twins, how: Reading, options: dict[str, str]
    ) -> None:
        expected, found = (how(url, None, **options) for url in twins.urls)

        assert expected.num_rows > 0
        assert in_some_order(found) == in_some_order(expected)

    def test_a_stream_by_attributes_reads_each_message_once(self, twins: Twins) -> None:
        plain, found = (
            batch_ends(url, 2, attributes='{"book": ["b1", "b3"]}') for url in twins.urls
        )

        assert found == plain
        assert len(found) == 5

    def test_typed_fields_are_the_same(self, twins: Twins, how: Reading) -> None:
        expected, found = (how(url, TYPED, category="account") for url in twins.urls)

        assert found.num_rows == 210
        assert found.to_pylist() == expected.to_pylist()

    def test_many_tasks_share_the_archive(self, twins: Twins) -> None:
        reader = reader_of(twins.urls[1], None, category="$all")
        target = reader.options.target
        splits = [SplitPartition(target, Split(low, low + 50)) for low in range(0, 300, 50)]

        found = [batch for one in splits for batch in reader.read(one)]

        assert sorted(positions(found)) == list(range(1, 266))

    def test_a_stream_of_small_batches_reads_every_message_once_in_order(
        self, twins: Twins
    ) -> None:
        plain, found = (batch_ends(url, 23) for url in twins.urls)

        assert found == plain
        assert len(found) == 12

    @pytest.mark.parametrize("types", [(), ("Paid",)])
    def test_what_is_planned_by_count_is_the_same(
        self, twins: Twins, types: tuple[str, ...]
    ) -> None:
        for target in (
            Target(category="account", types=types),
            Target(category="$all", types=types),
            Target(stream="account-2", types=types),
        ):
            first, second = (planned(url, target) for url in twins.urls)
            assert first == second


@pytest.fixture(scope="module")
def values(twins: Twins) -> Twins:
    """The twins with a stream for each scalar, and for each that is wrong."""
    scalars = [*SCALARS, *((kind, value, None) for kind, value in WRONG)]
    for store in (twins.plain, twins.archived):
        for number, (_, value, _) in enumerate(scalars):
            for data in ({"value": value}, {"value": None}, {}):
                store.write_message(f"value-{number}", "Set", data)
    archived(twins.archived, "value")
    return twins


class TestTypedValues:
    """Values of every type, wherever their message is: those that Arrow reads, and the others."""

    @pytest.mark.parametrize("number", range(len(SCALARS)))
    def test_a_value_reads_as_it_would_in_the_database(
        self, values: Twins, how: Reading, number: int
    ) -> None:
        kind, _, expected = SCALARS[number]
        schema = struct(global_position="long", data=struct(value=kind))

        plain, found = (how(url, schema, stream=f"value-{number}") for url in values.urls)

        assert found.column("data").to_pylist() == plain.column("data").to_pylist()
        assert found.column("data").to_pylist()[0] == {"value": expected}

    @pytest.mark.parametrize("number", range(len(WRONG)))
    def test_a_wrong_value_is_the_same_error(
        self, values: Twins, how: Reading, number: int
    ) -> None:
        kind = NESTED.get(WRONG[number][0], WRONG[number][0])
        options = {"stream": f"value-{len(SCALARS) + number}"}
        schema = struct(global_position="long", data=struct(value=kind))
        problems = []

        for url in values.urls:
            with pytest.raises(WrongValue) as raised:
                how(url, schema, **options)
            problems.append((raised.value.field, raised.value.value, raised.value.expected))

        assert problems[0] == problems[1]
        assert [how(url, schema, onWrongType="null", **options) for url in values.urls][1].column(
            "data"
        ).to_pylist() == [{"value": None}] * 3

    def test_maps_and_arrays_are_the_same(self, values: Twins, how: Reading) -> None:
        schema = struct(
            global_position="long",
            data=struct(owner=MapType(StringType(), StringType()), tags=ArrayType(StringType())),
        )

        plain, found = (how(url, schema, category="account") for url in values.urls)

        assert found.to_pylist() == plain.to_pylist()


class TestRaces:
    @pytest.fixture
    def store(self, database_url: str, tmp_path: Path) -> Iterator[Store]:
        with store_with_warehouse(database_url, tmp_path) as store:
            for number in range(60):
                store.write_message(f"account-{number % 3}", "Opened", {"n": number})
            archived(store, "account", Keep(count=40))
            yield store

    def test_messages_that_move_after_the_plan_are_read_once(
        self, store: Store, database_url: str
    ) -> None:
        reader = reader_of(database_url, None, category="account")
        plan = reader.partitions()
        archived(store, "account", Keep(count=10))

        found = [batch for one in plan for batch in reader.read(one)]

        assert sorted(positions(found)) == list(range(1, 61))

    def test_messages_that_move_while_a_task_begins_are_read_once(
        self, store: Store, database_url: str
    ) -> None:
        reader = reader_of(database_url, None, category="account")
        target, split = reader.options.target, Split(0, 60)
        plan = read_plan(reader.schema)

        with snapshot(reader.database) as statement:
            location = find_location(statement, target, split)
            archived(store, "account", Keep(count=10))  # all but ten move
            rows = plan.query(target.rows(0, 60)).as_string()
            with read_query(statement, rows) as found:
                table = found.read_all()

        assert location is not None
        assert table.num_rows == 40

    def test_messages_that_move_while_they_are_read_are_read_once(
        self, store: Store, database_url: str
    ) -> None:
        reader = reader_of(database_url, None, category="account")

        with connected(reader.database) as connection:
            plan = MovesMessages(**vars(read_plan(reader.schema)))
            plan.store = store
            found = read_table(connection, reader.options.target, plan, Split(0, 60))

        assert sorted(found.column("global_position").to_pylist()) == list(range(1, 61))

    def test_without_its_files_only_what_needs_them_fails(
        self, store: Store, database_url: str, tmp_path: Path, how: Reading
    ) -> None:
        shutil.move(tmp_path / "penstock", tmp_path / "away")

        with pytest.raises(ArchiveUnreachable):
            how(database_url, category="account")

        assert how(database_url, category="account", after="20").num_rows == 40
        assert how(database_url, stream="account-1", after="10").num_rows == 9


class MovesMessages(ReadPlan):
    """A plan that has messages archived as soon as they were read."""

    store: Store

    def batch(self, columns: Any) -> pa.RecordBatch:
        archived(self.store, "account")
        return super().batch(columns)


def in_some_order(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=repr)


def positions(batches: list[pa.RecordBatch]) -> list[int]:
    return [one for batch in batches for one in batch.column("global_position").to_pylist()]


def planned(url: str, target: Target) -> list[Any]:
    asked: list[Any] = [planning.end_after, planning.count_up_to, planning.positions_after]
    with connected(reader_of(url, None, category="x").database) as connection:
        run(connection, planning.set_up_planner())
        found: list[Any] = [run(connection, planning.head(target))]
        for after, until, most in ((-1, 300, 5), (3, 25, 1000), (3, 200, 4), (299, 300, 1)):
            found += [run(connection, ask(target, after, until, most)) for ask in asked]
    return found


def batch_ends(url: str, most: int, **options: str) -> list[list[int]]:
    """Return the positions of each batch of a stream."""
    source = PenstockDataSource({"url": url, **(options or {"category": "$all"})})
    schema: StructType = source.schema()
    reader = source.streamReader(schema)
    start, found = reader.initialOffset(), []
    while (end := reader.latestOffset(start, ReadMaxRows(most))) != start:
        batches = [b for one in reader.partitions(start, end) for b in reader.read(one)]
        found.append(sorted(positions(batches)))
        start = end
    reader.stop()
    return found
