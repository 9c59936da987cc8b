"""Decisions read only what came after the state that was kept: in the process, or as a snapshot.

Each test runs on a blocking store and on an async one, unless it needs threads or the archive.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from threading import Lock
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

import penstock
from penstock import (
    Decider,
    Interceptor,
    RecordedMessage,
    Store,
    TypedMessage,
)
from penstock.errors import ValidationError
from tests import both_ways
from tests.log.archiving import archived, store_with_warehouse

store = both_ways.store


class Deposited(TypedMessage, type="decisions.deposited"):
    account: str
    amount: int = 1


class Reviewed(TypedMessage, type="decisions.reviewed"):
    account: str


class Reads(Interceptor):
    """Counts the messages that are read."""

    def __init__(self) -> None:
        self.messages = 0

    def on_read(self, message: RecordedMessage) -> RecordedMessage:
        self.messages += 1
        return message


ACCOUNT = Deposited.to_conditions(account="a")


def evolve(amounts: list[int], event: Deposited) -> list[int]:
    amounts.append(event.amount)  # in place
    return amounts


def deposit(amounts: list[int], command: int) -> list[Deposited]:
    return [Deposited(account="a", amount=command)]


def ledger(
    decide: Callable[[list[int], Any], Any] = deposit, **options: Any
) -> Decider[list[int], Any]:
    """The amounts of an account, in their order."""
    return Decider[list[int], Any](initial=[], evolve=evolve, decide=decide, **options)


def saved_ledger(
    decide: Callable[[list[int], Any], Any] = deposit, every: int = 1, **options: Any
) -> Decider[list[int], Any]:
    return ledger(decide, name="ledger", snapshot_every=every, **options)


def looking(seen: list[list[int]], **options: Any) -> Decider[list[int], Any]:
    """A decider that notes the states that it gets, and appends nothing."""

    def look(amounts: list[int], command: Any) -> list[Deposited]:
        seen.append(amounts)
        return []

    return ledger(look, **options)


def state_of(store: Store, decider: Decider[list[int], Any]) -> list[int]:
    """Return the state that a decider with these snapshots gets."""
    seen: list[list[int]] = []
    options = {"name": decider.name, "snapshot_every": decider.snapshot_every}
    store.decide(looking(seen, version=decider.version, **options), 0, ACCOUNT)
    return seen[0]


def sql(url: str, statement: str, *arguments: object) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), arguments)
        return cursor.fetchall() if cursor.description else []


@pytest.fixture
def rival(database_url: str) -> Iterator[Store]:
    """Another process's client, which has states of its own."""
    with penstock.connect(database_url) as store:
        yield store


@pytest.fixture
def reads() -> Reads:
    return Reads()


@pytest.fixture
def counting(way: both_ways.Way, database_url: str, reads: Reads) -> Iterator[Store]:
    """A store whose reads are counted."""
    with way.connect(database_url, interceptors=[reads]) as store:
        yield store


