"""`penstock dead-letters` lists what could not be handled, retries it and drops it."""

from __future__ import annotations

import json

from penstock import Store
from tests.cli.conftest import Run
from tests.telemetry.busy import busy


def keys(penstock: Run, *options: str) -> list[str]:
    """The keys that are listed."""
    lines = penstock("dead-letters", "--json", *options).stdout.splitlines()
    return [json.loads(line)["key"] for line in lines]


def test_every_kind_is_listed(penstock: Run, store: Store) -> None:
    busy(store)

    result = penstock("dead-letters")

    header, *rows = result.stdout.splitlines()
    assert header.split()[:3] == ["key", "type", "error"]
    assert [row.partition("/")[0] for row in rows] == ["outbox", "parked", "partition"]
    assert result.stderr == ""


def test_one_kind_is_listed(penstock: Run, store: Store) -> None:
    busy(store)

    assert [one.partition("/")[0] for one in keys(penstock, "--kind", "parked")] == ["parked"]
    assert penstock("dead-letters", "--kind", "mail").exit_code == 2


def test_more_than_the_limit_are_announced(penstock: Run, store: Store) -> None:
    busy(store)

    result = penstock("dead-letters", "--limit", "2")

    assert len(result.stdout.splitlines()) == 3
    assert result.stderr == "there are more: raise --limit\n"


def test_they_are_retried_once(penstock: Run, store: Store) -> None:
    busy(store)
    found = keys(penstock)

    first = penstock("dead-letters", "retry", *found)
    second = penstock("dead-letters", "retry", *found)

    assert (first.exit_code, first.stderr) == (0, "3 of 3 dead letters retried\n")
    assert second.exit_code == 1
    assert second.stderr.splitlines()[-1] == "0 of 3 dead letters retried"
    assert "is about to be retried by now" in second.stderr
    assert store.outbox.list(state="failed") == []


def test_they_are_dropped_after_a_question(penstock: Run, store: Store) -> None:
    busy(store)
    found = keys(penstock)

    refused = penstock("dead-letters", "drop", *found, stdin="n\n")
    left = len(keys(penstock))
    result = penstock("dead-letters", "drop", *found, "--yes")

    assert (refused.exit_code, left) == (1, 3)
    assert result.exit_code == 1
    assert "resume the partition" in result.stderr
    assert result.stderr.endswith("2 of 3 dead letters dropped\n")
    assert keys(penstock) == [one for one in found if one.startswith("partition/")]


def test_what_is_no_key_is_refused_before_anything_is_done(penstock: Run, store: Store) -> None:
    busy(store)
    found = keys(penstock)

    result = penstock("dead-letters", "retry", *found, "nonsense")

    assert result.exit_code == 2
    assert "the key of a dead letter" in result.stderr
    assert keys(penstock) == found
