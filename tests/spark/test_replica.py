"""Spark and pipelines read a standby: as complete as the primary, or not there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

import penstock
from penstock import Store, TypedMessage
from penstock.errors import ReplicaUnavailable, ValidationError, WrongReplica, WrongValue
from penstock.log.retention import Keep
from penstock.pipeline import Pipeline, Runner, messages
from penstock.spark import Frames
from penstock.spark.connections import connected_at
from penstock.spark.options import replica_options
from penstock.spark.read.columns import read_plan
from penstock.spark.read.driver_read import read_table
from penstock.spark.source import PenstockDataSource
from tests.log.archiving import archived, store_with_warehouse
from tests.log.readers import Reader, Stop
from tests.log.stress import Load, run
from tests.log.test_replica import Names
from tests.spark.reading import partitions, read, reader_of, struct
from tests.standby import Pair, Standby, primary_and_standby, unreachable

SEED = 20_260_123
STRICT: dict[str, Any] = {"replica_fallback": False, "max_replica_lag": 60}


class Joined(TypedMessage, type="replica.spark.joined"):
    course: str


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with primary_and_standby() as pair:
        yield pair


@pytest.fixture
def standby(pair: Pair) -> Standby:
    return pair.standby


@pytest.fixture
def store(pair: Pair) -> Iterator[Store]:
    """A store on a fresh database, with a replica that must be read."""
    name = pair.new_database()
    url, replica = pair.primary.url(name), pair.standby.url(name)
    with penstock.connect(url, replica=replica, **STRICT) as store:
        yield store
    pair.primary.drop_database(name)


def options(store: Store, **changed: str) -> dict[str, str]:
    return {**replica_options(store.settings), **changed}


def positions(store: Store, **chosen: str) -> list[int]:
    found = read(store.settings.conninfo(), None, **chosen)
    return [int(one) for one in found["global_position"].to_pylist()]


def streaming(**chosen: str) -> Reader:
    """Read micro-batches, as a streaming query does."""

    def read(url: str, random: Random, stop: Stop) -> Iterator[int]:
        source = PenstockDataSource({"url": url, "category": "$all", **chosen})
        reader = source.streamReader(source.schema())
        offset = reader.initialOffset()
        while not stop():
            end = reader.latestOffset(offset, ReadAllAvailable())
            found = [
                int(position)
                for one in reader.partitions(offset, end)
                for batch in reader.read(one)
                for position in batch.column("global_position").to_pylist()
            ]
            yield from sorted(found)
            offset = end
        reader.stop()

    return Reader("streaming $all", read, "$all")


class TestATask:
    def test_reads_each_kind_of_target(self, store: Store) -> None:
        store.write_message("order-1", "Placed")
        store.write_message("order-2", "Placed")
        store.append(Joined(course="Algebra"))
        store.read(Joined.to_conditions(course="Algebra"))  # which declares the class
        chosen = options(store)

        assert positions(store, category="order", **chosen) == [1, 2]
        assert positions(store, category="$all", **chosen) == [1, 2, 3]
        assert positions(store, stream="order-2", **chosen) == [2]
        assert positions(store, attributes='{"course": "Algebra"}', **chosen) == [3]

    def test_misses_nothing_of_eight_writers_while_the_replay_is_delayed(
        self, store: Store, standby: Standby
    ) -> None:
        url, chosen = store.settings.conninfo(), options(store)

        with standby.delayed_at_random(SEED):
            findings = run(url, Load(SEED, messages=1_000), [streaming(**chosen)])

        assert findings.complaints() == []
        assert all(account.seen for account in findings.accounts)

    def test_reads_archived_messages_too(self, store: Store, tmp_path: Path) -> None:
        tmp_path.chmod(0o755)
        with store_with_warehouse(store.settings.conninfo(), tmp_path) as archiving:
            for number in range(6):
                archiving.write_message(f"order-{number % 2}", "Placed", {"number": number})
            archived(archiving, "order", Keep(count=3))
        chosen = options(store)

        assert positions(store, category="order", **chosen) == [1, 2, 3, 4, 5, 6]
        assert positions(store, category="$all", until="2", **chosen) == [1, 2]
        assert positions(store, category="order", after="1", until="5", **chosen) == [2, 3, 4, 5]
        assert positions(store, stream="order-1", until="1", **chosen) == [2, 4]

    def test_reads_messages_once_that_move_after_the_plan(
        self, store: Store, tmp_path: Path
    ) -> None:
        tmp_path.chmod(0o755)
        url = store.settings.conninfo()
        with store_with_warehouse(url, tmp_path) as archiving:
            for number in range(20):
                archiving.write_message(f"order-{number % 3}", "Placed")
            archived(archiving, "order", Keep(count=15))
            reader = reader_of(url, None, category="order", **options(store))
            plan = reader.partitions()
            archived(archiving, "order", Keep(count=5))
            assert store.get_category_messages("order", 20)  # so the standby has replayed that

        found = [batch.column("global_position") for one in plan for batch in reader.read(one)]

        assert sorted(pa.chunked_array(found).to_pylist()) == list(range(1, 21))

    def test_fails_if_the_standby_does_not_replay(self, store: Store, standby: Standby) -> None:
        with standby.paused():
            store.write_message("order-1", "Placed")

            with pytest.raises(ReplicaUnavailable, match="has replayed"):
                positions(store, category="order", **options(store, maxReplicaLag="0.01"))

    def test_reads_the_primary_then_if_it_may(self, store: Store, standby: Standby) -> None:
        chosen = options(store, maxReplicaLag="0.01", replicaFallback="true")
        with standby.paused():
            store.write_message("order-1", "Placed")

            assert positions(store, category="order", **chosen) == [1]

    def test_reads_the_primary_if_the_replica_is_not_there(self, store: Store) -> None:
        store.write_message("order-1", "Placed")
        chosen = options(store, replicaFallback="true")
        chosen["replica"] = unreachable(chosen["replica"])

        assert positions(store, category="order", **chosen) == [1]


class TestAStepOnTheDriver:
    def test_names_the_message_of_a_wrong_value(self, store: Store) -> None:
        store.write_message("order-1", "Placed", {"number": "many"})
        schema = struct(data=struct(number="integer"))
        reader = reader_of(store.settings.conninfo(), schema, category="order", **options(store))
        (one,) = reader.partitions()
        assert one.point is not None

        with (
            pytest.raises(WrongValue, match="many"),
            connected_at(reader.database.replica, one.point) as connection,
        ):
            read_table(connection, one.target, read_plan(schema), one.split)


class TestBadInput:
    def test_a_primary_is_refused_when_a_read_is_planned(self, store: Store) -> None:
        url = store.settings.conninfo()

        with pytest.raises(WrongReplica, match="is not a standby"):
            partitions(url, category="order", replica=url)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("replica", "http://elsewhere"),
            ("maxReplicaLag", "-1"),
            ("maxReplicaLag", "soon"),
            ("maxReplicaLag", "999999"),
            ("replicaFallback", "maybe"),
        ],
    )
    def test_an_option_out_of_range_is_refused(self, name: str, value: str) -> None:
        with pytest.raises(ValidationError, match=name):
            partitions("postgresql://nowhere/none", category="order", **{name: value})


class TestOnSpark:
    def test_the_frames_of_a_store_read_its_replica(
        self, store: Store, standby: Standby, spark: SparkSession
    ) -> None:
        store.write_message("order-1", "Placed")
        assert Frames(store, spark).read.category("order").count() == 1

        impatient = replace(store.settings, max_replica_lag=0.01)
        with penstock.connect(impatient) as other, standby.paused():
            store.write_message("order-2", "Placed")
            with pytest.raises(PythonException, match="ReplicaUnavailable"):
                Frames(other, spark).read.category("order").collect()

    @pytest.mark.parametrize("driver_rows", [20_000, 0], ids=["on the driver", "on executors"])
    def test_a_pipeline_reads_its_inputs_there(
        self, store: Store, spark: SparkSession, driver_rows: int
    ) -> None:
        pipe, names = Pipeline("shop"), Names()
        pipe.schema("order", "number int")

        @pipe.stream(inputs="order", output="invoice")
        def invoice(order: DataFrame) -> DataFrame:
            return messages(order, type="Invoiced", data=["stream_name"])

        for number in range(3):
            store.write_message(f"order-{number}", "Placed")

        with penstock.connect(store.settings, interceptors=[names]) as other:
            Runner(pipe, other, spark, driver_rows=driver_rows).run_until_idle().check()

        assert len(store.get_category_messages("invoice")) == 3
        assert ("read_point" in names.seen) == (driver_rows > 0)  # else the planner asks
