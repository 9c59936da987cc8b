"""`penstock snapshots` lists and removes the snapshots of deciders."""

from __future__ import annotations

import json

import pytest

from penstock import Decider, Store
from tests.cli.conftest import Run
from tests.groups.school import DeviceSeen


@pytest.fixture(autouse=True)
def snapshots(store: Store) -> None:
    """Two versions of a decider, each with a snapshot."""
    store.append(DeviceSeen(device_id="a"))
    for version in (1, 2):
        readings = Decider[int, None](
            initial=0,
            evolve=lambda count, event: count + 1,
            decide=lambda count, command: [],
            name="readings",
            version=version,
            snapshot_every=1,
        )
        store.decide(readings, None, DeviceSeen.to_conditions(device_id="a"))


def test_they_are_listed_by_decider_and_version(penstock: Run) -> None:
    shown = penstock("snapshots").stdout.splitlines()
    as_json = [json.loads(line) for line in penstock("snapshots", "--json").stdout.splitlines()]

    assert shown[0].split() == ["decider", "version", "boundaries", "bytes", "oldest", "newest"]
    assert [line.split()[:4] for line in shown[1:]] == [
        ["readings", "1", "1", "1"],
        ["readings", "2", "1", "1"],
    ]
    assert [(one["decider"], one["version"]) for one in as_json] == [
        ("readings", "1"),
        ("readings", "2"),
    ]


def test_those_of_a_version_are_removed(penstock: Run, store: Store) -> None:
    result = penstock("snapshots", "remove", "readings", "--version", "1", "--yes")

    assert result.stderr == "1 snapshot removed\n"
    assert [one.version for one in store.admin.snapshots()] == ["2"]


def test_those_that_were_saved_lately_stay(penstock: Run, store: Store) -> None:
    result = penstock("snapshots", "remove", "readings", "--not-saved-for", "1d", "--yes")

    assert result.stderr == "0 snapshots removed\n"
    assert len(store.admin.snapshots()) == 2


@pytest.mark.parametrize("arguments", [["other"], ["readings", "--version", "3"]])
def test_an_unknown_decider_or_version_is_refused(penstock: Run, arguments: list[str]) -> None:
    result = penstock("snapshots", "remove", *arguments, "--yes")

    assert result.exit_code == 2
    assert "must be one that has snapshots" in result.stderr
