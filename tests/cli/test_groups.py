"""`penstock groups` shows how groups stand, stops and starts them, and gets parked ones going."""

from __future__ import annotations

import json

import pytest

from penstock import Claim, Store
from tests.cli.conftest import Run
from tests.groups.school import DeviceSeen, claim_device, positions


@pytest.fixture
def claim(store: Store) -> Claim:
    """A group with two partitions, one of them claimed."""
    store.groups.register("readers")
    store.append([DeviceSeen(device_id="a"), DeviceSeen(device_id="b")])
    claim = claim_device(store, types=[DeviceSeen], group_id="readers")
    assert claim is not None
    return claim


@pytest.mark.usefixtures("claim")
def test_groups_are_listed_with_what_is_pending_and_claimed(penstock: Run) -> None:
    result = penstock("groups")

    heading, line = result.stdout.splitlines()
    assert heading.split() == [
        *("group", "status", "partitioned", "by", "partitions"),
        *("pending", "claimed", "parked", "waiting"),
    ]
    assert line.split()[:7] == ["readers", "active", "device_id", "2", "2", "1", "0"]


def test_parked_partitions_are_listed_with_their_errors(
    penstock: Run, store: Store, claim: Claim
) -> None:
    store.groups.release(claim, error="ValueError: no", park=True)

    shown = penstock("groups")
    as_json = json.loads(penstock("groups", "--json").stdout)

    assert "device_id:a" in shown.stdout
    assert "ValueError: no" in shown.stdout
    assert as_json["groups"][0]["parked"] == {"value": 1, "at_least": False}
    assert as_json["parked"][0]["partition_key"] == "device_id:a"


def test_many_partitions_are_counted_no_further_than_a_thousand(
    penstock: Run, store: Store
) -> None:
    store.groups.register("readers")
    store.append([DeviceSeen(device_id=str(number)) for number in range(1_001)])
    for _ in range(3):  # each finds 500 partitions more
        claim_device(store, types=[DeviceSeen], group_id="readers")

    line = penstock("groups").stdout.splitlines()[1]
    [found] = json.loads(penstock("groups", "--json").stdout)["groups"]
    asked = penstock("groups", "remove", "readers", "--yes")

    assert line.split()[3:7] == ["1,000+", "1,000+", "3", "0"]
    assert found["pending"] == {"value": 1_000, "at_least": True}
    assert asked.exit_code == 0


@pytest.mark.usefixtures("claim")
def test_a_group_is_stopped_and_started(penstock: Run, store: Store) -> None:
    stopped = penstock("groups", "stop", "readers")
    assert not store.groups.is_active("readers")

    started = penstock("groups", "start", "readers")

    assert store.groups.is_active("readers")
    assert stopped.stderr == "readers stopped\n"
    assert started.stderr == "readers started\n"


def test_a_group_is_reset(penstock: Run, store: Store, claim: Claim) -> None:
    store.groups.ack(claim)

    result = penstock("groups", "reset", "readers")

    again = claim_device(store, types=[DeviceSeen], group_id="readers")
    assert result.exit_code == 0
    assert positions(again) == positions(claim)


def test_parked_partitions_are_retried_one_or_all(
    penstock: Run, store: Store, claim: Claim
) -> None:
    store.groups.release(claim, error="no", park=True)

    other = penstock("groups", "retry", "readers", "device_id:b")
    result = penstock("groups", "retry", "readers", "device_id:a")

    assert other.exit_code == 2
    assert "PARTITION must be a parked partition of readers; got 'device_id:b'" in other.stderr
    assert result.stderr == "1 partition resumed\n"
    assert store.groups.parked("readers") == []


@pytest.mark.usefixtures("claim")
def test_a_group_is_removed_after_a_question(penstock: Run, store: Store) -> None:
    refused = penstock("groups", "remove", "readers", stdin="n\n")
    stayed = len(store.groups.list())
    result = penstock("groups", "remove", "readers", stdin="y\n")

    assert (refused.exit_code, stayed) == (1, 1)
    question = "remove readers, with 2 partitions (2 with unhandled messages, 1 claimed now)?"
    assert result.stderr.startswith(question)
    assert result.stderr.endswith("readers removed\n")
    assert store.groups.list() == []


@pytest.mark.usefixtures("claim")
def test_or_without_one(penstock: Run, store: Store) -> None:
    result = penstock("groups", "remove", "readers", "--yes")

    assert result.stderr == "readers removed\n"
    assert store.groups.list() == []


@pytest.mark.parametrize("command", ["stop", "start", "reset", "retry", "remove"])
def test_an_unknown_group_is_reported(penstock: Run, command: str) -> None:
    result = penstock("groups", command, "nobody")

    assert result.exit_code == 1
    assert "nobody" in result.stderr
