"""Categories are read on a standby: as complete as on the primary, or not there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import penstock
from penstock import Store, TypedMessage
from penstock.database.execute import execute
from penstock.database.interceptor import Call, Interceptor
from penstock.database.replica import Cluster, ReadPoint, check_cluster, flush_to, read_point
from penstock.database.replica_pool import ReplicaPool
from penstock.errors import (
    LogChanged,
    ReplicaUnavailable,
    UnsupportedEdition,
    ValidationError,
    WrongReplica,
)
from penstock.log import read
from tests.both_ways import Way
from tests.database.test_frames import MOST, Frames
from tests.log.archiving import archived
from tests.log.readers import following, paging
from tests.log.stress import Load, run
from tests.log.waiting import KINDS, NEVER, listening, running, store_with
from tests.racing import pause, wait_until_blocked
from tests.standby import Pair, Standby, primary_and_standby, unreachable

SEED = 20_260_122
#: the primary must not answer, and a loaded machine may take its time
STRICT: dict[str, Any] = {"replica_fallback": False, "max_replica_lag": 60}


READ_AT = "select penstock.read_at(%s, %s, %s, %s)"


class Joined(TypedMessage, type="replica.joined"):
    course: str


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with primary_and_standby() as pair:
        yield pair


@pytest.fixture
def standby(pair: Pair) -> Standby:
    return pair.standby


@pytest.fixture
def new_database(pair: Pair) -> Iterator[Callable[[], str]]:
    """Make databases, which are dropped in the end: each is a part of what a new standby copies."""
    with ExitStack() as stack:

        def create() -> str:
            name = pair.new_database()
            stack.callback(pair.primary.drop_database, name)
            return name

        yield create


@pytest.fixture
def database(new_database: Callable[[], str]) -> str:
    return new_database()


@pytest.fixture
def url(pair: Pair, database: str) -> str:
    return pair.primary.url(database)


@pytest.fixture
def replica(standby: Standby, database: str) -> str:
    return standby.url(database)


def positions(store: Any, category: str = "order", position: int = 1) -> list[int]:
    found = store.get_category_messages(category, position)
    return [message.global_position for message in found]


def replayed_point(store: Store, standby: Standby) -> ReadPoint:
    """Return a point of the primary, once the standby has replayed to it."""
    point = store.run(read_point())
    store.run(flush_to(point))
    standby.catch_up()
    return point


class Names(Interceptor):
    """Records the names of the operations that a store runs."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def around(self, call: Call) -> Any:
        self.seen.append(call.name)
        return super().around(call)


