"""What is in the log, and how complete reading is."""

from __future__ import annotations

import dataclasses

import pytest

from penstock import AsyncStore, Edition, Store
from penstock.database.edition import SCHEMA_VERSION
from penstock.errors import ValidationError


def test_an_empty_log_has_no_categories_no_streams_and_no_head(any_store: Store) -> None:
    status = any_store.status()

    assert any_store.categories() == []
    assert any_store.streams() == []
    assert (status.head, status.behind, status.open_writers) == (0, 0, ())


def test_a_category_has_the_position_and_time_of_its_last_message(any_store: Store) -> None:
    for stream_name in ("account-1", "account:command-1", "account-2"):
        any_store.write_message(stream_name, "Happened")

    found = any_store.categories()

    (last,) = any_store.get_stream_messages("account-2")
    assert [(one.category, one.head) for one in found] == [("account", 3), ("account:command", 2)]
    assert found[0].last_written == last.time


def test_a_stream_has_the_position_and_time_of_its_last_message(any_store: Store) -> None:
    for stream_name in ("account-2", "account-1", "account-1"):
        any_store.write_message(stream_name, "Happened")

    found = any_store.streams()

    last = any_store.get_last_stream_message("account-1")
    assert last is not None
    assert [(one.stream_name, one.version) for one in found] == [("account-1", 1), ("account-2", 0)]
    assert found[0].last_written == last.time


def test_streams_come_in_pages_each_after_the_last_name(any_store: Store) -> None:
    written = sorted(f"account-{n}" for n in range(5))
    for stream_name in written:
        any_store.write_message(stream_name, "Opened")

    pages = [any_store.streams(limit=2)]
    while pages[-1]:
        pages.append(any_store.streams(after=pages[-1][-1].stream_name, limit=2))

    assert [len(page) for page in pages] == [2, 2, 1, 0]
    assert [one.stream_name for page in pages for one in page] == written


def test_streams_of_a_category_are_its_own_only(any_store: Store) -> None:
    for stream_name in ("account", "account-1", "account:command-1", "accounting-1"):
        any_store.write_message(stream_name, "Happened")

    found = any_store.streams("account")

    assert [one.stream_name for one in found] == ["account", "account-1"]


@pytest.mark.parametrize(
    ("after", "left"),
    [
        ("a", ["account", "account-1", "account-2"]),
        ("account", ["account-1", "account-2"]),
        ("account-1", ["account-2"]),
        ("z", []),
    ],
)
def test_streams_of_a_category_begin_after_any_name(
    any_store: Store, after: str, left: list[str]
) -> None:
    for stream_name in ("about-1", "account", "account-1", "account-2", "zebra-1"):
        any_store.write_message(stream_name, "Happened")

    found = any_store.streams("account", after)

    assert [one.stream_name for one in found] == left


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"category": "account-1"}, "category"),
        ({"category": ""}, "category"),
        ({"after": "\0"}, "after"),
        ({"after": None}, "after"),
        ({"limit": 0}, "limit"),
        ({"limit": True}, "limit"),
        ({"limit": 2**63}, "limit"),
    ],
)
def test_a_listing_that_makes_no_sense_is_refused(
    store: Store, arguments: dict[str, str | int], name: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        store.streams(**arguments)  # type: ignore[arg-type]

    assert refused.value.name == name


def test_the_status_tells_the_edition_and_the_versions(any_store: Store) -> None:
    status = any_store.status()

    assert status.edition is any_store.context.edition
    assert status.schema_version == (None if status.edition is Edition.GENUINE else SCHEMA_VERSION)
    assert status.message_store_version == any_store.message_store_version()
    assert status.server_version
    assert not status.standby


def test_an_open_writer_is_named_with_the_position_it_holds_back(store: Store) -> None:
    store.write_message("account-1", "Opened")
    with store.transaction() as transaction:
        transaction.write_message("account-2", "Opened")
        store.write_message("account-3", "Opened")

        status = store.status()

        (writer,) = status.open_writers
        assert (status.head, status.watermark, status.behind) == (3, 1, 2)
        assert (writer.pid, writer.bound) == (transaction.connection.info.backend_pid, 2)
        assert (writer.role, writer.application_name) == ("postgres", "penstock")
        assert writer.state == "idle in transaction"
        assert writer.age is not None
        assert writer.age.total_seconds() >= 0


def test_positions_that_were_rolled_back_hold_nobody_back(store: Store) -> None:
    store.write_message("account-1", "Opened")
    with store.transaction() as transaction:
        transaction.write_message("account-2", "Opened")
        transaction.rollback()

    status = store.status()

    assert (status.head, status.behind, status.open_writers) == (1, 0, ())


async def test_async_code_gets_the_same(async_store: AsyncStore) -> None:
    await async_store.write_message("account-1", "Opened")

    categories = await async_store.categories()
    streams = await async_store.streams()
    status = await async_store.status()

    assert [one.category for one in categories] == ["account"]
    assert [one.stream_name for one in streams] == ["account-1"]
    assert dataclasses.asdict(status)["head"] == 1
