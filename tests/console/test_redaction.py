"""Fields that are hidden are hidden everywhere: pages, JSON, downloads, keys, searches."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import UUID

import httpx2
import pytest

from penstock import AsyncStore, console
from penstock.console.plain import HIDDEN, Plain
from penstock.errors import ValidationError
from tests.console.conftest import asking
from tests.console.filled import Filled


@pytest.fixture
async def client(filled_store: AsyncStore) -> AsyncIterator[httpx2.AsyncClient]:
    async with asking(filled_store, actions=True, redact=["email", "card", "user"]) as client:
        yield client


async def test_a_hidden_field_is_in_no_answer(client: httpx2.AsyncClient, filled: Filled) -> None:
    addresses = [
        *("/log/message?key=1", "/log/messages?target=account", "/log", "/trace?key=1"),
        *("/search?type=Opened", "/dead-letters", "/groups/group?group_id=seats"),
        *("/boundaries?conditions=joined+course%3DAlgebra", f"/outbox/message?id={filled.ready}"),
    ]
    for address in addresses:
        for path in (address, f"/api{address}"):
            answer = await client.get(path)
            assert answer.status_code == 200
            for secret in ("ada@example.com", "no. 4242", "user:joe", "user%3Ajoe", '"user":"joe"'):
                assert secret not in answer.text, path


async def test_a_hidden_field_is_not_in_downloads(
    client: httpx2.AsyncClient, filled: Filled
) -> None:
    message = await client.get("/log/download?key=1")
    payload = await client.get(f"/outbox/download?id={filled.ready}")

    assert message.json()["data"] == {"number": 0, "owner": {"email": HIDDEN}}
    assert payload.json()["card"] == HIDDEN


@pytest.mark.parametrize(
    "address",
    [
        "/search?type=joined&attribute=user%3Djoe",
        "/boundaries?conditions=joined+user%3Djoe",
        "/groups/group?group_id=seats&partition_key=course:Algebra|user:joe",
    ],
)
async def test_a_hidden_field_cannot_be_guessed(client: httpx2.AsyncClient, address: str) -> None:
    answer = await client.get(address)

    assert answer.status_code == 400
    assert "does not hide" in answer.text


async def test_what_has_hidden_fields_cannot_be_edited(
    client: httpx2.AsyncClient, filled: Filled
) -> None:
    page = await client.get(f"/dead-letters/letter?key=outbox/{filled.failed}")

    assert "<textarea" not in page.text


def test_values_become_plain() -> None:
    value = {"a": timedelta(seconds=2), "b": UUID(int=1), "c": (1, b"x"), 4: {2.5}}

    assert Plain()(value) == {"a": 2.0, "b": str(UUID(int=1)), "c": [1, "x"], "4": [2.5]}


async def test_a_hidden_field_of_the_metadata_is_hidden_where_it_is_repeated(
    filled_store: AsyncStore,
) -> None:
    async with asking(filled_store, redact=["correlation_id"]) as client:
        message = (await client.get("/api/log/message?key=2")).json()["message"]
        search = await client.get("/search?correlation=c-1")

    assert message["correlation_id"] == HIDDEN
    assert message["metadata"]["value"]["correlation_id"] == HIDDEN
    assert message["causation_id"] != HIDDEN
    assert search.status_code == 400


def test_keys_of_partitions_are_hidden_wherever_they_are_written() -> None:
    plain = Plain(["user"])
    key = "partition/seats/course%3AAlgebra%7Cuser%3Ajoe"

    hidden = plain({"data": {"key": [key], "result": "The partition user:joe was resumed."}})

    assert "joe" not in str(hidden)
    assert "Algebra" in str(hidden)


def test_json_that_is_stored_as_text_has_its_fields_hidden() -> None:
    plain = Plain(["card"])

    assert plain({"payload": '{"card": 1, "b": 2}'}) == {"payload": '{"card":"•••","b":2}'}
    assert plain({"payload": '{"card": 1, "b'}) == {"payload": HIDDEN}
    assert plain({"type": "card"}) == {"type": "card"}


@pytest.mark.parametrize("redact", ["email", [""], [1]])
def test_names_that_are_none_are_refused(filled_store: AsyncStore, redact: object) -> None:
    with pytest.raises(ValidationError, match="redact"):
        console.app(filled_store, redact=redact)  # type: ignore[arg-type]
