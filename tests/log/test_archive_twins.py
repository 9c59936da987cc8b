"""Of two equal logs, one of them archived at random places, every read gives the same answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import CommitMode, Message, RecordedMessage, Store
from penstock.log.retention import Keep
from tests.log.archiving import archived, in_table, store_with_warehouse

CATEGORIES = ("account", "order", "queue")
STREAMS = ("account-1", "account-2", "order-1", "order-2+x", "queue-mail")


@dataclass(frozen=True)
class Write:
    stream_name: str
    type: str
    correlation_id: str | None


@dataclass(frozen=True)
class Append:
    """A message with a stream of its own."""

    type: str


@dataclass(frozen=True)
class Archive:
    category: str
    keep: int
    batch_size: int


ACTIONS = st.one_of(
    st.builds(
        Write,
        st.sampled_from(STREAMS),
        st.sampled_from(("Opened", "Closed")),
        st.sampled_from((None, "a", "b")),
    ),
    st.builds(Append, st.sampled_from(("Paid", "Sent"))),
    st.builds(
        Archive,
        st.sampled_from((*CATEGORIES, "Paid", "Sent")),
        st.integers(0, 4),
        st.sampled_from((1, 3, 100)),
    ),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lake")


@pytest.fixture
def twins(new_database: Callable[[str], str], folder: Path) -> Iterator[tuple[Store, Store]]:
    with ExitStack() as opened:
        first, second = (
            opened.enter_context(store_with_warehouse(new_database("penstock"), folder))
            for _ in range(2)
        )
        yield first, second


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(actions=st.lists(ACTIONS, min_size=8, max_size=40))
def test_every_read_gives_the_same_answer(twins: tuple[Store, Store], actions: list[Any]) -> None:
    whole, parted = twins
    for one in twins:
        with psycopg.connect(one.settings.conninfo()) as connection:
            connection.execute("truncate message_store.messages restart identity")

    for number, action in enumerate(actions, 1):
        if isinstance(action, Archive):
            archived(parted, action.category, Keep(count=action.keep), action.batch_size)
        else:
            for one in twins:
                _write(one, action, number)

    moved = len(in_table(whole)) - len(in_table(parted))
    assert parted.status().archived_messages == moved
    for read in _reads(len(in_table(whole)) + 1):
        assert read(store=parted) == read(store=whole)


def _write(store: Store, action: Write | Append, number: int) -> None:
    id = UUID(int=number)
    if isinstance(action, Append):
        store.append([Message(action.type, {"number": number}, id=id)])
        return
    if action.stream_name == "queue-mail":
        store.queue("mail").offer(number, id=id)
        return
    metadata = action.correlation_id and {"correlation_id": action.correlation_id}
    store.write_message(
        action.stream_name, action.type, {"number": number}, metadata or None, id=id
    )


def _reads(end: int) -> Iterator[partial[Any]]:
    """All kinds of reads, from some positions and in pages of some sizes."""
    for category in (*CATEGORIES, "Paid", "$all"):
        for position, size in ((1, -1), (1, 3), (end // 2, 2), (end, 5)):
            yield partial(_category, category, position, size)
        yield partial(_pages, category)
        yield partial(_category, category, consumer_group_member=1, consumer_group_size=2)
        yield partial(_category, category, correlation="account")
        yield partial(_category, category, correlation="queue")
        yield partial(_head, category)
    for stream in (*STREAMS, "Paid-00000000-0000-0000-0000-000000000003"):
        yield partial(_stream, stream)
    for mode in CommitMode:
        yield partial(_polled, mode)


def _category(category: str, *page: Any, store: Store, **filters: Any) -> Any:
    return _shown(store.get_category_messages(category, *page, **filters))


def _pages(category: str, store: Store) -> Any:
    return _shown(store.read_category(category, batch_size=2))


def _head(category: str, store: Store) -> Any:
    return store.category_head(category)


def _stream(stream: str, store: Store) -> Any:
    pages = [store.get_stream_messages(stream, *page) for page in ((0, -1), (1, 2), (3, 1))]
    last = [store.get_last_stream_message(stream), store.get_last_stream_message(stream, "Opened")]
    version = store.stream_version(stream) if stream in STREAMS else None
    return [_shown(page) for page in pages], _shown(last), version


def _polled(mode: CommitMode, store: Store) -> list[Any]:
    """What a session reads from the beginning, and what it says at the end."""
    session = store.queue("mail").create_consumer(f"reader-{mode.value}", mode)
    polled: list[Any] = [session.seek_to_beginning()]
    while (record := session.poll()) is not None:
        polled.append((record.offset, record.value))
        session.commit()
    return [*polled, session.missed, session.committed_offset()]


def _shown(messages: Any) -> list[tuple[Any, ...]]:
    """Messages without their times, which differ between the logs."""
    return [_fields(one) for one in messages if one is not None]


def _fields(one: RecordedMessage) -> tuple[Any, ...]:
    return (
        one.id, one.stream_name, one.type, one.position, one.global_position, one.data, one.metadata
    )  # fmt: skip
