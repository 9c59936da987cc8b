"""Interceptors: change messages on their way, and stand around every operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import msgspec
import psycopg
import pytest

import penstock
from penstock import Call, Interceptor, Message, RecordedMessage, Store, WrongExpectedVersion
from penstock.errors import ValidationError


class Stamp(Interceptor):
    """Puts its name at the end of `marks`, on the way in and on the way out."""

    def __init__(self, name: str) -> None:
        self._name = name

    def on_write(self, stream_name: str, message: Message) -> Message:
        marks = [*(message.metadata or {}).get("marks", []), f"{self._name} {stream_name}"]
        return message.with_metadata(marks=marks)

    def on_read(self, message: RecordedMessage) -> RecordedMessage:
        marks = [*message.data.get("marks", []), self._name]
        return msgspec.structs.replace(message, data={**message.data, "marks": marks})


class Tracer(Interceptor):
    """Keeps a line for each beginning and end of an operation."""

    def __init__(self, name: str = "") -> None:
        self.lines: list[str] = []
        self.calls: list[Call] = []
        self._name = name

    @contextmanager
    def around(self, call: Call) -> Iterator[None]:
        self.calls.append(call)
        self.lines.append(f"{self._name}> {call.name}")
        try:
            yield
        except Exception as error:
            self.lines.append(f"{self._name}! {type(error).__name__}")
            raise
        self.lines.append(f"{self._name}< {call.result}")


class Refuse(Interceptor):
    """Lets no message through."""

    def on_write(self, stream_name: str, message: Message) -> Message:
        raise PermissionError(stream_name)


@pytest.fixture
def connect(database_url: str) -> Iterator[Callable[..., Store]]:
    """Connect to one database with interceptors."""
    stores: list[Store] = []

    def connect(*interceptors: Interceptor) -> Store:
        stores.append(penstock.connect(database_url, interceptors=interceptors))
        return stores[-1]

    yield connect
    for store in stores:
        store.close()


class TestOnWrite:
    def test_changes_what_is_written(self, connect: Callable[..., Store]) -> None:
        connect(Stamp("a")).write_message("account-1", "Opened", {"owner": "Ada"}, {"user": "x"})

        (message,) = connect().get_stream_messages("account-1")
        assert message.metadata == {"user": "x", "marks": ["a account-1"]}
        assert message.data == {"owner": "Ada"}

    def test_runs_in_the_order_given(self, connect: Callable[..., Store]) -> None:
        store = connect(Stamp("a"), Stamp("b"))

        store.write_messages("account-1", [Message("Opened"), Message("Closed")])

        messages = connect().get_stream_messages("account-1")
        assert [message.metadata for message in messages] == [
            {"marks": ["a account-1", "b account-1"]}
        ] * 2

    def test_may_refuse_a_message(self, connect: Callable[..., Store]) -> None:
        store = connect(Refuse())

        with pytest.raises(PermissionError, match="account-1"):
            store.write_message("account-1", "Opened")
        with pytest.raises(PermissionError), store.transaction() as transaction:
            transaction.write_messages("account-1", [Message("Opened")])

        assert store.stream_version("account-1") is None

    def test_may_change_type_and_id(self, connect: Callable[..., Store]) -> None:
        other = Message("Other")

        class Change(Interceptor):
            def on_write(self, stream_name: str, message: Message) -> Message:
                return replace(message, type="Changed", id=other.id)

        tracer = Tracer()
        store = connect(Change(), tracer)

        store.write_message("account-1", "Opened")

        (message,) = store.get_stream_messages("account-1")
        assert (message.type, message.id) == ("Changed", other.id)
        assert tracer.calls[0].facts["type"] == "Changed"

    @pytest.mark.parametrize("result", [None, {"type": "Opened"}, "Opened"])
    def test_must_return_a_message(self, connect: Callable[..., Store], result: Any) -> None:
        class Forget(Interceptor):
            def on_write(self, stream_name: str, message: Message) -> Message:
                return result  # type: ignore[no-any-return]

        store = connect(Forget())

        with pytest.raises(ValidationError, match="Forget"):
            store.write_message("account-1", "Opened")

        assert store.stream_version("account-1") is None


class TestOnRead:
    def test_changes_what_is_read(self, connect: Callable[..., Store]) -> None:
        connect().write_message("account-1", "Opened")
        store = connect(Stamp("a"))

        messages = [
            *store.get_stream_messages("account-1"),
            *store.get_category_messages("account"),
            *store.read_stream("account-1"),
            *store.read_category("$all"),
            store.get_last_stream_message("account-1"),
        ]

        assert [message and message.data for message in messages] == [{"marks": ["a"]}] * 5

    @pytest.mark.parametrize("result", [None, Message("Opened")])
    def test_must_return_a_message(self, connect: Callable[..., Store], result: Any) -> None:
        class Forget(Interceptor):
            def on_read(self, message: RecordedMessage) -> RecordedMessage:
                return result  # type: ignore[no-any-return]

        connect().write_message("account-1", "Opened")

        with pytest.raises(ValidationError, match="Forget"):
            connect(Forget()).get_stream_messages("account-1")

    def test_runs_in_reverse_order(self, connect: Callable[..., Store]) -> None:
        connect().write_message("account-1", "Opened")

        (message,) = connect(Stamp("a"), Stamp("b")).get_stream_messages("account-1")

        assert message.data["marks"] == ["b", "a"]


class TestAround:
    def test_sees_each_operation_and_its_result(self, connect: Callable[..., Store]) -> None:
        tracer = Tracer()
        store = connect(tracer)

        store.write_message("account-1", "Opened")
        store.stream_version("account-1")
        store.message_store_version()

        assert tracer.lines == [
            "> write_message",
            "< 0",
            "> stream_version",
            "< 0",
            "> message_store_version",
            "< 1.3.0",
        ]

    def test_sees_what_an_operation_is_about(self, connect: Callable[..., Store]) -> None:
        tracer = Tracer()
        store = connect(tracer)

        store.write_message("account-1", "Opened")
        store.write_messages("account-1", [Message("A"), Message("B")])
        store.get_category_messages("account")

        assert [dict(call.facts) for call in tracer.calls] == [
            {"stream_name": "account-1", "type": "Opened"},
            {"stream_name": "account-1", "count": 2},
            {"category_name": "account"},
        ]

    def test_sees_an_error_and_lets_it_pass(self, connect: Callable[..., Store]) -> None:
        tracer = Tracer()

        with pytest.raises(WrongExpectedVersion):
            connect(tracer).write_message("account-1", "Opened", expected_version=5)

        assert tracer.lines == ["> write_message", "! WrongExpectedVersion"]

    def test_nests_in_the_order_given(self, connect: Callable[..., Store]) -> None:
        lines: list[str] = []
        outer, inner = Tracer("outer"), Tracer("inner")
        outer.lines = inner.lines = lines

        connect(outer, inner).stream_version("account-1")

        assert lines == [
            "outer> stream_version",
            "inner> stream_version",
            "inner< None",
            "outer< None",
        ]

    def test_stands_around_the_operations_of_a_transaction(
        self, connect: Callable[..., Store]
    ) -> None:
        tracer = Tracer()

        with connect(tracer).transaction() as transaction:
            transaction.write_message("account-1", "Opened")

        assert tracer.lines == ["> write_message", "< 0"]

    def test_stands_around_the_operations_on_your_connection(
        self, connect: Callable[..., Store]
    ) -> None:
        tracer = Tracer()
        store = connect(tracer, Stamp("a"))

        with psycopg.connect(store.settings.conninfo()) as connection:
            store.using(connection).write_message("account-1", "Opened")

        (message,) = store.get_stream_messages("account-1")
        assert message.metadata == {"marks": ["a account-1"]}
        assert tracer.lines[:2] == ["> write_message", "< 0"]


async def test_they_all_work_in_async_code(database_url: str) -> None:
    tracer = Tracer()
    interceptors = [tracer, Stamp("a")]

    async with await penstock.connect_async(database_url, interceptors=interceptors) as store:
        await store.write_message("account-1", "Opened")
        async with store.transaction() as transaction:
            await transaction.write_message("account-1", "Closed")
        messages = [message async for message in store.read_stream("account-1")]
        with pytest.raises(WrongExpectedVersion):
            await store.write_message("account-1", "Opened", expected_version=9)

    assert [message.metadata for message in messages] == [{"marks": ["a account-1"]}] * 2
    assert [message.data for message in messages] == [{"marks": ["a"]}] * 2
    assert tracer.lines[:4] == ["> write_message", "< 0", "> write_message", "< 1"]
    assert tracer.lines[-1] == "! WrongExpectedVersion"
