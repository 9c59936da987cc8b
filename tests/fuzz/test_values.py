"""Names, messages, conditions, guards and settings made of anything: a value, or a typed error."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any
from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st

from penstock import Guard, Message, PenstockError, QueryCondition, Settings, Store
from penstock.message import names
from tests.fuzz.arguments import Moved
from tests.fuzz.hostile import many, texts

numbers = st.integers() | st.floats()
anything = st.recursive(
    texts | numbers | st.none() | st.booleans() | st.binary() | st.builds(object) | st.uuids(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts | numbers, inner, max_size=3),
    max_leaves=6,
)


@many
@given(category=texts, id=texts | st.none(), types=st.lists(texts, max_size=3))
def test_a_stream_name_is_refused_or_comes_apart_as_it_was_put_together(
    category: str, id: str | None, types: list[str]
) -> None:
    with suppress(ValueError):
        name = names.stream_name(category, id, types=types)

        assert names.id(name) == id
        assert names.base_category(name) == names.base_category(category)
        assert names.types(name)[len(names.types(category)) :] == types


@many
@given(type=texts | anything, data=anything, metadata=anything, id=texts | st.none())
def test_a_message_is_refused_or_comes_back(
    store: Store, type: Any, data: Any, metadata: Any, id: Any
) -> None:
    stream_name = f"fuzz-{uuid4()}"
    with suppress(PenstockError):
        message = Message(type, data, metadata, **({} if id is None else {"id": id}))
        store.write_message(stream_name, message)

        (read,) = store.get_stream_messages(stream_name)
        assert (read.id, read.type) == (message.id, type)
        assert read.data.keys() == (data or {}).keys()


@many
@given(type=texts | st.just("fuzz.moved"), name=anything | st.just("device"), value=anything)
def test_a_condition_is_refused_or_can_be_read_and_guarded(
    store: Store, type: Any, name: Any, value: Any
) -> None:
    with suppress(PenstockError):
        condition = QueryCondition(type, name, value)
        _, guard = store.read([condition])

        appended = store.append(Message("Opened"), guard)
        assert appended.guard is not None


@many
@given(
    low=numbers | anything,
    seen=st.lists(st.tuples(numbers, numbers) | anything, max_size=3),
    after=numbers | anything,
    limit=numbers | anything,
)
def test_a_guard_and_a_read_with_any_positions_are_refused_or_work(
    store: Store, low: Any, seen: Any, after: Any, limit: Any
) -> None:
    conditions = tuple(Moved.to_conditions(device="1"))
    with suppress(PenstockError):
        store.append(Message("Opened"), Guard(conditions, low, seen))
    with suppress(PenstockError):
        store.read(conditions, after, limit)


FIELDS = [one.name for one in fields(Settings)]


@many
@given(options=st.dictionaries(st.sampled_from(FIELDS) | texts, anything, max_size=3))
def test_settings_are_refused_or_say_where_without_a_password(options: dict[str, Any]) -> None:
    options["password"] = "hunter2"
    try:
        settings = Settings.load(**options)
        shown = repr(settings) + settings.where() * (not settings.embedded)
    except PenstockError as error:
        shown = str(error)

    assert "hunter2" not in shown


@many
@given(address=texts | st.builds("postgresql://ada:{}@host/{}".format, texts, texts))
def test_an_address_is_refused_or_taken(address: str) -> None:
    with suppress(PenstockError):
        settings = Settings.load(address)

        assert settings.conninfo()
        assert isinstance(settings.folder, Path)
