"""The watermark, each race forced with two connections: who holds it back, and for how long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

import psycopg
import pytest

import penstock
from penstock import Call, Consumer, Interceptor, Store
from penstock.errors import WatermarkRequired
from tests.log.client import ANNOUNCEMENTS, Client
from tests.racing import wait_until


class TestAnEmptyLog:
    def test_is_complete_up_to_0(self, other: Client) -> None:
        assert (other.watermark(), other.head(), other.head("account")) == (0, 0, 0)

    def test_has_nothing_to_read(self, other: Client) -> None:
        assert (other.read(), other.read("account")) == ([], [])

    def test_begins_at_1(self, other: Client) -> None:
        assert (other.write(), other.watermark(), other.read()) == (1, 1, [1])


class TestAnOpenWriter:
    @pytest.mark.parametrize(("end", "then"), [("commit", [1, 2]), ("rollback", [2])])
    def test_holds_back_what_comes_after_it_until_it_ends(
        self, writer: Client, other: Client, end: str, then: list[int]
    ) -> None:
        writer.write("account-1")
        other.write("account-2")
        meanwhile = (other.watermark(), other.read())

        writer.execute(end)

        assert meanwhile == (0, [])
        assert (other.watermark(), other.read()) == (2, then)

    def test_does_not_hold_back_what_came_before_it(self, writer: Client, other: Client) -> None:
        other.write("account-2")
        writer.write("account-1")

        assert (other.watermark(), other.read()) == (1, [1])

    def test_holds_back_other_categories_too(self, writer: Client, other: Client) -> None:
        writer.write("account-1")
        other.write("order-1")

        assert (other.read("order"), other.head("order")) == ([], 0)

    def test_sees_its_own_messages_and_is_not_in_its_own_way(
        self, writer: Client, other: Client
    ) -> None:
        writer.write("account-1")
        other.write("account-2")

        assert (writer.watermark(), writer.read(), writer.head()) == (2, [1, 2], 2)

    def test_is_held_back_by_others(self, writer: Client, other: Client) -> None:
        other.execute("begin")
        other.write("account-2")
        writer.write("account-1")

        assert (writer.read(), other.read()) == ([], [1])

    def test_announces_once_however_much_it_writes(self, writer: Client, other: Client) -> None:
        for number in range(10):
            writer.write(f"account-{number}")

        assert other.announcements() == 1

    def test_holds_back_from_its_first_message_on(self, writer: Client, other: Client) -> None:
        writer.write("account-1")
        other.write("account-2")
        writer.write("account-3")

        assert other.watermark() == 0

    def test_holds_back_although_another_came_later(
        self, connect: Callable[[], Client], writer: Client, other: Client
    ) -> None:
        later = connect()
        later.execute("begin")
        writer.write("account-1")
        other.write("account-2")
        later.write("account-3")

        assert (other.watermark(), other.read()) == (0, [])

    def test_that_has_written_nothing_holds_back_nothing(
        self, writer: Client, other: Client
    ) -> None:
        writer.execute("select count(*) from message_store.messages")
        other.write("account-2")

        assert other.read() == [1]

    def test_lets_go_when_its_connection_is_lost(
        self, database_url: str, writer: Client, other: Client
    ) -> None:
        writer.write("account-1")
        other.write("account-2")

        writer.connection.close()

        wait_until(database_url, "select penstock.watermark() = 2")
        assert other.read() == [2]

    def test_of_another_database_holds_back_nothing(
        self, writer: Client, new_database: Callable[[str], str]
    ) -> None:
        writer.write("account-1")

        with psycopg.connect(new_database("penstock"), autocommit=True) as connection:
            elsewhere = Client(connection)
            elsewhere.write("account-1")

            assert (elsewhere.watermark(), elsewhere.read()) == (1, [1])


class TestSavepoints:
    def test_a_rollback_to_a_savepoint_lets_go(self, writer: Client, other: Client) -> None:
        writer.execute("savepoint a")
        writer.write("account-1")
        other.write("account-2")

        writer.execute("rollback to a")

        assert (other.announcements(), other.read()) == (0, [2])

    def test_after_which_the_writer_announces_again(self, writer: Client, other: Client) -> None:
        writer.execute("savepoint a")
        writer.write("account-1")
        writer.execute("rollback to a")
        writer.write("account-1")
        other.write("account-2")
        meanwhile = (other.watermark(), other.read())

        writer.execute("commit")

        assert meanwhile == (1, [])
        assert other.read() == [2, 3]

    def test_a_rollback_to_a_later_savepoint_does_not_let_go(
        self, writer: Client, other: Client
    ) -> None:
        writer.write("account-1")
        writer.execute("savepoint a")
        writer.write("account-3")
        other.write("account-2")

        writer.execute("rollback to a")

        assert (other.watermark(), other.read()) == (0, [])

    def test_a_released_savepoint_belongs_to_the_one_around_it(
        self, writer: Client, other: Client
    ) -> None:
        writer.execute("savepoint a")
        writer.execute("savepoint b")
        writer.write("account-1")
        writer.execute("release b")
        other.write("account-2")
        released = other.read()

        writer.execute("rollback to a")

        assert (released, other.read()) == ([], [2])

    def test_a_block_that_catches_its_exception_lets_go(
        self, writer: Client, other: Client
    ) -> None:
        other.write("account-2")

        writer.execute(
            """
            do $$
            begin
              perform message_store.write_message(gen_random_uuid()::varchar, 'a-1', 'T', '{}');
              raise exception 'undo it';
            exception when raise_exception then null;
            end
            $$
            """
        )

        assert (other.announcements(), other.watermark()) == (0, 2)

    def test_a_cursor_that_fails_in_one_keeps_holding_for_what_it_wrote_before(
        self, writer: Client, other: Client
    ) -> None:
        writer.execute(
            "declare c cursor for select 1 / (2 - n), message_store.write_message("
            "gen_random_uuid()::varchar, 'account-' || n, 'T', '{}') from generate_series(1, 2) n"
        )
        writer.execute("fetch 1 from c")
        writer.execute("savepoint a")
        with pytest.raises(psycopg.errors.DivisionByZero):
            writer.execute("fetch 1 from c")
        writer.execute("rollback to a")
        last = other.write("account-9")
        meanwhile = other.read()

        writer.execute("commit")

        assert (meanwhile, other.read()) == ([], [1, last])


class TestSnapshots:
    @pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
    def test_are_refused_without_a_watermark(
        self, store: Store, other: Client, isolation: str
    ) -> None:
        other.write()
        other.execute(f"begin isolation level {isolation}")

        with pytest.raises(WatermarkRequired):
            store.using(other.connection).get_category_messages("$all")

    @pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
    def test_show_what_was_complete_before_they_were_taken(
        self, store: Store, writer: Client, other: Client, isolation: str
    ) -> None:
        other.write("account-2")
        writer.write("account-1")
        other.write("account-2")

        with store.transaction(isolation) as tx:
            first = tx.get_category_messages("$all")
            writer.execute("commit")
            again = tx.get_category_messages("$all")
            head = tx.category_head("$all")

        assert [m.global_position for m in first] == [1]
        assert (again, head) == (first, 1)

    def test_go_on_in_the_next_one_without_a_loss(
        self, store: Store, writer: Client, other: Client
    ) -> None:
        writer.write("account-1")
        other.write("account-2")
        with store.transaction("repeatable read") as tx:
            before = tx.get_category_messages("$all")
        writer.execute("commit")

        with store.transaction("repeatable read") as tx:
            after = tx.get_category_messages("$all")

        assert (before, [m.global_position for m in after]) == ([], [1, 2])


class TestAfterAPosition:
    """The watermark of a reader that wants only what comes after a position."""

    def test_a_message_that_is_still_being_committed_is_a_gap(
        self, writer: Client, other: Client
    ) -> None:
        writer.write("account-1")
        other.write("account-2")
        meanwhile = other.watermark_after(0)

        writer.execute("commit")

        assert (meanwhile, other.watermark_after(0)) == (0, 2)

    def test_what_comes_before_it_does_not_matter(self, writer: Client, other: Client) -> None:
        writer.write("account-1")
        other.write("account-2")

        assert (other.watermark_after(1), other.watermark_after(2)) == (2, 2)

    def test_a_writer_that_has_only_announced_holds_back_nothing(
        self, writer: Client, other: Client
    ) -> None:
        writer.execute(
            "insert into message_store.messages (stream_name, type, position)"
            " select 'account-1', 'Opened', 0 where false"
        )
        other.write("account-2")

        assert (other.watermark(), other.watermark_after(0)) == (0, 1)
        writer.write("account-1")
        assert (other.watermark_after(0), other.watermark_after(1)) == (0, 0)

    def test_a_message_that_was_rolled_back_does_not_hold_it_back(
        self, writer: Client, other: Client
    ) -> None:
        writer.write("account-1")
        other.write("account-2")

        writer.execute("rollback")

        assert other.watermark_after(0) == 2

    def test_further_from_the_end_it_is_the_watermark(self, writer: Client, other: Client) -> None:
        for number in range(30):
            other.write(f"account-{number}")
        writer.write("account-30")
        other.write("account-31")

        assert [other.watermark_after(after) for after in (0, 15, 30)] == [30, 30, 30]

    def test_an_old_snapshot_sees_gaps_and_gets_the_watermark(
        self, writer: Client, other: Client
    ) -> None:
        writer.execute("rollback")
        writer.execute("begin isolation level repeatable read")
        writer.execute("select count(*) from message_store.messages")
        other.write("account-1")

        assert writer.watermark_after(0) == 1


class TestTheHead:
    def test_is_the_last_message_that_is_complete(self, writer: Client, other: Client) -> None:
        other.write("account-2")
        writer.write("account-1")
        other.write("account-2")
        meanwhile = (other.head(), other.head("account"))

        writer.execute("commit")

        assert (meanwhile, other.head(), other.head("account")) == ((1, 1), 3, 3)

    def test_is_never_a_position_that_was_rolled_back(self, writer: Client, other: Client) -> None:
        other.write("account-2")
        writer.write("account-1")

        writer.execute("rollback")

        assert (other.watermark(), other.head(), other.head("account")) == (2, 1, 1)

    def test_is_0_for_a_category_that_is_not_there(self, other: Client) -> None:
        other.write("account-1")

        assert other.head("accounts") == 0


class TestOpenWriters:
    def test_are_named_oldest_first(
        self, connect: Callable[[], Client], writer: Client, other: Client
    ) -> None:
        second = connect()
        second.execute("begin")
        writer.write("account-1")
        second.write("account-2")

        found = other.execute(
            "select pid, state, age > interval '0', bound from penstock.open_writers()"
        ).fetchall()

        assert found == [
            (writer.pid, "idle in transaction", True, 1),
            (second.pid, "idle in transaction", True, 2),
        ]

    def test_are_none_when_all_have_ended(self, writer: Client, other: Client) -> None:
        writer.write()

        writer.execute("commit")

        assert other.execute("select * from penstock.open_writers()").fetchall() == []


class SlowWriter(Interceptor):
    """Announces, once a reader has looked for the head, the position that was next long before."""

    def __init__(self, client: Client, bound: int) -> None:
        self.client = client
        self.bound = bound

    @contextmanager
    def around(self, call: Call) -> Iterator[None]:
        yield
        if call.name == "category_head":
            self.client.execute("select pg_advisory_lock_shared(%s, %s)", ANNOUNCEMENTS, self.bound)


class WriterBetweenLooks(Interceptor):
    """Writes a message after each of a reader's first looks."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.written: list[int] = []

    @contextmanager
    def around(self, call: Call) -> Iterator[None]:
        yield
        if call.name in ("category_head", "get_category_messages") and len(self.written) < 4:
            self.written.append(self.client.write("account-1"))


