"""`penstock streams` and `penstock categories` list what is in the log."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

import penstock
from penstock import Store
from tests.cli.conftest import Run, run


@pytest.fixture
def names(store: Store) -> None:
    for name in ("account-1", "account-1", "account-2", "account:command-1", "transfer-1"):
        store.write_message(name, "Happened")


@pytest.mark.usefixtures("names")
def test_streams_are_listed_by_name_with_their_versions(penstock: Run) -> None:
    result = penstock("streams")

    lines = [line.split()[:2] for line in result.stdout.splitlines()]
    assert lines == [
        ["stream", "version"],
        ["account-1", "1"],
        ["account-2", "0"],
        ["account:command-1", "0"],
        ["transfer-1", "0"],
    ]


@pytest.mark.usefixtures("names")
def test_streams_of_one_category_are_those_of_that_category_only(penstock: Run) -> None:
    result = penstock("streams", "--category", "account", "--json")

    names = [json.loads(line)["stream_name"] for line in result.stdout.splitlines()]
    assert names == ["account-1", "account-2"]


@pytest.mark.usefixtures("names")
def test_a_full_page_of_streams_says_how_to_get_the_next(penstock: Run) -> None:
    first = penstock("streams", "--limit", "3")

    second = penstock("streams", "--after", "account:command-1")

    assert first.stderr == "there may be more: --after account:command-1\n"
    assert second.stdout.splitlines()[1].startswith("transfer-1")
    assert second.stderr == ""


@pytest.mark.usefixtures("names")
def test_categories_are_listed_with_their_heads(penstock: Run) -> None:
    result = penstock("categories")

    lines = [line.split()[:2] for line in result.stdout.splitlines()]
    assert lines == [
        ["category", "head"],
        ["account", "3"],
        ["account:command", "4"],
        ["transfer", "5"],
    ]


@pytest.mark.usefixtures("names")
def test_categories_as_json_are_one_object_per_line(penstock: Run) -> None:
    result = penstock("categories", "--json")

    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(one["category"], one["head"]) for one in found] == [
        ("account", 3),
        ("account:command", 4),
        ("transfer", 5),
    ]
    assert found[0]["last_written"].endswith("Z")


def test_long_names_keep_their_length_in_a_pipe(penstock: Run, store: Store) -> None:
    store.write_message("account-" + "x" * 300, "Opened")

    result = penstock("streams")

    assert "account-" + "x" * 300 in result.stdout


def test_both_work_on_a_genuine_message_db(new_database: Callable[[str], str]) -> None:
    url = new_database("genuine")
    with penstock.connect(url) as store:
        store.write_message("account-1", "Opened")

    streams = run("streams", url=url)
    categories = run("categories", url=url)

    assert streams.stdout.splitlines()[1].startswith("account-1        0  ")
    assert categories.stdout.splitlines()[1].startswith("account      1  ")
