"""Iterators: through a stream or a category page by page, and on as messages are written."""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import islice
from typing import Any, TypeVar

import pytest

import penstock
from penstock import AsyncStore, Interceptor, Message, RecordedMessage, Store
from penstock.database.operation import Operation
from penstock.errors import UnsupportedEdition, ValidationError
from penstock.log.calls import LogCalls
from penstock.message import names

Result = TypeVar("Result")


class Observed(LogCalls):
    """A store's operations, and the arguments of each that ran."""

    def __init__(self, store: Store) -> None:
        self.context = store.context
        self._store = store
        self.calls: list[tuple[str, Any]] = []

    def run(self, operation: Operation[Result]) -> Result:
        self.calls.append((operation.name, operation.statements[-1].arguments or ()))
        return self._store.run(operation)

    def positions(self) -> list[int]:
        """From where each page was read."""
        return [arguments[1] for name, arguments in self.calls if name.startswith("get_")]


class Script:
    """A `stop` that does one thing each time it is asked, and says stop when all are done."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self._steps = list(steps)

    def __call__(self) -> bool:
        if not self._steps:
            return True
        self._steps.pop(0)()
        return False


def nothing() -> None:
    pass


def fill(store: Store, count: int, stream_name: str = "account-1") -> None:
    store.write_messages(stream_name, [Message("Deposited", {"n": n}) for n in range(count)])


def alive() -> int:
    """How many messages that were read are in memory."""
    return sum(type(thing) is RecordedMessage for thing in gc.get_objects())


class TestReadStream:
    @pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 6, 7])
    def test_yields_every_message_once_and_in_order(self, any_store: Store, count: int) -> None:
        if count:
            fill(any_store, count)

        read = [message.data["n"] for message in any_store.read_stream("account-1", 0, 3)]

        assert read == list(range(count))

    def test_starts_at_the_position(self, any_store: Store) -> None:
        fill(any_store, 7)

        read = [message.position for message in any_store.read_stream("account-1", 4, 2)]

        assert read == [4, 5, 6]

    def test_reads_no_page_before_it_is_needed(self, store: Store) -> None:
        fill(store, 10)
        observed = Observed(store)

        messages = observed.read_stream("account-1", 0, 4)

        assert observed.positions() == []
        assert [m.position for m in islice(messages, 4)] == [0, 1, 2, 3]
        assert observed.positions() == [0]
        assert [m.position for m in messages] == [4, 5, 6, 7, 8, 9]
        assert observed.positions() == [0, 4, 8]

    def test_sees_what_was_written_after_it_began(self, store: Store) -> None:
        fill(store, 2)
        messages = store.read_stream("account-1", 0, 2)
        next(messages)

        store.write_message("account-1", "Closed")

        assert [message.position for message in messages] == [1, 2]

    def test_filters_by_a_condition(self, database_url: str) -> None:
        with penstock.connect(database_url, sql_condition=True) as store:
            fill(store, 9)

            odd = store.read_stream("account-1", 0, 2, "(data->>'n')::int % 2 = 1")

            assert [message.position for message in odd] == [1, 3, 5, 7]


class TestReadCategory:
    @pytest.mark.parametrize("count", [0, 1, 3, 4, 6])
    def test_yields_every_message_once_and_in_order(self, any_store: Store, count: int) -> None:
        for number in range(count):
            any_store.write_message(f"account-{number % 2}", "Deposited", {"n": number})
            any_store.write_message("order-1", "Placed")

        read = [message.data["n"] for message in any_store.read_category("account", 1, 3)]

        assert read == list(range(count))

    def test_starts_at_the_global_position(self, any_store: Store) -> None:
        fill(any_store, 7)

        read = [message.global_position for message in any_store.read_category("account", 4, 2)]

        assert read == [4, 5, 6, 7]

    def test_yields_a_member_all_of_its_share(self, any_store: Store) -> None:
        for number in range(20):
            any_store.write_message(f"account-{number}", "Opened")
        expected = [f"account-{n}" for n in range(20) if names.group_member(f"account-{n}", 3) == 2]

        share = any_store.read_category(
            "account", 1, 2, consumer_group_member=2, consumer_group_size=3
        )

        assert [message.stream_name for message in share] == expected

    def test_yields_the_whole_log(self, store: Store) -> None:
        for number in range(5):
            store.write_message(f"{'abc'[number % 3]}-{number}", "Written")

        assert [m.global_position for m in store.read_category("$all", 1, 2)] == [1, 2, 3, 4, 5]

    def test_ends_before_a_message_that_is_still_being_committed(self, store: Store) -> None:
        fill(store, 3)
        with store.transaction() as late:
            late.write_message("account-2", "Opened")
            fill(store, 3, "account-3")

            read = [message.global_position for message in store.read_category("account", 1, 2)]

        assert read == [1, 2, 3]

    def test_works_in_a_transaction(self, any_store: Store) -> None:
        with any_store.transaction() as transaction:
            transaction.write_messages("account-1", [Message("Opened") for _ in range(5)])

            read = [message.position for message in transaction.read_category("account", 1, 2)]

        assert read == [0, 1, 2, 3, 4]


class TestMemory:
    def test_holds_no_more_than_a_page(self, store: Store) -> None:
        fill(store, 60)
        before = alive()

        held = [
            alive() - before
            for pages in (
                store.read_stream("account-1", 0, 10),
                store.read_category("account", 1, 10),
            )
            for message in pages
            if message.position % 10 in (0, 9)
        ]

        assert len(held) == 24
        assert max(held) <= 11  # a page, and the message in the caller's hand

    async def test_holds_no_more_than_a_page_in_async_code(self, async_store: AsyncStore) -> None:
        await async_store.write_messages("account-1", [Message("Deposited") for _ in range(60)])
        before = alive()

        held = [
            alive() - before
            async for message in async_store.read_category("account", 1, 10)
            if message.position % 10 in (0, 9)
        ]

        assert len(held) == 12
        assert max(held) <= 11


class TestFollowCategory:
    def test_goes_on_with_what_is_written_later(self, any_store: Store) -> None:
        fill(any_store, 3)
        script = Script(nothing, nothing, lambda: fill(any_store, 2, "account-2"), nothing)

        followed = any_store.follow_category("account", 1, 2, polling_interval_ms=1, stop=script)

        assert [message.global_position for message in followed] == [1, 2, 3, 4, 5]

    def test_ends_at_once_when_asked_to_at_the_start(self, any_store: Store) -> None:
        fill(any_store, 3)

        assert list(any_store.follow_category("account", stop=lambda: True)) == []

    def test_waits_for_a_message_that_commits_late(self, store: Store) -> None:
        late = store.begin_transaction()
        late.write_message("account-1", "Opened")
        store.write_message("account-2", "Opened")
        script = Script(nothing, nothing, late.commit, nothing)

        followed = store.follow_category("account", polling_interval_ms=1, stop=script)

        assert [message.stream_name for message in followed] == ["account-1", "account-2"]

    def test_follows_the_whole_log(self, store: Store) -> None:
        script = Script(lambda: fill(store, 1), lambda: fill(store, 1, "order-1"))

        followed = store.follow_category("$all", polling_interval_ms=1, stop=script)

        assert [message.stream_name for message in followed] == ["account-1", "order-1"]

    def test_passes_over_what_belongs_to_other_members(self, store: Store) -> None:
        mine, others = names_of_members(2)
        for name in (mine, *[others] * 5):
            store.write_message(name, "Opened")
        observed = Observed(store)
        script = Script(nothing, lambda: store.write_message(mine, "Closed"), nothing)

        followed = observed.follow_category(
            "account",
            consumer_group_member=0,
            consumer_group_size=2,
            polling_interval_ms=1,
            stop=script,
        )

        assert [message.type for message in followed] == ["Opened", "Closed"]
        assert observed.positions() == [1, 7, 8]

    def test_does_not_pass_over_a_full_page_of_its_own(self, store: Store) -> None:
        mine, others = names_of_members(2)
        for name in (mine, others, mine, mine, others):
            store.write_message(name, "Opened")
        script = Script(*[nothing] * 4)

        followed = store.follow_category(
            "account",
            1,
            2,
            consumer_group_member=0,
            consumer_group_size=2,
            polling_interval_ms=1,
            stop=script,
        )

        assert [message.global_position for message in followed] == [1, 3, 4]

    def test_follows_replies_by_their_correlation(self, any_store: Store) -> None:
        reply = {"correlationStreamName": "transfer-1"}

        def write_both() -> None:
            any_store.write_message("account-1", "Opened")
            any_store.write_message("account-1", "Withdrawn", None, reply)

        followed = any_store.follow_category(
            "account",
            correlation="transfer",
            polling_interval_ms=1,
            stop=Script(write_both, write_both),
        )

        assert [message.type for message in followed] == ["Withdrawn", "Withdrawn"]

    def test_of_the_whole_log_needs_penstock(self, new_database: Callable[[str], str]) -> None:
        with (
            penstock.connect(new_database("genuine")) as store,
            pytest.raises(UnsupportedEdition),
        ):
            next(store.follow_category("$all"))

    @pytest.mark.parametrize("interval", [0, -1, 0.5, True, 3_600_001])
    def test_refuses_an_interval_that_spins_or_never_ends(
        self, store: Store, interval: Any
    ) -> None:
        with pytest.raises(ValidationError, match="polling_interval_ms"):
            next(store.follow_category("account", polling_interval_ms=interval))

    async def test_follows_in_async_code(self, async_store: AsyncStore, store: Store) -> None:
        with penstock.connect(async_store.settings) as writer:
            fill(writer, 3)
            script = Script(nothing, nothing, lambda: fill(writer, 2, "account-2"), nothing)

            followed = async_store.follow_category(
                "account", 1, 2, polling_interval_ms=1, stop=script
            )

            assert [m.global_position async for m in followed] == [1, 2, 3, 4, 5]


class TestAsync:
    async def test_reads_a_stream_and_a_category_page_by_page(
        self, async_store: AsyncStore
    ) -> None:
        await async_store.write_messages("account-1", [Message("Deposited") for _ in range(7)])

        of_stream = [m.position async for m in async_store.read_stream("account-1", 1, 3)]
        of_category = [m.position async for m in async_store.read_category("account", 1, 3)]

        assert (of_stream, of_category) == ([1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4, 5, 6])


@pytest.mark.parametrize("iterate", ["read_stream", "read_category", "follow_category"])
class TestPages:
    def test_of_everything_are_refused(self, store: Store, iterate: str) -> None:
        name = "account-1" if iterate == "read_stream" else "account"

        with pytest.raises(ValidationError, match="page by page"):
            next(getattr(store, iterate)(name, batch_size=-1))

    def test_have_the_size_of_the_settings(self, database_url: str, iterate: str) -> None:
        read: list[RecordedMessage] = []

        class Watch(Interceptor):
            def on_read(self, message: RecordedMessage) -> RecordedMessage:
                read.append(message)
                return message

        name = "account-1" if iterate == "read_stream" else "account"
        with penstock.connect(database_url, interceptors=[Watch()], default_batch_size=3) as store:
            fill(store, 9)

            next(getattr(store, iterate)(name))

        assert len(read) == 3


def names_of_members(size: int) -> list[str]:
    """One stream name for each member of a group."""
    by_member = {
        names.group_member(name, size): name for name in map("account-{}".format, range(50))
    }
    return [by_member[member] for member in range(size)]
