"""The right to run a pipeline, and from when on others may have it."""

from __future__ import annotations

from contextlib import closing

import psycopg
import pytest

from penstock.admin.processors import PROCESSOR, RUN, hold_off
from penstock.database.execute import execute
from penstock.errors import PipelineRunning, RunLockLost
from penstock.pipeline.connection import ProcessorLocks, lock_run, open_connection
from penstock.settings import Settings
from penstock.spark.connections import DatabaseRef, find_database

HELD = """
select count(*) from pg_locks l join pg_database d on d.oid = l.database
where l.locktype = 'advisory' and d.datname = current_database()
"""


def test_what_is_released_can_be_had_at_once(database_url: str) -> None:
    database = find_database(database_url)
    with psycopg.connect(database_url, autocommit=True) as other:
        for _ in range(20):
            lock_run(database, "shop").release()

            assert other.execute(HELD).fetchone() == (0,)


def test_to_release_what_the_server_took_away_is_no_error(database_url: str) -> None:
    held = lock_run(find_database(database_url), "shop")
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
            " where application_name like 'penstock run shop%'"
        )

    held.release()

    lock_run(find_database(database_url), "shop").release()


@pytest.mark.parametrize(("most", "timeout"), [(7, "7s"), (None, "0")])
def test_a_transaction_of_a_run_is_limited_like_a_store_s(
    database_url: str, most: int | None, timeout: str
) -> None:
    settings = Settings.load(database_url, max_write_seconds=most)
    connection = open_connection(DatabaseRef(settings), "test")

    with closing(connection.raw), connection.transaction():
        found = connection.raw.execute("show transaction_timeout").fetchone()

    assert found == (timeout,)


def end_holder(url: str, kind: int) -> None:
    """End the session that holds a lock of this kind."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "select pg_terminate_backend(pid, 5000) from pg_locks"
            " where locktype = 'advisory' and classid = %s and granted",
            (kind,),
        )


def test_a_second_run_is_refused(database_url: str) -> None:
    database = find_database(database_url)
    held = lock_run(database, "shop")

    with pytest.raises(PipelineRunning):
        lock_run(database, "shop")

    held.release()
    lock_run(database, "shop").release()


def test_who_lost_it_to_another_run_gets_an_error(database_url: str) -> None:
    database = find_database(database_url)
    first = lock_run(database, "shop")
    end_holder(database_url, RUN)
    second = lock_run(database, "shop")

    with pytest.raises(RunLockLost):
        first.regain()

    second.release()


class TestAProcessor:
    """Its lock is held by the connection that commits its steps."""

    @staticmethod
    def locks(url: str) -> ProcessorLocks:
        """Return the locks of a run that does not wait."""
        return ProcessorLocks(find_database(url), "shop", lambda: True)

    def test_is_run_by_one_at_a_time(self, database_url: str) -> None:
        with self.locks(database_url).connection("send") as connection:
            assert connection is not None
            with self.locks(database_url).connection("send") as other:
                assert other is None

        with self.locks(database_url).connection("send") as other:
            assert other is not None

    def test_is_not_committed_by_who_lost_the_lock(self, database_url: str) -> None:
        with self.locks(database_url).connection("send") as connection:
            assert connection is not None

            end_holder(database_url, PROCESSOR)

            with pytest.raises(psycopg.OperationalError):
                connection.raw.execute("select 1")

    def test_that_lost_its_client_is_had_again_by_the_same_run(self, database_url: str) -> None:
        locks = self.locks(database_url)

        with locks.connection("send") as lost, locks.connection("send") as again:
            # the first is one of a client that is gone, which the server has not noticed
            assert lost is not None
            assert again is not None
            with pytest.raises(psycopg.OperationalError):
                lost.raw.execute("select 1")

    def test_is_not_touched_by_others_while_it_runs(self, database_url: str) -> None:
        with psycopg.connect(database_url) as other:
            with self.locks(database_url).connection("send"):
                assert not execute(other, hold_off("shop", "send"))

            assert execute(other, hold_off("shop", "send"))
            with self.locks(database_url).connection("send") as connection:
                assert connection is None
