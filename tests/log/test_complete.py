"""Promise 1, Complete: however many write, a reader sees every message, once and in order."""

from __future__ import annotations

import random
from collections.abc import Callable

import psycopg
import pytest

from tests.log.readers import bypassing, following, paging, paging_in_snapshots, positions
from tests.log.stress import Load, run
from tests.log.writers import EVERY_WAY, by_function

SEED = 20_260_101
READERS = [paging("$all"), paging("order"), following("order", 0, 2)]
MORE_READERS = [*READERS, following("order", 1, 2), paging_in_snapshots("$all")]


def test_readers_see_every_message_once_and_in_order(database_url: str) -> None:
    findings = run(database_url, Load(SEED), READERS)

    assert findings.complaints() == []
    assert len(findings.there) >= 6_000
    assert all(account.seen for account in findings.accounts)


def test_so_they_do_where_genuine_message_db_writes(new_database: Callable[[str], str]) -> None:
    url = new_database("beside")

    findings = run(url, Load(SEED, ways=[by_function]), READERS)

    assert findings.complaints() == []
    assert len(findings.there) >= 6_000
    assert all(account.seen for account in findings.accounts)


def test_readers_that_bypass_the_watermark_are_caught(database_url: str) -> None:
    readers = [bypassing("$all"), bypassing("order")]

    findings = run(database_url, Load(SEED, messages=2_000), readers)

    assert all(account.missed for account in findings.accounts)
    assert any("bypassing $all missed" in complaint for complaint in findings.complaints())


def test_one_late_commit_is_enough_to_be_missed_without_the_watermark(database_url: str) -> None:
    with (
        psycopg.connect(database_url) as late,
        psycopg.connect(database_url, autocommit=True) as prompt,
        psycopg.connect(database_url, autocommit=True) as reader,
    ):
        write = (
            "insert into message_store.messages (stream_name, type, position) values (%s, 'T', 0)"
        )
        bounded = "select global_position from penstock.get_category_messages('$all', %s)"
        unbounded = "select global_position from message_store.messages where global_position >= %s"
        late.execute(write, ["order-1"])
        prompt.execute(write, ["order-2"])
        before = [positions(reader.execute(tail, [1])) for tail in (bounded, unbounded)]

        late.commit()

        after = [
            positions(reader.execute(tail, [max(seen, default=0) + 1]))
            for tail, seen in zip((bounded, unbounded), before, strict=True)
        ]
        assert (before[0] + after[0], before[1] + after[1]) == ([1, 2], [2])


@pytest.mark.chaos
@pytest.mark.parametrize("edition", ["penstock", "beside"])
def test_nor_do_they_miss_any_while_connections_are_killed(
    new_database: Callable[[str], str],
    edition: str,
    chaos_seconds: float,
    request: pytest.FixtureRequest,
) -> None:
    seed = request.config.getoption("--chaos-seed") or random.randrange(10**6)
    ways = EVERY_WAY if edition == "penstock" else [by_function]
    load = Load(seed, messages=5_000, seconds=chaos_seconds, ways=ways, kill_every=0.2, losses=10)

    findings = run(new_database(edition), load, MORE_READERS)

    assert findings.complaints() == [], f"repeat with --chaos-seed={seed}"
    assert len(findings.there) >= 5_000
    assert findings.losses >= 10
    assert all(account.seen for account in findings.accounts)
