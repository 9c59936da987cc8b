"""What a web handler returns: values of ours as JSON, by FastAPI, pydantic and `json`."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import json
import pickle
from collections.abc import Callable, MutableMapping
from functools import partial
from typing import Any

import pytest
from fastapi import FastAPI
from pydantic import BaseModel, TypeAdapter

import penstock
from penstock import AsyncStore, Message, RecordedMessage, Settings, Store
from penstock.admin import ParkedMessage


def answer(handler: Callable[[], Any], returns: Any) -> tuple[int, Any]:
    """Return status and JSON of a handler that says what it returns, or does not (`None`)."""
    app = FastAPI()
    app.get("/", response_model=returns)(handler)
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": []}
    asyncio.run(app(scope, receive, send))
    return sent[0]["status"], json.loads(b"".join(one.get("body", b"") for one in sent[1:]))


@pytest.fixture
def message(store: Store) -> RecordedMessage:
    store.write_message("account-1", "Opened", {"owner": "Ada"}, {"by": "me"})
    return store.get_stream_messages("account-1")[0]


class TestARecordedMessage:
    def test_becomes_a_dict_that_json_can_write(self, message: RecordedMessage) -> None:
        written = json.loads(json.dumps(message.to_dict()))

        assert written == {
            "id": str(message.id),
            "stream_name": "account-1",
            "type": "Opened",
            "position": 0,
            "global_position": 1,
            "data": {"owner": "Ada"},
            "metadata": {"by": "me"},
            "time": message.time.isoformat(),
        }

    @pytest.mark.parametrize("returns", [None, RecordedMessage])
    def test_is_returned_by_fastapi(self, message: RecordedMessage, returns: Any) -> None:
        status, body = answer(lambda: message, returns)

        assert status == 200
        assert list(body) == list(message.to_dict())
        assert body["data"] == {"owner": "Ada"}
        assert body["id"] == str(message.id)

    @pytest.mark.parametrize("returns", [None, list[RecordedMessage]])
    def test_is_returned_in_a_list(self, message: RecordedMessage, returns: Any) -> None:
        status, body = answer(lambda: [message, message], returns)

        assert (status, len(body)) == (200, 2)

    def test_is_a_field_of_a_model(self, message: RecordedMessage) -> None:
        class Page(BaseModel):
            messages: list[RecordedMessage]

        page = Page(messages=[message])

        assert page.messages == [message]
        assert json.loads(page.model_dump_json())["messages"][0]["type"] == "Opened"
        assert "stream_name" in json.dumps(Page.model_json_schema())

    def test_is_taken_for_a_dataclass(self, message: RecordedMessage) -> None:
        assert dataclasses.asdict(message)["stream_name"] == "account-1"
        assert dataclasses.replace(message, position=7).position == 7


def test_a_message_becomes_a_dict_that_json_can_write() -> None:
    message = Message("Opened", {"owner": "Ada"}, id=penstock.new_id())

    assert json.loads(json.dumps(message.to_dict())) == {
        "id": str(message.id),
        "type": "Opened",
        "data": {"owner": "Ada"},
        "metadata": None,
    }


def test_other_values_are_returned_by_fastapi(store: Store, message: RecordedMessage) -> None:
    mail = store.outbox.enqueue("mail", {"to": "Ada"})
    join = store.joins.start("monday", 1)
    values = [
        Message("Opened"),
        ParkedMessage(message, "why", 1, message.time, False),
        store.outbox.get(mail),
        store.joins.get(join),
        store.status(),
    ]

    for value in values:
        assert value is not None
        for returns in (None, type(value)):
            status, body = answer(partial(copy.copy, value), returns)
            assert (status, type(body)) == (200, dict), value
        assert TypeAdapter(type(value)).dump_json(value)


class TestAStore:
    @pytest.mark.parametrize("how", [pickle.dumps, copy.deepcopy])
    def test_cannot_be_pickled_or_copied_and_says_what_can(
        self, how: Callable[[Any], Any], store: Store
    ) -> None:
        with pytest.raises(TypeError, match=r"store\.settings"):
            how(store)

    async def test_cannot_be_pickled_in_async_code(self, async_store: AsyncStore) -> None:
        with pytest.raises(TypeError, match=r"store\.settings"):
            pickle.dumps(async_store)

    def test_has_settings_that_can(self, store: Store) -> None:
        settings: Settings = pickle.loads(pickle.dumps(store.settings))

        with penstock.connect(settings) as other:
            assert other.stream_version("account-1") is None