class TestKeptStates:
    def test_the_next_decision_reads_only_what_came_after(
        self, counting: Store, reads: Reads
    ) -> None:
        decider = ledger()
        counting.append([Deposited(account="a") for _ in range(20)])

        read = []
        for amount in range(3):
            before = reads.messages
            counting.decide(decider, amount, ACCOUNT)
            read.append(reads.messages - before)

        assert read == [20, 1, 1]
        assert state_of(counting, decider) == [1] * 20 + [0, 1, 2]

    def test_a_retry_reads_only_what_is_new(
        self, counting: Store, reads: Reads, rival: Store
    ) -> None:
        states, read = [], []
        others = iter([7, 8])

        def interrupted(amounts: list[int], command: int) -> list[Deposited]:
            states.append(amounts)
            read.append(reads.messages)
            for amount in others:
                rival.append(Deposited(account="a", amount=amount))
                break
            return [Deposited(account="a", amount=command)]

        counting.append([Deposited(account="a") for _ in range(20)])
        decider = ledger(interrupted)

        appended = counting.decide(decider, 9, ACCOUNT)

        assert appended is not None
        assert [one[20:] for one in states] == [[], [7], [7, 8]]
        assert read == [20, 21, 22]

    def test_processes_with_states_of_their_own_decide_on_what_the_others_wrote(
        self, store: Store, rival: Store
    ) -> None:
        seen: list[list[int]] = []

        def note(amounts: list[int], command: int) -> list[Deposited]:
            seen.append(amounts)
            return deposit(amounts, command)

        decider = ledger(note)
        for amount in range(6):
            (store, rival)[amount % 2].decide(decider, amount, ACCOUNT)

        assert seen == [list(range(number)) for number in range(6)]

    def test_what_decide_makes_of_the_state_is_not_kept(self, store: Store) -> None:
        given = []

        def careless(amounts: list[int], command: int) -> list[Deposited]:
            given.append(list(amounts))
            amounts.append(command)
            if command < 0:
                raise ArithmeticError
            return [Deposited(account="a", amount=command)]

        decider = ledger(careless)
        store.decide(decider, 1, ACCOUNT)
        with pytest.raises(ArithmeticError):
            store.decide(decider, -1, ACCOUNT)
        store.decide(decider, 2, ACCOUNT)

        assert given == [[], [1], [1]]

    def test_an_event_that_cannot_be_evolved_leaves_the_state_as_it_was(self, store: Store) -> None:
        failing = [False, True, False]

        def evolve_or_fail(amounts: list[int], event: Deposited) -> list[int]:
            amounts.append(event.amount)
            if failing.pop(0):
                raise ArithmeticError
            return amounts

        seen: list[list[int]] = []
        decider = replace(looking(seen), evolve=evolve_or_fail)
        store.append(Deposited(account="a", amount=1))
        store.decide(decider, 0, ACCOUNT)
        store.append(Deposited(account="a", amount=2))

        with pytest.raises(ArithmeticError):
            store.decide(decider, 0, ACCOUNT)
        store.decide(decider, 0, ACCOUNT)

        assert seen == [[1], [1, 2]]

    def test_the_order_of_conditions_does_not_matter(self, counting: Store, reads: Reads) -> None:
        decider = ledger()
        both = [*ACCOUNT, *Reviewed.to_conditions(account="a")]
        counting.append([Deposited(account="a"), Deposited(account="a")])

        counting.decide(decider, 1, both)
        counting.decide(decider, 2, both[::-1])

        assert reads.messages == 3

    def test_each_decider_and_each_boundary_has_a_state_of_its_own(self, store: Store) -> None:
        store.append([Deposited(account="a", amount=1), Deposited(account="b", amount=2)])
        total = Decider[int, Any](
            initial=0, evolve=lambda sum, event: sum + event.amount, decide=lambda sum, _: []
        )
        store.decide(total, 0, ACCOUNT)
        seen: list[list[int]] = []
        decider = looking(seen)

        store.decide(decider, 0, ACCOUNT)
        store.decide(decider, 0, Deposited.to_conditions(account="b"))

        assert seen == [[1], [2]]

    def test_what_a_transaction_rolls_back_is_not_kept(self, store: Store) -> None:
        seen: list[list[int]] = []
        decider = looking(seen)
        store.decide(decider, 0, ACCOUNT)
        transaction = store.begin_transaction()
        transaction.append(Deposited(account="a", amount=1))
        transaction.decide(decider, 0, ACCOUNT)
        transaction.rollback()

        store.decide(decider, 0, ACCOUNT)

        assert seen == [[], [1], []]

    def test_a_transaction_begins_with_the_state_of_the_store(
        self, counting: Store, reads: Reads
    ) -> None:
        decider = ledger()
        counting.append([Deposited(account="a") for _ in range(20)])
        counting.decide(decider, 1, ACCOUNT)
        before = reads.messages

        with counting.transaction() as transaction:
            transaction.decide(decider, 2, ACCOUNT)

        assert reads.messages - before == 1

    def test_a_message_that_is_committed_late_takes_its_place_in_the_order(
        self, store: Store, rival: Store
    ) -> None:
        seen: list[list[int]] = []
        decider = looking(seen)
        late = rival.begin_transaction()
        late.append(Deposited(account="a", amount=1))
        store.append(Deposited(account="a", amount=2))
        store.decide(decider, 0, ACCOUNT)
        late.commit()

        store.decide(decider, 0, ACCOUNT)

        assert seen == [[2], [1, 2]]

    def test_while_an_open_writer_holds_the_watermark_back_nothing_is_read_twice(
        self, counting: Store, reads: Reads, rival: Store
    ) -> None:
        decider = ledger()
        counting.append([Deposited(account="a") for _ in range(10)])
        writer = rival.begin_transaction()
        writer.write_message("elsewhere-1", "Opened")
        counting.append([Deposited(account="a") for _ in range(10)])

        for amount in range(3):
            counting.decide(decider, amount, ACCOUNT)
        writer.rollback()

        assert reads.messages == 22

    def test_the_states_used_last_are_kept(
        self, way: both_ways.Way, database_url: str, reads: Reads
    ) -> None:
        decider = looking([])
        with way.connect(database_url, interceptors=[reads], decider_cache_size=2) as store:
            store.append([Deposited(account=one) for one in "abc"])
            read = []
            for account in "abacba":
                before = reads.messages
                store.decide(decider, 0, Deposited.to_conditions(account=account))
                read.append(reads.messages - before)

        assert read == [1, 1, 0, 1, 1, 1]

    def test_a_size_of_0_keeps_nothing(
        self, way: both_ways.Way, database_url: str, reads: Reads
    ) -> None:
        decider = ledger()
        with way.connect(database_url, interceptors=[reads], decider_cache_size=0) as store:
            for amount in range(4):
                store.decide(decider, amount, ACCOUNT)

        assert reads.messages == 0 + 1 + 2 + 3

    @pytest.mark.parametrize("wrong", [-1, 1.5, True, "many"])
    def test_an_invalid_size_is_refused(self, database_url: str, wrong: Any) -> None:
        with pytest.raises(ValidationError, match="decider_cache_size"):
            penstock.connect(database_url, decider_cache_size=wrong)


