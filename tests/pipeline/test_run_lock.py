"""The right to run a pipeline, and from when on others may have it."""

from __future__ import annotations

import psycopg

from penstock.pipeline.connections import find_place
from penstock.pipeline.run_lock import lock_run

HELD = """
select count(*) from pg_locks l join pg_database d on d.oid = l.database
where l.locktype = 'advisory' and d.datname = current_database()
"""


def test_what_is_released_can_be_had_at_once(database_url: str) -> None:
    place = find_place(database_url)
    with psycopg.connect(database_url, autocommit=True) as other:
        for _ in range(20):
            lock_run(place, "shop").release()

            assert other.execute(HELD).fetchone() == (0,)


def test_to_release_what_the_server_took_away_is_no_error(database_url: str) -> None:
    held = lock_run(find_place(database_url), "shop")
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
            " where application_name like 'penstock run shop%'"
        )

    held.release()

    lock_run(find_place(database_url), "shop").release()
