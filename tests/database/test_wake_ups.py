"""Rings: who is woken by a commit, and when."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from selectors import EVENT_READ, PollSelector
from typing import Any

import psycopg
import pytest

import penstock
from penstock import Message, Store
from penstock.database.notifications import (
    LONGEST_GAP_OF_A_NAME,
    LONGEST_PAYLOAD,
    SHORTEST_GAP,
    Gap,
    Line,
    Pending,
    notification,
)
from penstock.database.waiters import (
    EVERYTHING,
    LOG,
    of_category,
    of_group,
    of_stream,
    of_topic,
    of_type,
    written,
)
from penstock.database.wake_ups import Pace, WakeUps
from penstock.log.waiter import Waiter, log_ends
from tests.log.waiting import (
    AN_HOUR,
    LONG,
    NEVER,
    Numbered,
    Sleeper,
    listener_pid,
    listening,
    looks,
    store_with,
    wake_ups_of,
)
from tests.racing import wait_until


@pytest.fixture
def reader(database_url: str) -> Iterator[Store]:
    with store_with(database_url, NEVER) as store:
        yield listening(store)


@pytest.fixture
def writer(database_url: str) -> Iterator[Store]:
    with penstock.connect(database_url) as store:
        yield store


class TestWhoIsWoken:
    def test_a_commit_wakes_who_waits_in_another_process(
        self, reader: Store, writer: Store
    ) -> None:
        sleeper, other = (
            Sleeper(reader, of_category("order")),
            Sleeper(reader, of_category("account")),
        )

        writer.write_message("order-1", "Placed")

        assert sleeper.wait()
        assert sleeper.is_notified
        assert not other.is_notified

    def test_and_who_waits_in_the_same_store_without_a_notification(self, writer: Store) -> None:
        sleeper = Sleeper(writer, of_type("Placed"))

        writer.write_message("order-1", "Placed")

        assert sleeper.is_notified
        assert not wake_ups_of(writer).is_listening

    @pytest.mark.parametrize("wanted", ["log", "category:order", "type:Placed"])
    def test_every_way_to_write_names_category_and_type(self, store: Store, wanted: str) -> None:
        sleeper = Sleeper(store, wanted)

        def message(type: str) -> Message:
            return Message(type, {})

        for write in (
            lambda: store.write_message("order-1", "Placed"),
            lambda: store.write_messages("order-1", [message("Placed")]),
            lambda: store.write_many([("order-1", message("Placed")), ("a-2", message("Paid"))]),
            lambda: store.append(message("Placed"), stream_name="order-1"),
            lambda: store.append([message("Placed"), message("Paid")], stream_name="order-1"),
        ):
            sleeper.reset()
            write()
            assert sleeper.is_notified

    def test_a_message_without_a_stream_is_in_the_category_of_its_type(self, store: Store) -> None:
        sleeper = Sleeper(store, of_category("Placed"))

        store.append(Message("Placed", {}))

        assert sleeper.is_notified

    def test_queues_do_not_wake_each_other(self, store: Store) -> None:
        mine, other = Sleeper(store, "stream:queue-mine"), Sleeper(store, "stream:queue-other")

        store.queue("mine").offer(1)

        assert (mine.is_notified, other.is_notified) == (True, False)

    def test_enqueueing_wakes_those_of_the_topic(self, store: Store) -> None:
        mail, other = Sleeper(store, of_topic("mail")), Sleeper(store, of_topic("other"))

        store.outbox.enqueue("mail")

        assert (mail.is_notified, other.is_notified) == (True, False)

    def test_a_message_that_goes_back_wakes_those_of_its_topic(self, store: Store) -> None:
        store.outbox.enqueue("mail")
        [claimed] = store.outbox.claim("me")
        mail = Sleeper(store, of_topic("mail"))

        store.outbox.abandon(claimed)

        assert mail.is_notified

    def test_finishing_by_hand_wakes_the_waits_of_joins(self, store: Store) -> None:
        store.outbox.enqueue("mail")
        [claimed] = store.outbox.claim("me")
        waits = Sleeper(store, of_topic("join.wait"))

        store.outbox.ack(claimed)

        assert waits.is_notified

    @pytest.mark.parametrize("change", ["start", "reset"])
    def test_a_group_that_is_changed_wakes_its_workers(self, store: Store, change: str) -> None:
        store.groups.register("mine")
        mine = Sleeper(store, "group:mine")

        getattr(store.groups, change)("mine")

        assert mine.is_notified

    def test_more_names_than_a_notification_holds_wake_everyone(self) -> None:
        streams = [f"category{number}" for number in range(LONGEST_PAYLOAD)]

        [statement] = notification(written(streams, ["Placed"])).statements

        assert statement.arguments == ("penstock", f'["{EVERYTHING}"]')

    def test_what_others_send_on_the_channel_is_ignored(
        self, reader: Store, writer: Store, database_url: str
    ) -> None:
        sleeper = Sleeper(reader, of_category("order"))
        with psycopg.connect(database_url, autocommit=True) as other:
            for payload in ("", "no JSON", '{"a": 1}', "[1]"):
                other.execute("select pg_notify('penstock', %s)", (payload,))

        writer.write_message("order-1", "Placed")

        assert sleeper.wait()
        assert sleeper.is_notified


class TestWhen:
    def test_a_transaction_notifies_when_it_has_committed(self, store: Store) -> None:
        sleeper = Sleeper(store, of_category("order"))

        with store.transaction() as transaction:
            transaction.write_message("order-1", "Placed")
            before = sleeper.is_notified

        assert (before, sleeper.is_notified) == (False, True)

    def test_one_that_is_rolled_back_does_not_notify(self, store: Store) -> None:
        sleeper = Sleeper(store, of_category("order"))
        transaction = store.begin_transaction()
        transaction.write_message("order-1", "Placed")

        transaction.rollback()

        assert not sleeper.is_notified

    def test_on_your_connection_only_what_is_committed_at_once_notifies(
        self, store: Store, database_url: str
    ) -> None:
        sleeper = Sleeper(store, of_category("order"))
        with psycopg.connect(database_url) as connection:
            store.using(connection).write_message("order-1", "Placed")
            in_transaction = sleeper.is_notified
        with psycopg.connect(database_url, autocommit=True) as connection:
            store.using(connection).write_message("order-1", "Placed")

        assert (in_transaction, sleeper.is_notified) == (False, True)

    def test_a_store_that_is_closed_at_once_has_notified(
        self, reader: Store, database_url: str
    ) -> None:
        sleeper = Sleeper(reader, of_category("order"))

        with penstock.connect(database_url) as writer:
            writer.write_message("order-1", "Placed")

        assert sleeper.wait()
        assert sleeper.is_notified


class TestSafetyLook:
    def test_finds_a_message_of_a_writer_that_does_not_notify(self, database_url: str) -> None:
        with store_with(database_url, Pace()) as reader:
            listening(reader)
            wanted = [LOG, of_category("queue"), of_type("T"), of_stream("queue-1")]
            sleepers = [Sleeper(reader, one) for one in wanted]
            with psycopg.connect(database_url) as other:
                other.execute("select message_store.write_message(%s, 'queue-1', 'T', '{}')", (
                    "9b5f8a39-7a3a-4d1a-9d3c-0d2a0a7c7f10",))  # fmt: skip

            assert all(one.wait() for one in sleepers)
            assert not any(one.is_notified for one in sleepers)

    def test_wakes_nobody_who_waits_for_something_else(self, database_url: str) -> None:
        others = [of_category("account"), of_type("Shipped"), of_stream("queue-2")]
        others += [of_topic("mail"), of_group("seats")]
        with store_with(database_url, Pace(look=0.05)) as reader:
            reader.groups.register("seats")
            claimed = reader.groups.claim_next(
                "seats", partition_by="number", handled_types=[Numbered]
            )
            assert claimed is None
            listening(reader)
            mine, rest = (
                Sleeper(reader, of_category("order")),
                [Sleeper(reader, one) for one in others],
            )
            with psycopg.connect(database_url, autocommit=True) as other:
                other.execute("create table something_else ()")
                other.execute("select message_store.write_message(%s, 'order-1', 'Placed', '{}')", (
                    "9b5f8a39-7a3a-4d1a-9d3c-0d2a0a7c7f13",))  # fmt: skip
            assert mine.wait()
            looks(reader, 5)

            assert not any(one.one.is_woken for one in rest)

    def test_wakes_all_when_too_much_was_written_to_say_what(self, database_url: str) -> None:
        with store_with(database_url, Pace()) as reader:
            listening(reader)
            sleeper = Sleeper(reader, of_category("order"))
            with psycopg.connect(database_url) as other:
                other.execute(
                    "insert into message_store.messages (stream_name, position, type)"
                    " select 'queue-1', n, 'T' from generate_series(0, 20000) n"
                )

            assert sleeper.wait()

    def test_finds_a_record_of_a_queue_although_a_writer_is_open(self, database_url: str) -> None:
        with store_with(database_url, Pace()) as reader, psycopg.connect(database_url) as late:
            listening(reader)
            sleeper = Sleeper(reader, of_stream("queue-1"))
            late.execute("select message_store.write_message(%s, 'account-1', 'T', '{}')", (
                "9b5f8a39-7a3a-4d1a-9d3c-0d2a0a7c7f14",))  # fmt: skip
            with psycopg.connect(database_url) as other:
                other.execute("select message_store.write_message(%s, 'queue-1', 'T', '{}')", (
                    "9b5f8a39-7a3a-4d1a-9d3c-0d2a0a7c7f15",))  # fmt: skip

            assert sleeper.wait()

    def test_finds_what_an_open_writer_held_back(self, database_url: str) -> None:
        with store_with(database_url, Pace()) as reader, psycopg.connect(database_url) as late:
            listening(reader)
            sleeper = Sleeper(reader, of_category("order"))
            late.execute("select message_store.write_message(%s, 'account-1', 'T', '{}')", (
                "9b5f8a39-7a3a-4d1a-9d3c-0d2a0a7c7f11",))  # fmt: skip
            with psycopg.connect(database_url) as other:
                other.execute("select message_store.write_message(%s, 'order-1', 'T', '{}')", (
                    "9b5f8a39-7a3a-4d1a-9d3c-0d2a0a7c7f12",))  # fmt: skip
            looks(reader, 2)
            while_open = sleeper.one.is_woken

            late.rollback()

            assert sleeper.wait()
            assert not while_open  # it could not read further

    def test_comes_sooner_when_one_has_led_to_something(self, reader: Store) -> None:
        wake_ups, waiter = wake_ups_of(reader), Waiter(reader, ["mine"], held_back=False)
        with waiter:
            [one] = [one for one in wake_ups.waiters._all if one.wanted == {"mine"}]
            pauses = []
            for is_notified, found in ((False, False), (True, True), (False, True)):
                one.is_woken, one.is_notified = True, is_notified
                waiter.looks()
                one.is_woken = True  # it sleeps no longer
                waiter.sleep(0.5, found=found)
                pauses.append(wake_ups._look_pause)

        assert pauses == [AN_HOUR, AN_HOUR, 0.5]

    def test_reads_the_log_s_ends(self, store: Store) -> None:
        store.write_message("order-1", "Placed")

        watermark, last = store.run(log_ends())

        assert watermark == last > 0


class TestGaps:
    def test_a_name_is_sent_at_once_after_a_rest(self) -> None:
        gap = Gap(LONGEST_GAP_OF_A_NAME)

        lengths = []
        for moment in (10.0, 10.1, 10.2):
            gap.begin(moment, writes=1)
            lengths.append(gap.ends - moment)

        assert lengths == pytest.approx([SHORTEST_GAP] * 3)

    @pytest.mark.parametrize("hiccup", [0.0, 0.03])
    def test_and_less_often_while_it_is_written_all_the_time(self, hiccup: float) -> None:
        gap = Gap(LONGEST_GAP_OF_A_NAME)

        moment, lengths = 10.0, []
        for _ in range(7):
            gap.begin(moment, writes=10)
            lengths.append(gap.ends - moment)
            moment = gap.ends + hiccup

        assert lengths == pytest.approx([0.005, 0.01, 0.02, 0.04, 0.08, 0.1, 0.1])

    def test_a_busy_name_does_not_keep_others_from_being_sent(self) -> None:
        pending = Pending()
        pending._gaps["busy"] = Gap(LONGEST_GAP_OF_A_NAME)
        pending._gaps["busy"].ends = time.monotonic() + AN_HOUR
        pending.add(["busy", "rare"])

        first, second = pending.take_due(), pending.take_due()
        pending._gaps["busy"].ends = pending._gap.ends = 0.0
        third = pending.take_due()

        assert (first, second, third) == ({"rare"}, set(), {"busy"})


class TestLine:
    @pytest.fixture
    def connection(self, database_url: str) -> Iterator[psycopg.Connection[Any]]:
        with closing(psycopg.connect(database_url, autocommit=True)) as connection:
            yield connection

    @pytest.fixture
    def pending(self) -> Pending:
        return Pending()

    @pytest.fixture
    def line(self, connection: psycopg.Connection[Any], pending: Pending) -> Line:
        return Line(connection, pending)

    def test_a_writer_sends_whatever_is_in_the_names(
        self, reader: Store, line: Line, pending: Pending
    ) -> None:
        sleeper = Sleeper(reader, 'it\'s \\ "Größe"')
        pending.add(sleeper.one.wanted)

        need_not_be_told = line.send()

        assert need_not_be_told
        assert sleeper.wait()
        assert sleeper.is_notified

    def test_it_does_not_wait_for_a_connection_that_is_in_use(
        self, reader: Store, line: Line, pending: Pending
    ) -> None:
        sleeper = Sleeper(reader, "mine")
        pending.add(["mine"])

        with line.held():
            need_not_be_told = line.send()
        line.go_on()  # as the thread does, when it is told

        assert not need_not_be_told
        assert sleeper.wait()

    def test_nor_for_the_reply_to_the_last_notification(
        self, reader: Store, line: Line, pending: Pending
    ) -> None:
        first, second = Sleeper(reader, "first"), Sleeper(reader, "second")
        pending.add(["first"])
        line.send()
        pending.add(["second"])
        pending._gap.ends = 0.0

        need_not_be_told = line.send()
        with line.free() as connection:
            is_free = connection is not None
        line.finish(LONG)

        assert (need_not_be_told, is_free) == (False, False)
        assert first.wait()
        assert second.wait()

    def test_a_connection_that_is_lost_fails_no_write_and_keeps_the_names(
        self, line: Line, pending: Pending, connection: psycopg.Connection[Any], database_url: str
    ) -> None:
        with psycopg.connect(database_url, autocommit=True) as other:
            other.execute("select pg_terminate_backend(%s, 60000)", (connection.info.backend_pid,))
        pending.add(["mine"])

        line.send()
        with pytest.raises(psycopg.OperationalError):
            receive_for_ever(line)
        line.end()
        sent_after_its_end = line.send()

        assert pending.take_all() == {"mine"}
        assert not sent_after_its_end

    def test_a_notification_that_the_server_refuses_is_sent_again(
        self, line: Line, pending: Pending, connection: psycopg.Connection[Any]
    ) -> None:
        connection.execute("set statement_timeout = 1")
        with line.held():  # a command that takes too long, in the place of the notification
            connection.pgconn.send_query(b"select pg_sleep(60)")
            line._under_way = {"mine"}
        with PollSelector() as selector:
            selector.register(connection.fileno(), EVENT_READ)
            selector.select(LONG)

        with pytest.raises(psycopg.errors.QueryCanceled):
            line.receive()
        line.end()

        assert pending.take_all() == {"mine"}

    def test_a_notification_that_comes_with_the_reply_to_its_own_is_received(
        self, line: Line, pending: Pending, connection: psycopg.Connection[Any], writer: Store
    ) -> None:
        connection.execute("listen penstock")
        pending.add(["mine"])
        line.send()
        writer.run(notification(["theirs"]))
        with socket.socket(fileno=os.dup(connection.fileno())) as arrived:
            while b"theirs" not in arrived.recv(10_000, socket.MSG_PEEK):
                time.sleep(0.001)

        received = [payload for payload, _ in line.receive()]

        assert received == [b'["mine"]', b'["theirs"]']
        assert not line.awaits_reply


class TestThread:
    def test_starts_with_the_first_notification_or_sleep_and_ends_with_the_store(
        self, database_url: str
    ) -> None:
        count = "select count(*) from pg_stat_activity where application_name = 'mine wake-ups'"
        with (
            psycopg.connect(database_url, autocommit=True) as other,
            penstock.connect(database_url, application_name="mine") as store,
        ):
            store.get_category_messages("order")
            before = other.execute(count).fetchone()
            listening(store)
            during = other.execute(count).fetchone()

        assert (before, during) == ((0,), (1,))
        wait_until(database_url, f"select ({count}) = 0")

    def test_is_not_there_if_wake_ups_are_switched_off(self, database_url: str) -> None:
        with penstock.connect(database_url, wake_up=False) as store:
            store.write_message("order-1", "Placed")

            assert store.context.wake_ups is None

    def test_listens_again_when_its_connection_was_lost(
        self, reader: Store, writer: Store, database_url: str
    ) -> None:
        lost = Sleeper(reader, "nothing")
        with psycopg.connect(database_url, autocommit=True) as other:
            other.execute("select pg_terminate_backend(%s)", (listener_pid(database_url),))
        assert lost.wait()  # they look, and poll
        listening_again(reader)
        sleeper = Sleeper(reader, of_category("order"))

        writer.write_message("order-1", "Placed")

        assert sleeper.wait()
        assert sleeper.is_notified

    def test_a_notification_that_could_not_be_sent_is_sent_later(
        self, reader: Store, writer: Store, database_url: str
    ) -> None:
        listening(writer)
        sleeper = Sleeper(reader, of_category("order"))
        with psycopg.connect(database_url, autocommit=True) as other:
            other.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where application_name = 'penstock wake-ups' and pid <> %s",
                (wake_ups_of(reader)._pid,),
            )

        writer.write_message("order-1", "Placed")

        assert sleeper.wait()


def receive_for_ever(line: Line) -> None:
    while True:
        line.receive()


def listening_again(store: Store) -> None:
    """Return when notifications arrive again."""
    sleeper = Sleeper(store, "nothing")
    while not wake_ups_of(store).is_listening:
        sleeper.wait()
        sleeper.reset()


def test_a_closed_store_notifies_no_more(database_url: str) -> None:
    with penstock.connect(database_url) as store:
        settings, edition = store.settings, store.edition
    wake_ups = WakeUps(settings, edition)

    wake_ups.close()
    wake_ups.notify(["log"])
    wake_ups.listen()

    assert wake_ups.close() == frozenset()