class TestAMessageWrittenBetweenTwoLooks:
    """A reader that passes over what is not its own looks for the head, and then for messages."""

    def test_is_not_passed_over_by_a_follower(self, database_url: str, other: Client) -> None:
        writer, looks = WriterBetweenLooks(other), count()

        with penstock.connect(database_url, interceptors=[writer]) as store:
            followed = store.follow_category(
                "account",
                consumer_group_member=0,
                consumer_group_size=1,
                polling_interval_ms=1,
                stop=lambda: next(looks) == 5,
            )
            seen = [message.global_position for message in followed]

        assert seen == writer.written == [1, 2, 3, 4]

    async def test_is_not_passed_over_by_an_async_follower(
        self, database_url: str, other: Client
    ) -> None:
        writer, looks = WriterBetweenLooks(other), count()

        async with await penstock.connect_async(database_url, interceptors=[writer]) as store:
            followed = store.follow_category(
                "account",
                consumer_group_member=0,
                consumer_group_size=1,
                polling_interval_ms=1,
                stop=lambda: next(looks) == 5,
            )
            seen = [message.global_position async for message in followed]

        assert seen == writer.written == [1, 2, 3, 4]

    def test_is_not_passed_over_by_a_member_of_a_group(
        self, database_url: str, other: Client
    ) -> None:
        writer, handled = WriterBetweenLooks(other), list[int]()

        with penstock.connect(database_url, interceptors=[writer]) as store:
            consumer = Consumer(
                store, "account", "mailer", consumer_group_member=0, consumer_group_size=1
            )
            consumer.handler("Opened")(lambda message: handled.append(message.global_position))
            for _ in range(5):
                consumer.run_once()

        assert handled == writer.written
        assert len(handled) == 4