def removed_up_to(store: Store, position: int) -> None:
    store.admin.retain("decisions.deposited", keep_from=position, ignore_consumers=True)


class TestAfterRemovals:
    """What retention, the archive and TRUNCATE make of a state that is kept."""

    @pytest.mark.parametrize("every", [None, 1])
    def test_a_state_never_knows_more_than_the_log(
        self, store: Store, rival: Store, every: int | None
    ) -> None:
        seen: list[list[int]] = []
        decider = looking(seen, name="ledger", snapshot_every=every)
        store.append([Deposited(account="a", amount=amount) for amount in range(5)])
        store.decide(decider, 0, ACCOUNT)
        removed_up_to(rival, 4)

        store.decide(decider, 0, ACCOUNT)
        rival.decide(decider, 0, ACCOUNT)

        assert seen == [[0, 1, 2, 3, 4], [3, 4], [3, 4]]

    def test_a_snapshot_from_before_a_removal_is_replaced(self, store: Store, rival: Store) -> None:
        decider = saved_ledger(looking([]).decide)
        store.append([Deposited(account="a", amount=amount) for amount in range(5)])
        store.decide(decider, 0, ACCOUNT)
        removed_up_to(rival, 4)
        store.decide(decider, 0, ACCOUNT)
        store.append(Deposited(account="a", amount=5))

        assert state_of(rival, decider) == [3, 4, 5]

    @pytest.mark.parametrize("kept", ["in the process", "as a snapshot"])
    def test_a_state_that_may_not_have_seen_what_was_removed_is_not_continued(
        self, store: Store, rival: Store, kept: str
    ) -> None:
        seen: list[list[int]] = []
        decider = looking(seen, name="ledger", snapshot_every=1)
        store.append([Deposited(account="a", amount=amount) for amount in range(3)])
        store.decide(decider, 0, ACCOUNT)
        rival.append([Deposited(account="a", amount=amount) for amount in range(3, 6)])
        removed_up_to(rival, 6)

        (store if kept == "in the process" else rival).decide(decider, 0, ACCOUNT)

        assert seen == [[0, 1, 2], [5]]

    def test_a_removal_between_read_and_append_is_decided_again(
        self, store: Store, rival: Store
    ) -> None:
        seen = []

        def interrupted(amounts: list[int], command: int) -> list[Deposited]:
            seen.append(amounts)
            if len(seen) == 1:
                rival.append([Deposited(account="a", amount=9), Deposited(account="a", amount=9)])
                removed_up_to(rival, 5)
            return deposit(amounts, command)

        store.append([Deposited(account="a", amount=amount) for amount in range(3)])

        assert store.decide(ledger(interrupted), 1, ACCOUNT) is not None
        assert seen == [[0, 1, 2], [9]]

    @pytest.mark.parametrize("every", [None, 1])
    def test_the_state_of_a_truncated_log_is_forgotten(
        self, store: Store, rival: Store, database_url: str, every: int | None
    ) -> None:
        seen: list[list[int]] = []
        decider = looking(seen, name="ledger", snapshot_every=every)
        store.append([Deposited(account="a", amount=1), Deposited(account="a", amount=2)])
        store.decide(decider, 0, ACCOUNT)
        sql(database_url, "truncate message_store.messages restart identity")
        assert store.admin.snapshots() == []

        store.decide(decider, 0, ACCOUNT)
        rival.append([Deposited(account="a", amount=amount) for amount in (3, 4, 5)])
        store.decide(decider, 0, ACCOUNT)
        rival.decide(decider, 0, ACCOUNT)

        assert seen == [[1, 2], [], [3, 4, 5], [3, 4, 5]]

    def test_a_snapshot_of_a_truncated_log_that_is_saved_late_is_ignored(
        self, store: Store, rival: Store, database_url: str
    ) -> None:
        def truncate(amounts: list[int], command: Any) -> list[Deposited]:
            sql(database_url, "truncate message_store.messages restart identity")
            return []

        store.append(Deposited(account="a", amount=1))
        store.decide(saved_ledger(truncate), 0, ACCOUNT)
        rival.append([Deposited(account="a", amount=2), Deposited(account="a", amount=3)])

        assert sql(database_url, "select state from penstock.decider_snapshots") == [("[1]",)]
        assert state_of(rival, saved_ledger()) == [2, 3]
        assert sql(database_url, "select state from penstock.decider_snapshots") == [("[2,3]",)]

    def test_the_state_of_a_log_that_was_restored_to_an_earlier_moment_is_forgotten(
        self, store: Store, database_url: str
    ) -> None:
        seen: list[list[int]] = []
        decider = looking(seen)
        store.append([Deposited(account="a", amount=1), Deposited(account="a", amount=2)])
        store.decide(decider, 0, ACCOUNT)
        sql(  # as in a backup from before the second message
            database_url,
            "set session_replication_role = replica;"
            " delete from message_store.messages where global_position = 2;"
            " delete from penstock.message_attributes where global_position = 2;"
            " select setval('message_store.messages_global_position_seq', 1)",
        )

        store.decide(decider, 0, ACCOUNT)

        assert seen == [[1, 2], [1]]

    @pytest.mark.parametrize("every", [None, 1])
    def test_an_archived_boundary_is_continued_and_read_again(
        self, database_url: str, tmp_path: Path, every: int | None
    ) -> None:
        seen: list[list[int]] = []
        decider = looking(seen, name="ledger", snapshot_every=every)
        with store_with_warehouse(database_url, tmp_path) as store:
            store.append([Deposited(account="a", amount=amount) for amount in range(4)])
            store.decide(decider, 0, ACCOUNT)
            store.append(Deposited(account="a", amount=4))
            archived(store, "decisions.deposited")
            store.append(Deposited(account="a", amount=5))
            store.decide(decider, 0, ACCOUNT)
        with store_with_warehouse(database_url, tmp_path) as another:
            another.decide(decider, 0, ACCOUNT)

        assert seen == [[0, 1, 2, 3], [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]]


