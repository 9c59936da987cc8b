"""A standby that is promoted goes on with the log, as docs/operations.md says."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import psycopg
import pytest

import penstock
from penstock import Store
from penstock.database.embedded import EmbeddedServer, start
from tests.conftest import Server
from tests.log.test_watermark_faults import copy_data
from tests.racing import pause
from tests.servers import FAST

CAUGHT_UP = "select pg_last_wal_replay_lsn() >= %s::pg_lsn"


class Pair:
    """A primary and its standby, with one database."""

    def __init__(self, folder: Path, primary: Server, standby: EmbeddedServer, database: str):
        self._folder = folder
        self.primary = primary.url(database)
        self.standby = standby.url_for(database)

    def fail_over(self) -> None:
        """Let the standby catch up, kill the primary outright, and promote."""
        with psycopg.connect(self.standby, autocommit=True) as standby:
            with psycopg.connect(self.primary, autocommit=True) as primary:
                row = primary.execute("select pg_current_wal_lsn()").fetchone()
            while standby.execute(CAUGHT_UP, row).fetchone() != (True,):
                pause()
            pid = (self._folder / "primary" / "data" / "postmaster.pid").read_text().split()[0]
            psutil.Process(int(pid)).kill()
            standby.execute("select pg_promote()")


@pytest.fixture
def pair() -> Iterator[Pair]:
    folder = Path(tempfile.mkdtemp(prefix="penstock-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        primary = Server(stack.enter_context(start(folder / "primary", settings=FAST)))
        database = primary.create_database(primary.template("penstock"))
        with psycopg.connect(primary.url(database), autocommit=True) as connection:
            copy_data(connection, folder / "primary" / "data", folder / "standby" / "data")
        standby = stack.enter_context(start(folder / "standby", settings=FAST))
        yield Pair(folder, primary, standby, database)


def positions(store: Store) -> list[int]:
    return [message.global_position for message in store.get_category_messages("order")]


def test_a_promoted_standby_goes_on_with_the_log(pair: Pair) -> None:
    primary = penstock.connect(pair.primary)
    for number in range(3):
        primary.write_message(f"order-{number}", "Placed")
    primary.begin_transaction().write_message("order-open", "Placed")
    primary.write_message("order-0", "Paid")

    pair.fail_over()

    with penstock.connect(pair.standby) as store:
        assert store.write_message("order-0", "Shipped", expected_version=1) == 2
        assert positions(store)[:4] == [1, 2, 3, 5]
        assert positions(store)[4] > 5
        assert store.status().open_writers == ()
