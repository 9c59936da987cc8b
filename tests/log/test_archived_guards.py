"""Decisions go on as before when messages of declared types are archived."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.rows import dict_row

import penstock
from penstock import (
    ConcurrentAppendError,
    Guard,
    Message,
    QueryCondition,
    RecordedMessage,
    Store,
    TypedMessage,
)
from penstock.errors import ArchiveUnreachable, GuardedMessagesRemoved, IndexingUnfinished
from penstock.log.archive import archive
from penstock.log.retention import Keep
from tests.log.archiving import archived, in_table, store_with_warehouse
from tests.racing import wait_until_it_waits


class Lent(TypedMessage, type="archived.lent"):
    book: str | None = None
    reader: str | None = None
    note: str = ""


class Returned(TypedMessage, type="archived.returned"):
    book: str | None = None


MEMBER: dict[str, Any] = {"consumer_group_member": 0, "consumer_group_size": 2}
BOOK_A = [QueryCondition("archived.lent", "book", "a")]
TWO_LENT = [Lent(book="a", reader="x"), Lent(book="b", reader="x")]
LATER = [QueryCondition("archived.later", "book", "a")]


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    folder = tmp_path / "lake"
    folder.mkdir()
    return folder


@pytest.fixture
def store(database_url: str, warehouse: Path) -> Iterator[Store]:
    with store_with_warehouse(database_url, warehouse) as store:
        yield store


@pytest.fixture
def twins(new_database: Callable[[str], str], warehouse: Path) -> Iterator[tuple[Store, Store]]:
    """Two logs, to be written alike; the second is archived."""
    with (
        penstock.connect(new_database("penstock")) as plain,
        store_with_warehouse(new_database("penstock"), warehouse) as archived,
    ):
        yield plain, archived


def positions(store: Store, conditions: list[QueryCondition]) -> list[int]:
    return [message.global_position for message in store.read(conditions)[0]]


def execute(store: Store, statement: str) -> list[Any]:
    with psycopg.connect(store.settings.conninfo(), autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def wait_for_end(store: Store) -> int:
    """Write one message more, so that those before it can be archived; return its position."""
    return store.append(Lent(book="end")).position


class TestReads:
    def test_archived_messages_are_found_by_their_attributes(self, store: Store) -> None:
        store.append([Lent(book=book, reader="x", note="n" * 9) for book in "abab"])
        wait_for_end(store)
        before = store.read(BOOK_A)

        moved = archived(store, "archived.lent", batch_size=3)

        assert moved.moved == 4
        assert in_table(store) == [5]
        assert store.read(BOOK_A) == before
        assert [one.global_position for one in before[0]] == [1, 3]
        assert before[0][0].data["note"] == "n" * 9

    def test_some_archived_and_some_not(self, store: Store) -> None:
        store.append([Lent(book="a") for _ in range(6)])
        before = store.read(BOOK_A)

        archived(store, "archived.lent", Keep(count=2))

        assert store.read(BOOK_A) == before
        assert positions(store, BOOK_A) == [1, 2, 3, 4, 5, 6]
        assert [one.global_position for one in store.read(BOOK_A, 2, 3)[0]] == [3, 4, 5]

    def test_what_has_no_declared_type_stays_out_of_the_index(self, store: Store) -> None:
        store.append([Message("plain", {"book": "a"}) for _ in range(3)])
        archived(store, "plain")

        assert execute(store, "select * from penstock.archived_messages") == []

    def test_a_stub_has_the_declared_attributes_only(self, store: Store) -> None:
        store.append([Lent(book="a", note="long"), Lent(reader="x")])
        wait_for_end(store)
        archived(store, "archived.lent")

        stubs = execute(store, "select global_position, type, data from penstock.archived_messages")

        assert stubs[1] == (2, "archived.lent", {"reader": "x", "note": ""})

    def test_in_a_transaction_and_on_an_event_loop(self, store: Store) -> None:
        store.append(TWO_LENT)
        wait_for_end(store)
        before = store.read(BOOK_A)
        archived(store, "archived.lent")

        async def read() -> tuple[list[RecordedMessage], Guard]:
            settings = store.settings
            async with await penstock.connect_async(settings.conninfo()) as other:
                return await other.read(BOOK_A)

        with store.transaction() as transaction:
            assert transaction.read(BOOK_A) == before
        assert asyncio.run(read()) == before

    def test_on_a_connection_of_your_own(self, store: Store, database_url: str) -> None:
        store.append(TWO_LENT)
        wait_for_end(store)
        before = store.read(BOOK_A)
        members = store.get_category_messages("archived.lent", **MEMBER)
        archived(store, "archived.lent")

        with psycopg.connect(database_url, row_factory=dict_row) as mine:
            own = store.using(mine)
            assert own.read(BOOK_A) == before
            assert own.get_category_messages("archived.lent", **MEMBER) == members

    def test_without_the_files_it_fails_clearly_and_guards_go_on(
        self, store: Store, warehouse: Path
    ) -> None:
        store.append(TWO_LENT)
        wait_for_end(store)
        guard = store.read(BOOK_A)[1]
        archived(store, "archived.lent")
        shutil.rmtree(warehouse)

        with pytest.raises(ArchiveUnreachable):
            store.read(BOOK_A)
        store.append(Lent(book="a"), guard)

    def test_a_stub_whose_message_the_archive_lacks(self, store: Store) -> None:
        store.append(TWO_LENT)
        wait_for_end(store)
        archived(store, "archived.lent")
        execute(
            store,
            "update penstock.archived_messages set global_position = 99 where global_position = 1",
        )
        execute(
            store,
            "update penstock.message_attributes set global_position = 99 where global_position = 1",
        )

        with pytest.raises(ArchiveUnreachable, match="no message at global position 99"):
            store.read(BOOK_A)


class TestGuards:
    @pytest.mark.parametrize("several", [False, True])
    def test_what_was_read_and_archived_since_is_no_conflict(
        self, store: Store, several: bool
    ) -> None:
        store.append(TWO_LENT)
        wait_for_end(store)
        guard = Guard(tuple(BOOK_A), 0, ((1, 1),))
        archived(store, "archived.lent")

        store.append([Lent(book="a"), Returned(book="a")] if several else Lent(book="a"), guard)

        assert positions(store, BOOK_A) == [1, 4]

    @pytest.mark.parametrize("several", [False, True])
    def test_what_was_written_and_archived_since_is_a_conflict(
        self, store: Store, several: bool
    ) -> None:
        store.append(Lent(book="b"))
        guard = store.read(BOOK_A)[1]
        store.append(TWO_LENT)
        wait_for_end(store)
        archived(store, "archived.lent")

        with pytest.raises(ConcurrentAppendError) as conflict:
            store.append([Lent(book="a"), Returned()] if several else Lent(book="a"), guard)

        assert (conflict.value.type, conflict.value.position) == ("archived.lent", 2)

    def test_archived_messages_that_match_in_part_are_no_conflict(self, store: Store) -> None:
        """The key of the one attribute is in the index; the stub has the other."""
        guard = Guard(
            (*BOOK_A, QueryCondition("archived.lent", "reader", "y")),
        )
        store.append([Lent(book="a", reader="x"), Lent(book="end")])
        archived(store, "archived.lent")

        store.append(Lent(book="a", reader="y"), guard)

        with pytest.raises(ConcurrentAppendError):
            store.append(Lent(book="a", reader="y"), guard)

    def test_a_guard_with_many_ranges_is_raised_over_archived_messages(self, store: Store) -> None:
        store.append(TWO_LENT)
        store.append(Lent(book="b"))
        guard = Guard(tuple(BOOK_A), 0, ((1, 1),))
        archived(store, "archived.lent")

        appended = store.append([Lent(book="c") for _ in range(60)], guard)

        assert appended.guard is not None
        assert appended.guard.low >= 3


class TestRemoved:
    @pytest.mark.parametrize("several", [False, True])
    def test_what_was_written_and_removed_since_is_a_conflict(
        self, store: Store, several: bool
    ) -> None:
        store.append(Lent(book="b"))
        guard = store.read(BOOK_A)[1]
        store.append(TWO_LENT)
        wait_for_end(store)
        store.admin.retain("archived.lent", keep_count=1)
        assert in_table(store) == [4]

        with pytest.raises(GuardedMessagesRemoved) as conflict:
            store.append([Lent(book="a"), Returned()] if several else Lent(book="a"), guard)

        assert conflict.value.retryable
        assert (conflict.value.type, conflict.value.position) == ("archived.lent", 3)
        store.append(Lent(book="a"), store.read(BOOK_A)[1])  # reads again, and decides again

    def test_what_was_removed_before_the_read_is_none(self, store: Store) -> None:
        store.append(TWO_LENT)
        wait_for_end(store)
        store.admin.retain("archived.lent", keep_count=1)

        store.append(Lent(book="a"), store.read(BOOK_A)[1])

    def test_messages_of_other_types_are_none(self, store: Store) -> None:
        store.append(Returned(book="b"))
        guard = store.read(BOOK_A)[1]
        store.append([Returned(book="b"), Returned(book="b")])
        store.admin.retain("archived.returned", keep_count=1)

        store.append(Lent(book="a"), guard)

    def test_a_removal_that_is_open_is_seen_when_it_commits(
        self, store: Store, database_url: str
    ) -> None:
        store.append(Lent(book="b"))
        guard = store.read(BOOK_A)[1]
        store.append(Lent(book="a"))
        with psycopg.connect(database_url) as remover:
            remover.execute("delete from message_store.messages where global_position = 2")
            with pytest.raises(ConcurrentAppendError) as before:
                store.append(Lent(book="a"), guard)
        with pytest.raises(ConcurrentAppendError) as after:
            store.append(Lent(book="a"), guard)

        assert type(before.value) is ConcurrentAppendError
        assert type(after.value) is GuardedMessagesRemoved

    def test_a_read_below_an_open_writer_gives_a_guard_that_can_be_used(
        self, store: Store, database_url: str
    ) -> None:
        """The last message below the watermark was removed; the one that followed is above it."""
        store.append([Lent(book="b"), Lent(book="b")], stream_name="shelf-1")
        with psycopg.connect(database_url) as writer:
            writer.execute(
                "insert into message_store.messages (stream_name, position, type)"
                " values ('slow-1', 0, 'Slow')"
            )
            store.append(Lent(book="b"), stream_name="shelf-1")
            store.admin.retain("shelf-1", keep_count=1)
            assert in_table(store) == [4]

            store.append(Lent(book="a"), store.read(BOOK_A)[1])

        assert positions(store, BOOK_A) == [5]


class TestDeclaring:
    """Types that are declared, or get attributes, when messages of them are archived already."""

    def test_archived_messages_are_indexed(self, store: Store) -> None:
        class Later(TypedMessage, type="archived.later"):
            book: str

        data = [{"book": book, "text": "t"} for book in "abcab"]
        store.append([Message("archived.later", one) for one in data])
        archived(store, "archived.later")
        store.append(Message("archived.later", {"book": "a"}))

        store.declare(Later)

        assert positions(store, LATER) == [1, 4, 6]
        assert store.read(LATER)[0][0].data == {"book": "a", "text": "t"}
        with pytest.raises(ConcurrentAppendError):
            store.append(Message("other"), Guard(tuple(LATER), 3))

    def test_without_the_files_a_message_of_such_a_type_can_be_written(
        self, store: Store, warehouse: Path
    ) -> None:
        class Unreached(TypedMessage, type="archived.unreached"):
            book: str

        store.append([Message("archived.unreached", {"book": "a"}) for _ in range(3)])
        archived(store, "archived.unreached")
        away = warehouse.rename(warehouse.with_name("away"))
        watched = [QueryCondition("archived.unreached", "book", "a")]

        store.append(Unreached(book="a"))

        with pytest.raises(ArchiveUnreachable):
            store.read(watched)
        away.rename(warehouse)
        assert positions(store, watched) == [1, 2, 3, 4]

    def test_until_then_conditions_are_refused(self, store: Store) -> None:
        store.append([Message("archived.unfilled", {"book": "a"}) for _ in range(3)])
        archived(store, "archived.unfilled")
        execute(store, "select penstock.declare_type('archived.unfilled', '{book}')")
        for _ in range(3):  # the table is done, the archive is not
            execute(store, "select penstock.fill_attributes('archived.unfilled')")

        with pytest.raises(IndexingUnfinished):
            store.read([QueryCondition("archived.unfilled", "book", "a")])

    def test_an_attribute_that_is_declared_later_is_added_to_the_stubs(self, store: Store) -> None:
        class Shelved(TypedMessage, type="archived.shelved"):
            book: str
            room: str | None = None

        execute(store, "select penstock.declare_type('archived.shelved', '{book}')")
        execute(store, "select penstock.fill_attributes('archived.shelved')")
        data = [{"book": "a"}, *({"book": "a", "room": room} for room in "121")]
        store.append([Message("archived.shelved", one) for one in data])
        archived(store, "archived.shelved")

        store.declare(Shelved)

        in_room = [
            QueryCondition("archived.shelved", "book", "a"),
            QueryCondition("archived.shelved", "room", "1"),
        ]
        assert positions(store, in_room) == [1, 2, 4]
        assert positions(store, in_room[1:]) == [2, 4]

    @pytest.mark.parametrize("kept_before", [6, 4])
    def test_a_message_that_is_archived_while_its_type_is_indexed_is_found(
        self, store: Store, kept_before: int
    ) -> None:
        class Moving(TypedMessage, type="archived.moving"):
            book: str

        store.append([Message("archived.moving", {"book": "a"}) for _ in range(6)])
        archived(store, "archived.moving", Keep(count=kept_before))
        execute(store, "select penstock.declare_type('archived.moving', '{book}')")
        execute(store, "select penstock.fill_attributes('archived.moving', 3)")
        archived(store, "archived.moving", Keep(count=1))

        store.declare(Moving)

        assert positions(store, [QueryCondition("archived.moving", "book", "a")]) == [*range(1, 7)]
        assert len(execute(store, "select 1 from penstock.archived_messages")) == 5

    def test_a_declaration_waits_for_a_move_that_is_open(
        self, store: Store, database_url: str
    ) -> None:
        """Otherwise neither the move nor the declaration would index the messages."""

        class Waited(TypedMessage, type="archived.waited"):
            book: str

        store.append([Message("archived.waited", {"book": "a"}) for _ in range(3)])
        with ThreadPoolExecutor(2) as threads, psycopg.connect(database_url) as blocker:
            blocker.execute(
                "insert into penstock.archived_types"
                " values ('archived.waited', 'archived.waited', 0)"
            )
            moving = threads.submit(archived, store, "archived.waited")
            wait_until_it_waits(database_url, moving)
            declaration = "select penstock.declare_type('archived.waited', '{book}')"
            declaring = threads.submit(execute, store, declaration)
            wait_until_it_waits(database_url, declaring, 2)
            blocker.rollback()
            moving.result()
            declaring.result()
        store.declare(Waited)

        assert positions(store, [QueryCondition("archived.waited", "book", "a")]) == [1, 2, 3]

    def test_another_declaration_meanwhile_begins_again(self, store: Store) -> None:
        class Again(TypedMessage, type="archived.again"):
            book: str
            room: str

        data = {"book": "a", "room": "1"}
        store.append([Message("archived.again", data) for _ in range(4)])
        archived(store, "archived.again")
        execute(store, "select penstock.declare_type('archived.again', '{book}')")
        ((declared_by,),) = execute(
            store, "select declared_by from penstock.fill_attributes('archived.again')"
        )
        execute(store, "select penstock.declare_type('archived.again', '{room}')")
        execute(store, "select penstock.fill_attributes('archived.again')")
        execute(
            store,
            f"select penstock.fill_archived('archived.again', '{declared_by}', 0, null, '{{}}',"
            " '{}', '{}')",
        )

        store.declare(Again)

        assert positions(store, [QueryCondition("archived.again", "room", "1")]) == [1, 2, 3, 4]

    def test_after_a_truncate_nothing_is_left_of_the_archive(self, store: Store) -> None:
        store.append(TWO_LENT)
        wait_for_end(store)
        archived(store, "archived.lent")
        execute(store, "truncate message_store.messages restart identity")

        assert store.read(BOOK_A)[0] == []
        assert store.append(Lent(book="a"), store.read(BOOK_A)[1]).position == 1
        assert positions(store, BOOK_A) == [1]


books = st.sampled_from("ab")
lent = st.builds(Lent, book=st.none() | books, reader=st.none() | books)
returned = st.builds(Returned, book=st.none() | books)
conditions = st.lists(
    st.one_of(
        st.builds(
            QueryCondition, st.just("archived.lent"), st.sampled_from(["book", "reader"]), books
        ),
        st.builds(QueryCondition, st.just("archived.returned"), st.just("book"), books),
        st.builds(QueryCondition, st.sampled_from(["archived.lent", "archived.returned"])),
    ),
    min_size=1,
    max_size=4,
)
#: a category, and how many of its messages are not archived
cuts = st.lists(
    st.tuples(st.sampled_from(["archived.lent", "archived.returned", "shelf"]), st.integers(0, 4)),
    max_size=2,
)


@settings(
    max_examples=12,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    log=st.lists(st.tuples(lent | returned, st.none() | st.just("shelf-1"), cuts), max_size=9),
    watched=st.lists(conditions, min_size=1, max_size=3),
    after=st.integers(0, 9),
    limit=st.none() | st.integers(1, 4),
)
def test_an_archived_log_answers_as_its_twin(
    twins: tuple[Store, Store],
    log: list[tuple[TypedMessage, str | None, list[tuple[str, int]]]],
    watched: list[list[QueryCondition]],
    after: int,
    limit: int | None,
) -> None:
    plain, moved = twins
    guards: list[list[Guard]] = [[], []]
    for own, store in zip(guards, twins, strict=True):
        execute(store, "truncate message_store.messages restart identity")
        store.declare(Lent, Returned)
        for message, stream_name, cut in log:
            own += [store.read(one)[1] for one in watched]
            store.append(message.to_message(), stream_name=stream_name)
            for category, count in cut if store is moved else []:
                archive(store.context, category, Keep(count=count))

    assert guards[0] == guards[1]
    for one in watched:
        assert comparable(plain, one, after, limit) == comparable(moved, one, after, limit)
    for guard in guards[0]:
        assert conflict(plain, guard) == conflict(moved, guard)


def comparable(
    store: Store, watched: list[QueryCondition], after: int, limit: int | None
) -> tuple[list[Any], Guard]:
    messages, guard = store.read(watched, after, limit)
    return [(m.global_position, m.type, m.position, m.data) for m in messages], guard


def conflict(store: Store, guard: Guard) -> tuple[str, int] | None:
    """What an append under the guard conflicts with. It is rolled back."""
    with store.transaction() as transaction:
        try:
            transaction.append(Message("note"), guard)
        except ConcurrentAppendError as error:
            return error.type, error.position
        finally:
            transaction.rollback()
    return None