class TestAWatermarkThatGoesBack:
    """A writer that reads the sequence and is slow to announce takes it back below its promise."""

    def test_does_not_make_a_follower_pass_over_anything(
        self, database_url: str, other: Client
    ) -> None:
        written = [other.write(f"account-{number}") for number in range(4)]
        slow_writer, looks = SlowWriter(other, bound=2), count()

        with penstock.connect(database_url, interceptors=[slow_writer]) as store:
            followed = store.follow_category(
                "account",
                consumer_group_member=0,
                consumer_group_size=1,
                polling_interval_ms=1,
                stop=lambda: next(looks) == 3,
            )

            assert [message.global_position for message in followed] == written

    def test_does_not_make_a_member_of_a_group_pass_over_anything(
        self, database_url: str, other: Client
    ) -> None:
        written = [other.write(f"account-{number}") for number in range(4)]
        handled: list[int] = []

        with penstock.connect(database_url, interceptors=[SlowWriter(other, bound=2)]) as store:
            consumer = Consumer(
                store, "account", "mailer", consumer_group_member=0, consumer_group_size=1
            )
            consumer.handler("Opened")(lambda message: handled.append(message.global_position))
            for _ in range(3):
                consumer.run_once()

        assert handled == written

    async def test_does_not_make_an_async_follower_pass_over_anything(
        self, database_url: str, other: Client
    ) -> None:
        written = [other.write(f"account-{number}") for number in range(4)]
        slow_writer, looks = SlowWriter(other, bound=2), count()

        async with await penstock.connect_async(database_url, interceptors=[slow_writer]) as store:
            followed = store.follow_category(
                "account",
                consumer_group_member=0,
                consumer_group_size=1,
                polling_interval_ms=1,
                stop=lambda: next(looks) == 3,
            )

            assert [message.global_position async for message in followed] == written
