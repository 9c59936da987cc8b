"""A run that is killed anywhere leaves each message in exactly one place."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from random import Random

import pytest

from penstock import Store
from penstock.lake import catalog
from tests.log.archiving import archived, in_table, store_with_warehouse

BATCH = 5


@pytest.mark.chaos
def test_killed_at_random(
    database_url: str, tmp_path: Path, chaos_seconds: float, request: pytest.FixtureRequest
) -> None:
    random = Random(request.config.getoption("--chaos-seed"))
    deadline = time.monotonic() + chaos_seconds
    kills = expected = 0
    with store_with_warehouse(database_url, tmp_path) as store:
        while kills < 6 or time.monotonic() < deadline:
            for number in range(100):
                store.write_message(f"account-{number % 7}", "Deposited", {"number": number})
            expected += 100
            kills += _killed(store, random.uniform(0, 0.5))
            _check(store, expected)
        archived(store, "account")
        _check(store, expected)
    assert len(in_table(store)) == 7


def _killed(store: Store, delay: float) -> bool:
    """Archive in another process, and kill it after a while. Return whether it was still alive."""
    pid = os.fork()
    if pid == 0:
        try:
            archived(store, "account", batch_size=BATCH)
        finally:
            os._exit(0)
    time.sleep(delay)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status)


def _check(store: Store, expected: int) -> None:
    """Each message can be read, and is either in the table or in the archive's files."""
    read = [one.global_position for one in store.read_category("account", batch_size=300)]
    assert read == list(range(1, expected + 1))
    files = _in_files(store)
    assert sorted(files + in_table(store)) == read
    assert store.status().archived_messages == len(files)


def _in_files(store: Store) -> list[int]:
    tables = catalog(store)
    if not tables.table_exists("penstock.archive"):
        return []
    rows = tables.load_table("penstock.archive").scan(selected_fields=("global_position",))
    positions: list[int] = rows.to_arrow().column("global_position").to_pylist()
    return positions