class TestComplete:
    def test_eight_writers_and_a_replay_that_is_delayed_at_random(
        self, url: str, replica: str, standby: Standby
    ) -> None:
        options = {"replica": replica, **STRICT}
        readers = [
            paging("$all", **options),
            paging("order", **options),
            following("order", 0, 2, **options),
        ]

        with standby.delayed_at_random(SEED):
            findings = run(url, Load(SEED, messages=3_000), readers)

        assert findings.complaints() == []
        assert len(findings.there) >= 3_000
        assert all(account.seen for account in findings.accounts)

    def test_a_late_commit_holds_back_what_follows_it(
        self, url: str, replica: str, way: Way
    ) -> None:
        with way.connect(url, replica=replica, **STRICT) as store:
            late = store.begin_transaction()
            late.write_message("order-1", "Placed")
            store.write_message("order-2", "Placed")
            before = positions(store)

            late.commit()

            assert (before, positions(store)) == ([], [1, 2])

    def test_a_write_that_is_not_flushed_delays_nothing_for_long(
        self, url: str, replica: str
    ) -> None:
        with penstock.connect(url, replica=replica, **STRICT) as store:
            store.write_message("order-1", "Placed")
            store.begin_transaction().write_message("order-2", "Placed")  # stays open

            assert positions(store) == [1]

    def test_a_read_waits_for_what_was_written_before_it(
        self, url: str, replica: str, standby: Standby, way: Way
    ) -> None:
        names = Names()
        with (
            way.connect(url, replica=replica, interceptors=[names], **STRICT) as store,
            ThreadPoolExecutor(1) as thread,
        ):
            with standby.paused():
                store.write_message("order-1", "Placed")
                reading = thread.submit(positions, store)
                while "get_category_messages" not in names.seen:
                    pause()

                assert not reading.done()
            assert reading.result() == [1]

    def test_a_snapshot_that_is_older_than_the_point_is_refused(
        self, url: str, replica: str, standby: Standby
    ) -> None:
        with penstock.connect(url) as store, psycopg.connect(replica, autocommit=True) as reader:
            late = store.begin_transaction()
            late.write_message("order-1", "Placed")
            store.write_message("order-2", "Placed")
            reader.execute(READ_AT, replayed_point(store, standby))
            reader.execute("begin isolation level repeatable read")
            reader.execute("select 1")  # its snapshot has the second message, not the first
            late.commit()
            point = replayed_point(store, standby)

            with pytest.raises(psycopg.Error, match="reads an old snapshot"):
                reader.execute(READ_AT, point)

    def test_a_snapshot_that_is_newer_than_the_point_is_read_up_to_it(
        self, url: str, replica: str, standby: Standby
    ) -> None:
        with penstock.connect(url) as store, psycopg.connect(replica, autocommit=True) as reader:
            store.write_message("order-1", "Placed")
            point = replayed_point(store, standby)
            store.write_message("order-2", "Placed")
            replayed_point(store, standby)

            reader.execute(READ_AT, point)
            reader.execute("begin isolation level repeatable read")
            reader.execute(READ_AT, point)
            found = reader.execute(
                "select global_position from penstock.get_category_messages('order')"
            ).fetchall()

            assert found == [(1,)]

    def test_a_consumer_handles_every_message(self, url: str, replica: str, way: Way) -> None:
        handled: list[int] = []
        with way.connect(url, replica=replica, **STRICT) as store:
            for number in range(3):
                store.write_message(f"order-{number}", "Placed")
            consumer = way.Consumer(
                store,
                "order",
                "billing",
                handlers={"Placed": lambda message: handled.append(message.global_position)},
            )
            consumer.run_until_idle()

        assert handled == [1, 2, 3]

    @pytest.mark.parametrize("kind", ["consumer", "follower"])
    def test_what_a_waiter_is_woken_for_is_read_once_it_is_replayed(
        self, url: str, replica: str, standby: Standby, kind: str
    ) -> None:
        with ExitStack() as stack:
            primary = stack.enter_context(store_with(url, NEVER, replica=replica, **STRICT))
            pool = ReplicaPool(primary._pool)
            stack.callback(pool.close)
            store = Store(primary._pool, primary.context, lambda: None, pool)
            waiter = stack.enter_context(running(KINDS[kind], store))
            listening(store)
            for number in range(3):
                with standby.paused():
                    KINDS[kind].write(primary, number)

                assert waiter.next() == number

    def test_archived_messages_are_read_too(
        self, url: str, replica: str, standby: Standby, tmp_path: Path
    ) -> None:
        tmp_path.chmod(0o755)
        with penstock.connect(url, replica=replica, warehouse=tmp_path.as_uri(), **STRICT) as store:
            for number in range(5):
                store.write_message("order-1", "Placed", {"number": number})
            archived(store, "order")

            assert positions(store) == [1, 2, 3, 4, 5]
            assert positions(store, position=3) == [3, 4, 5]


def test_the_end_of_the_log_is_asked_for_after_the_watermark(url: str) -> None:
    with (
        psycopg.connect(url, autocommit=True) as other,
        psycopg.connect(url, autocommit=True) as reader,
        ThreadPoolExecutor(1) as thread,
    ):
        # the same function, which waits for the other connection first
        other.execute("alter function penstock.watermark() rename to actual_watermark")
        other.execute(
            "create function penstock.watermark() returns bigint language plpgsql as $$ begin"
            " perform pg_advisory_lock(1); return penstock.actual_watermark(); end $$"
        )
        other.execute("select pg_advisory_lock(1)")
        asking = thread.submit(execute, reader, read_point())
        wait_until_blocked(url)
        other.execute(
            "select message_store.write_message(gen_random_uuid()::text, 'a-1', 'A', '{}')"
        )
        [(end,)] = other.execute("select pg_current_wal_insert_lsn()").fetchall()
        other.execute("select pg_advisory_unlock(1)")

        point = asking.result()
        [(is_after,)] = other.execute("select %s::pg_lsn >= %s", (point.lsn, end)).fetchall()
        assert (point.watermark, is_after) == (1, True)


def test_a_role_that_only_reads_may_use_a_replica(
    url: str, pair: Pair, standby: Standby, database: str
) -> None:
    with psycopg.connect(url, autocommit=True) as administrator:
        administrator.execute("create role analyst login in role penstock_reader")
    with penstock.connect(url) as store:
        store.write_message("order-1", "Placed")
        late = store.begin_transaction()
        late.write_message("order-2", "Placed")  # which is not flushed

        roles = [make_conninfo(one, user="analyst") for one in (url, standby.url(database))]
        with penstock.connect(roles[0], replica=roles[1], read_only=True, **STRICT) as analyst:
            assert positions(analyst) == [1]
        late.rollback()


