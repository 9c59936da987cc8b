"""message-db-py, a client from PyPI that was written for Message DB, works unchanged on ours.

It connects as its documentation says, as the role message_store, whose search path leads to the
schema of the same name. Each test runs on a genuine Message DB too, to show that it tells nothing
but what that client has always done.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from message_db.client import MessageDB

import penstock


@pytest.fixture(params=["penstock", "beside", "genuine"])
def url(request: pytest.FixtureRequest, new_database: Callable[[str], str]) -> str:
    return new_database(request.param)


@pytest.fixture
def client(url: str) -> Iterator[Any]:
    client = MessageDB.from_url(url.replace("postgres@", "message_store@"), max_connections=4)
    yield client
    client.connection_pool._connection_pool.closeall()


def test_a_message_is_written_and_read_back(client: Any) -> None:
    position = client.write("account-1", "Opened", {"owner": "Ada"}, {"by": "web"})

    (message,) = client.read_stream("account-1")
    assert position == 0
    assert message.keys() == {
        "id", "stream_name", "type", "position", "global_position", "data", "metadata", "time",
    }  # fmt: skip
    assert (message["stream_name"], message["type"]) == ("account-1", "Opened")
    assert (message["position"], message["global_position"]) == (0, 1)
    assert (message["data"], message["metadata"]) == ({"owner": "Ada"}, {"by": "web"})


def test_a_batch_is_written_in_order(client: Any) -> None:
    client.write("account-1", "Opened", {})

    last = client.write_batch(
        "account-1",
        [("Deposited", {"amount": 5}), ("Withdrawn", {"amount": 2}, {"by": "atm"})],
        expected_version=0,
    )

    assert last == 2
    assert [one["type"] for one in client.read("account-1", position=1)] == [
        "Deposited",
        "Withdrawn",
    ]


def test_a_wrong_expected_version_is_reported_as_ever(client: Any) -> None:
    client.write("account-1", "Opened", {})

    expected = "P0001-ERROR:  Wrong expected version: 4 (Stream: account-1, Stream Version: 0)"
    with pytest.raises(ValueError, match=re.escape(expected)):
        client.write("account-1", "Closed", {}, expected_version=4)

    assert len(client.read("account-1")) == 1


def test_a_batch_that_fails_leaves_nothing(client: Any) -> None:
    client.write("account-1", "Opened", {})

    with pytest.raises(ValueError, match="Wrong expected version"):
        client.write_batch("account-1", [("A", {}), ("B", {})], expected_version=3)

    assert len(client.read("account-1")) == 1


def test_a_category_is_read_in_pages(client: Any) -> None:
    for number in range(5):
        client.write(f"account-{number}", "Opened", {"number": number})
    client.write("order-1", "Placed", {})

    first = client.read_category("account", no_of_messages=3)
    second = client.read("account", position=first[-1]["global_position"] + 1)

    assert [one["data"]["number"] for one in first + second] == [0, 1, 2, 3, 4]


def test_all_is_the_whole_log(client: Any) -> None:
    client.write("account-1", "Opened", {})
    client.write("order-1", "Placed", {})

    assert [one["stream_name"] for one in client.read("$all")] == ["account-1", "order-1"]
    assert [one["stream_name"] for one in client.read("$all", position=1)] == ["order-1"]


def test_a_group_shares_a_category(client: Any) -> None:
    for number in range(20):
        client.write(f"account-{number}", "Opened", {})

    shares = [
        {
            one["stream_name"]
            for one in client.read_category(
                "account", consumer_group_member=member, consumer_group_size=3
            )
        }
        for member in range(3)
    ]

    assert all(shares)
    assert sum(map(len, shares)) == len(set.union(*shares)) == 20


def test_the_last_message_of_a_stream(client: Any) -> None:
    client.write("account-1", "Opened", {})
    client.write("account-1", "Closed", {"why": "moved"})

    last = client.read_last_message("account-1")

    assert (last["type"], last["position"], last["data"]) == ("Closed", 1, {"why": "moved"})
    assert client.read_last_message("account-2") is None


def test_the_streams_of_a_category(client: Any) -> None:
    for stream_name in ("account-1", "account-2", "account:snapshot-1", "order-3"):
        client.write(stream_name, "Written", {})

    assert client.stream_identifiers("account") == ["1", "2"]


def test_it_and_penstock_share_a_log(client: Any, url: str) -> None:
    with penstock.connect(url) as store:
        client.write("account-1", "Opened", {"owner": "Ada"})
        store.write_message("account-1", "Deposited", {"amount": 5}, expected_version=0)
        client.write("account-1", "Closed", {}, expected_version=1)

        types = [message.type for message in store.get_stream_messages("account-1")]

    assert types == ["Opened", "Deposited", "Closed"]
    assert [one["type"] for one in client.read("account-1")] == types
