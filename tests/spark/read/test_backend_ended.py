"""A backend that is ended in the middle of a query is a database that cannot be reached.

The driver that tasks read with calls it a mistake in the query.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from penstock import Store
from penstock.errors import DatabaseUnreachable
from tests.spark.faults.waiting import end_blocked, wait_until_blocked
from tests.spark.reading import Reading, read, read_on_driver, struct

# every day that is read waits for the lock
WAIT = """
create function wait_for_it(day date) returns boolean language sql
return pg_advisory_xact_lock_shared(1) is not null;
alter domain penstock.day add constraint waits check (wait_for_it(value))
"""


@pytest.mark.parametrize("how", [read, read_on_driver], ids=["task", "driver"])
def test_while_it_reads(store: Store, database_url: str, how: Reading) -> None:
    store.write_message("thing-1", "Seen", {"day": "2026-02-28"})
    schema = struct(data=struct(day="date"))

    with psycopg.connect(database_url, autocommit=True) as other, ThreadPoolExecutor(1) as thread:
        other.execute(WAIT)
        other.execute("select pg_advisory_lock(1)")
        reading = thread.submit(how, database_url, schema, category="thing")
        wait_until_blocked(database_url, 1, reading)
        end_blocked(database_url)
        other.execute("select pg_advisory_unlock(1)")

        with pytest.raises(DatabaseUnreachable, match="terminating connection"):
            reading.result()