class TestTheEndOfTheLog:
    def test_a_reader_beyond_it_is_refused_as_on_the_primary(self, url: str, replica: str) -> None:
        with penstock.connect(url, replica=replica, **STRICT) as store:
            store.write_message("order-1", "Placed")
            # a standby's sequence is up to 32 ahead, so it cannot tell
            beyond = read.get_category_messages(store.context, "order", 10, resumes=True)

            with pytest.raises(LogChanged):
                store.run(beyond)

    def test_a_token_of_a_message_that_is_not_there_is_refused(
        self, url: str, replica: str
    ) -> None:
        with penstock.connect(url, replica=replica, **STRICT) as store:
            store.write_message("order-1", "Placed")

            with pytest.raises(LogChanged):
                store.get_category_messages("order", after=f"1@{uuid4()}")


class TestAStandbyThatStopsReplaying:
    def test_is_not_read_if_the_primary_may_be(
        self, url: str, replica: str, standby: Standby, way: Way
    ) -> None:
        names = Names()
        with (
            way.connect(url, replica=replica, max_replica_lag=0.01, interceptors=[names]) as store,
            standby.paused(),
        ):
            store.write_message("order-1", "Placed")

            assert positions(store) == [1]
            assert positions(store) == [1]
        # the second read does not wait for the replica again
        assert names.seen.count("read_point") == 1

    def test_fails_the_read_if_the_primary_must_not_be(
        self, url: str, replica: str, standby: Standby, way: Way
    ) -> None:
        options = {"replica_fallback": False, "max_replica_lag": 0.01}
        with way.connect(url, replica=replica, **options) as store, standby.paused():
            store.write_message("order-1", "Placed")
            with pytest.raises(ReplicaUnavailable, match="has replayed") as caught:
                positions(store)

        assert caught.value.retryable

    def test_leaves_all_that_decides_and_writes_alone(
        self, url: str, replica: str, standby: Standby
    ) -> None:
        with penstock.connect(url, replica=replica, **STRICT) as store, standby.paused():
            store.append(Joined(course="Algebra"))
            messages, guard = store.read(Joined.to_conditions(course="Algebra"))
            store.append(Joined(course="Algebra"), guard)
            store.write_message("order-1", "Placed")
            with store.transaction() as tx:
                in_transaction = positions(tx)

            assert len(messages) == 1
            assert in_transaction == [3]
            assert store.stream_version("order-1") == 0
            assert store.category_head("order") == 3


class TestAReplicaThatIsLost:
    def test_leaves_the_reads_to_the_primary(
        self, url: str, replica: str, standby: Standby, database: str, way: Way
    ) -> None:
        names = Names()
        with way.connect(url, replica=replica, interceptors=[names]) as store:
            store.write_message("order-1", "Placed")
            assert positions(store) == [1]

            standby.disconnect(database)

            assert positions(store) == [1]
            assert names.seen[-1] == "get_category_messages"
            assert names.seen.count("get_category_messages") == 3  # one of them failed

    def test_need_not_be_there_when_the_store_connects(self, url: str, replica: str) -> None:
        with penstock.connect(url, replica=unreachable(replica)) as store:
            store.write_message("order-1", "Placed")

            assert positions(store) == [1]

    def test_must_be_there_if_the_primary_is_not_to_be_read(self, url: str, replica: str) -> None:
        with pytest.raises(ReplicaUnavailable):
            penstock.connect(url, replica=unreachable(replica), replica_fallback=False)

    def test_a_read_that_the_replay_cancels_goes_to_the_primary(
        self, url: str, replica: str, standby: Standby, database: str
    ) -> None:
        slow = "case when pg_is_in_recovery() then pg_sleep(60) is not null else true end"
        with (
            penstock.connect(url, replica=replica, sql_condition=True, max_replica_lag=60) as store,
            ThreadPoolExecutor(1) as thread,
            psycopg.connect(url, autocommit=True) as primary,
        ):
            for number in range(2):
                store.write_message(f"order-{number}", "Placed")
            reading = thread.submit(store.get_category_messages, "order", condition=slow)
            _wait_until_asleep(standby, database)

            primary.execute("delete from message_store.messages where global_position = 1")
            primary.execute("vacuum message_store.messages")

            assert [message.global_position for message in reading.result()] == [2]


