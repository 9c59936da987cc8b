"""A crash of the server undoes the saves of a position that did not wait for the disk."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import penstock
from penstock import Store
from penstock.errors import PositionConflict
from tests.consumers.consuming import Numbers, consume, fill, new_category, new_consumer
from tests.servers import OwnServer, own_server


@pytest.fixture(scope="module")
def own() -> Iterator[OwnServer]:
    with own_server() as server:
        yield server


@pytest.fixture
def own_store(own: OwnServer) -> Iterator[Store]:
    with penstock.connect(own.url) as store:
        yield store


@pytest.mark.parametrize(
    ("positions", "transactional"), [("table", False), ("table", True), ("hybrid", False)]
)
def test_a_consumer_that_runs_on_handles_nothing_again(
    own: OwnServer, own_store: Store, positions: str, transactional: bool
) -> None:
    category, numbers = new_category(), Numbers()
    consumer = new_consumer(
        own_store,
        category,
        handlers={"Placed": numbers},
        positions=positions,
        transactional=transactional,
    )
    fill(own_store, category, 1)
    consumer.run_until_idle()
    own_store.write_message(f"{category}-1", "Ignored")  # so it is saved without a transaction
    with own.crashing():
        consumer.run_until_idle()
        saved = position(own_store, category)
    left = position(own_store, category)

    own_store.write_message(f"{category}-1", "Placed", {"number": 1})
    consumer.run_until_idle()

    assert left < saved
    assert numbers == [0, 1]
    assert consume(own_store, category, positions=positions) == []


def test_a_consumer_that_starts_handles_messages_again(own: OwnServer, own_store: Store) -> None:
    category = new_category()
    fill(own_store, category, 3)

    with own.crashing():
        new = consume(own_store, category, positions="table", position_update_interval=1)

    assert new == [0, 1, 2]
    assert consume(own_store, category, positions="table") == [1, 2]


@pytest.mark.parametrize("by", ["an operator", "another process"])
def test_a_position_that_is_moved_after_the_crash_is_not_overwritten(
    own: OwnServer, own_store: Store, by: str
) -> None:
    category = new_category()
    one, other = (
        new_consumer(
            own_store, category, handlers={"Placed": Numbers()}, positions="table", batch_size=1
        )
        for _ in range(2)
    )
    first, *_ = fill(own_store, category, 1)
    one.run_until_idle()
    fill(own_store, category, 2)
    with own.crashing():
        one.run_until_idle()

    if by == "an operator":
        own_store.admin.seek(category, "mailer", first, "table")
    else:
        other.run_once()
    moved = position(own_store, category)
    fill(own_store, category, 1)
    with pytest.raises(PositionConflict):
        one.run_until_idle()

    assert position(own_store, category) == moved


def position(store: Store, category: str) -> int:
    [found] = [one for one in store.admin.consumers() if one.category == category]
    assert found.position is not None
    return found.position