@dataclass
class Members:
    """A state that msgspec encodes, with values that JSON does not have."""

    ids: set[UUID] = field(default_factory=set)
    last: tuple[int, str] | None = None


class TestSnapshots:
    def saved(self, url: str) -> list[Any]:
        return sql(url, "select version, low, position, state from penstock.decider_snapshots")

    def test_another_process_begins_with_the_snapshot(
        self, store: Store, counting: Store, reads: Reads, database_url: str
    ) -> None:
        decider = saved_ledger(every=10)
        store.append([Deposited(account="a") for _ in range(10)])
        store.decide(decider, 7, ACCOUNT)
        store.decide(decider, 8, ACCOUNT)
        before = reads.messages

        counting.decide(decider, 9, ACCOUNT)

        assert reads.messages - before == 2
        assert self.saved(database_url) == [("1", 10, 10, str([1] * 10).replace(" ", ""))]
        assert state_of(counting, decider) == [1] * 10 + [7, 8, 9]

    def test_one_is_saved_each_time_that_so_many_messages_were_read(
        self, store: Store, database_url: str
    ) -> None:
        decider = saved_ledger(every=3)
        saved = []
        for amount in range(8):
            store.decide(decider, amount, ACCOUNT)
            saved.append([position for _, _, position, _ in self.saved(database_url)])

        assert saved == [[], [], [], [3], [3], [3], [6], [6]]

    def test_a_refused_command_saves_one_too(self, store: Store, database_url: str) -> None:
        def refuse(amounts: list[int], command: int) -> list[Deposited]:
            raise ArithmeticError

        store.append(Deposited(account="a"))
        with pytest.raises(ArithmeticError):
            store.decide(saved_ledger(refuse), 0, ACCOUNT)

        assert len(self.saved(database_url)) == 1

    def test_a_transaction_saves_none(self, store: Store, database_url: str) -> None:
        with store.transaction() as transaction:
            transaction.append(Deposited(account="a"))
            transaction.decide(saved_ledger(), 0, ACCOUNT)

        assert self.saved(database_url) == []

    def test_one_of_another_version_is_ignored(
        self, store: Store, rival: Store, database_url: str
    ) -> None:
        store.append([Deposited(account="a", amount=2), Deposited(account="a", amount=3)])
        store.decide(saved_ledger(), 0, ACCOUNT)
        seen: list[list[int]] = []
        doubled = Decider[list[int], Any](
            initial=[],
            evolve=lambda amounts, event: [*amounts, 2 * event.amount],
            decide=looking(seen).decide,
            name="ledger",
            version="2",
            snapshot_every=1,
        )

        rival.decide(doubled, 0, ACCOUNT)

        assert seen == [[4, 6, 0]]
        assert sorted(self.saved(database_url)) == [
            ("1", 2, 2, "[2,3]"),
            ("2", 3, 3, "[4,6,0]"),
        ]

    def test_one_of_another_boundary_is_not_used(self, store: Store, rival: Store) -> None:
        store.append([Deposited(account="a", amount=1), Deposited(account="b", amount=2)])
        store.decide(saved_ledger(looking([]).decide), 0, ACCOUNT)
        seen: list[list[int]] = []

        rival.decide(saved_ledger(looking(seen).decide), 0, Deposited.to_conditions(account="b"))

        assert seen == [[2]]

    def test_one_that_cannot_be_decoded_is_ignored_reported_once_and_replaced(
        self, store: Store, rival: Store, database_url: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        accounts = [Deposited.to_conditions(account=one) for one in "ab"]
        store.append([Deposited(account="a", amount=1), Deposited(account="b", amount=2)])
        seen: list[list[int]] = []
        decider = saved_ledger(looking(seen).decide)
        for conditions in accounts:
            store.decide(decider, 0, conditions)
        sql(database_url, "update penstock.decider_snapshots set state = '{broken'")

        with caplog.at_level(logging.WARNING, "penstock"):
            for conditions in accounts:
                rival.decide(decider, 0, conditions)

        assert seen == [[1], [2], [1], [2]]
        assert caplog.text.count("cannot be decoded") == 1
        assert "decider ledger, version 1" in caplog.text
        assert sorted(state for *_, state in self.saved(database_url)) == ["[1]", "[2]"]

    def test_a_late_message_below_a_snapshot_takes_its_place_in_the_order(
        self, store: Store, rival: Store
    ) -> None:
        late = rival.begin_transaction()
        late.append(Deposited(account="a", amount=1))
        store.append(Deposited(account="a", amount=2))
        decider = saved_ledger(looking([]).decide)
        store.decide(decider, 0, ACCOUNT)
        late.commit()

        assert state_of(rival, decider) == [1, 2]

    def test_an_older_one_does_not_replace_a_newer(
        self, store: Store, rival: Store, database_url: str
    ) -> None:
        newer = saved_ledger(looking([]).decide)

        def overtaken(amounts: list[int], command: Any) -> list[Deposited]:
            rival.append(Deposited(account="a", amount=2))
            rival.decide(newer, 0, ACCOUNT)
            return []

        store.append(Deposited(account="a", amount=1))
        store.decide(saved_ledger(overtaken), 0, ACCOUNT)

        assert self.saved(database_url) == [("1", 2, 2, "[1,2]")]

    def test_a_snapshot_that_cannot_be_saved_does_not_fail_the_decision(
        self, store: Store, database_url: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        sql(database_url, "alter table penstock.decider_snapshots add check (position < 0)")
        store.append(Deposited(account="a"))

        with caplog.at_level(logging.WARNING, "penstock"):
            appended = store.decide(saved_ledger(), 1, ACCOUNT)

        assert appended is not None
        assert "no snapshot of decider ledger was saved" in caplog.text

    def test_a_state_that_would_change_by_being_saved_is_not(
        self, store: Store, database_url: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        pairs = Decider[list[Any], Any](
            initial=[],
            evolve=lambda pairs, event: [*pairs, (event.account, event.amount)],
            decide=lambda pairs, command: [],
            name="pairs",
            snapshot_every=1,
        )
        store.append(Deposited(account="a"))

        with caplog.at_level(logging.WARNING, "penstock"):
            store.decide(pairs, 0, ACCOUNT)

        assert self.saved(database_url) == []
        assert "does state_type say what it holds?" in caplog.text

    def test_a_state_of_a_class_of_your_own_comes_back_as_it_was(
        self, store: Store, rival: Store
    ) -> None:
        known, seen = uuid4(), []

        def join(members: Members, event: Deposited) -> Members:
            return Members(members.ids | {known}, (event.amount, event.account))

        def look(members: Members, command: Any) -> list[Deposited]:
            seen.append(members)
            return []

        members = Decider[Members, Any](
            initial=Members(), evolve=join, decide=look, name="members", snapshot_every=1
        )
        store.append(Deposited(account="a", amount=3))
        store.decide(members, 0, ACCOUNT)
        rival.decide(replace(members, evolve=evolve), 0, ACCOUNT)  # type: ignore[arg-type]

        assert seen == [Members({known}, (3, "a"))] * 2

    def test_operators_list_and_remove_them(self, store: Store) -> None:
        store.append([Deposited(account="a"), Deposited(account="b")])
        for version, account in ((1, "a"), (1, "b"), (2, "a")):
            conditions = Deposited.to_conditions(account=account)
            store.decide(saved_ledger(looking([]).decide, version=version), 0, conditions)

        first, second = store.admin.snapshots()
        assert (first.decider, first.version, first.boundaries, first.bytes) == (
            "ledger",
            "1",
            2,
            6,
        )
        assert (second.version, second.boundaries) == ("2", 1)
        assert store.admin.remove_snapshots("ledger", not_saved_for=timedelta(days=1)) == 0
        assert store.admin.remove_snapshots("other") == 0
        assert store.admin.remove_snapshots("ledger", 1) == 2
        assert store.admin.remove_snapshots("ledger", not_saved_for=0) == 1
        assert store.admin.snapshots() == []

    @pytest.mark.parametrize(
        ("arguments", "complaint"),
        [
            ({"decider": ""}, "decider"),
            ({"decider": "a", "version": 1.5}, "version"),
            ({"decider": "a", "version": ""}, "version"),
            ({"decider": "a", "not_saved_for": -1}, "not_saved_for"),
        ],
    )
    def test_what_cannot_be_removed_is_refused(
        self, store: Store, arguments: dict[str, Any], complaint: str
    ) -> None:
        with pytest.raises(ValidationError, match=complaint):
            store.admin.remove_snapshots(**arguments)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"snapshot_every": 0}, "snapshot_every must be a whole number of messages of at least 1"),
        ({"snapshot_every": 1.5}, "snapshot_every"),
        ({"snapshot_every": True}, "snapshot_every"),
        ({"name": None}, "name must be given together with snapshot_every"),
        ({"name": ""}, "name"),
        ({"name": 7}, "name"),
        ({"version": 1.5}, "version must be a whole number or a text"),
        ({"version": True}, "version"),
        ({"version": ""}, "version"),
        ({"initial": object()}, "initial must be one that msgspec can encode"),
        ({"initial": {1: 2}}, "does state_type say what it holds"),
        ({"state_type": "no type"}, "state_type must be a type that msgspec can decode"),
        ({"state_type": dict}, "initial"),
    ],
)  # fmt: skip
def test_a_decider_whose_snapshots_could_not_be_used_is_refused(
    options: dict[str, Any], complaint: str
) -> None:
    valid: dict[str, Any] = {"initial": [], "name": "ledger", "snapshot_every": 1}

    with pytest.raises(ValidationError, match=complaint):
        Decider(**{"evolve": evolve, "decide": deposit, **valid, **options})


def test_a_state_that_cannot_be_copied_is_refused(store: Store) -> None:
    store.append(Deposited(account="a"))
    locks = Decider[Any, Any](
        initial=None, evolve=lambda state, event: Lock(), decide=lambda state, _: []
    )

    with pytest.raises(ValidationError, match=r"one that copy\.deepcopy can copy"):
        store.decide(locks, 0, ACCOUNT)