class TestAWrongReplica:
    def test_a_primary_is_refused(self, url: str) -> None:
        with pytest.raises(WrongReplica, match="is not a standby"):
            penstock.connect(url, replica=url)

    def test_a_database_without_penstock_is_refused(self, url: str, standby: Standby) -> None:
        with pytest.raises(WrongReplica, match="another database"):
            penstock.connect(url, replica=standby.url("postgres"))

    def test_another_database_of_the_standby_is_refused(
        self, pair: Pair, new_database: Callable[[], str], url: str, standby: Standby
    ) -> None:
        other = new_database()
        with psycopg.connect(pair.primary.url(other), autocommit=True) as connection:
            connection.execute("update penstock.identity set id = gen_random_uuid()")
        standby.catch_up()

        with pytest.raises(WrongReplica, match="has the log"):
            penstock.connect(url, replica=standby.url(other))

    def test_a_standby_of_another_log_is_noticed_by_its_messages(
        self, pair: Pair, new_database: Callable[[], str], url: str, standby: Standby
    ) -> None:
        other = new_database()  # as a copy has it: with the same identity
        with penstock.connect(pair.primary.url(other)) as store:
            store.write_message("order-1", "Placed")
        standby.catch_up()
        with penstock.connect(url, replica=standby.url(other)) as store:
            store.write_message("order-1", "Placed")

            with pytest.raises(WrongReplica, match="replays another log"):
                positions(store)

    def test_a_log_that_lacks_a_message_is_not_read(
        self, new_database: Callable[[], str], url: str, standby: Standby
    ) -> None:
        replica = standby.url(new_database())
        with penstock.connect(url, replica=replica, **STRICT) as store:
            store.write_message("order-1", "Placed")

            with pytest.raises(ReplicaUnavailable, match="has no message 1"):
                positions(store)

    @pytest.mark.parametrize(
        ("found", "reason"),
        [
            (Cluster(8, 1, uuid4(), True), "belongs to the cluster 8"),
            (Cluster(7, 2, uuid4(), True), "is on timeline 2"),
            (Cluster(7, 1, uuid4(), False), "is not a standby"),
        ],
    )
    def test_another_cluster_or_timeline_is_refused(self, found: Cluster, reason: str) -> None:
        primary = Cluster(7, 1, found.log_id, False)

        with pytest.raises(WrongReplica, match=reason):
            check_cluster(primary, found, "there")

    def test_what_a_role_may_not_know_is_not_compared(self) -> None:
        log = uuid4()

        check_cluster(Cluster(7, 2, log, False), Cluster(None, None, log, True), "there")
        check_cluster(Cluster(7, 2, log, False), Cluster(7, 1, log, True), "there")

    def test_it_is_refused_on_a_genuine_message_db(self, pair: Pair, replica: str) -> None:
        genuine = pair.primary.url(pair.primary.create_database(pair.primary.template("genuine")))

        with pytest.raises(UnsupportedEdition, match="a replica"):
            penstock.connect(genuine, replica=replica)

    def test_it_is_refused_beside_the_embedded_server(self, tmp_path: Path, replica: str) -> None:
        with pytest.raises(ValidationError, match="replica must be given with the address"):
            penstock.connect(folder=tmp_path, replica=replica)


def test_a_promoted_standby_is_refused_from_the_next_read_on(
    pair: Pair, url: str, database: str
) -> None:
    promoted = pair.new_standby("promoted")
    replica = promoted.url(database)
    with (
        penstock.connect(url, replica=replica, **STRICT) as store,
        psycopg.connect(replica) as reader,
    ):
        store.write_message("order-1", "Placed")
        assert positions(store) == [1]
        point = store.run(read_point())
        store.run(flush_to(point))
        promoted.catch_up()
        reader.execute("select penstock.read_at(%s, %s, %s, %s)", point)

        promoted.promote()
        with penstock.connect(replica) as other:
            other.write_message("order-2", "Placed")

        with pytest.raises(WrongReplica, match="was promoted"):
            positions(store)
        with pytest.raises(WrongReplica, match="was promoted"):
            penstock.connect(url, replica=replica)
        # a read that had begun ends at its point
        rows = reader.execute("select * from penstock.get_category_messages('order')").fetchall()
        assert len(rows) == 1


def test_a_read_takes_four_frames(url: str, replica: str) -> None:
    with penstock.connect(url, replica=replica, **STRICT) as store:
        store.write_message("order-1", "Placed")
        positions(store)
        frames = Frames()

        sys.setprofile(frames)
        try:
            store.get_category_messages("order")
        finally:
            sys.setprofile(None)

    assert len(frames.seen) >= 3, "the primary and the replica are asked"
    assert [one for one in frames.seen if len(one) > MOST] == []


def _wait_until_asleep(standby: Standby, database: str) -> None:
    query = "select count(*) from pg_stat_activity where datname = %s and wait_event = 'PgSleep'"
    while standby.execute(query, database) != [(1,)]:
        pause()
