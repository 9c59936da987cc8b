"""Announcements: whoever writes, by whatever means, says first where it may write."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest

from tests.log.client import Client
from tests.racing import pause, wait_until_blocked

SEQUENCE = "message_store.messages_global_position_seq"
ROW = "(stream_name, type, position) values ('account-1', 'T', 0)"
INSERTS = {
    "insert": f"insert into message_store.messages {ROW}",
    "insert on conflict": f"insert into message_store.messages {ROW} on conflict do nothing",
    "insert of a query": "insert into message_store.messages (stream_name, type, position)"
    " select 'account-1', 'T', n from generate_series(0, 2) n",
    "insert in a CTE": f"with new as (insert into message_store.messages {ROW} returning 1)"
    " select * from new",
    "insert into a view": f"insert into doorway {ROW}",
    "insert as a replica": "set local session_replication_role = replica;"
    f" insert into message_store.messages {ROW}",
    "merge": "merge into message_store.messages m using (select 'account-1' as name) s"
    " on m.stream_name = s.name when not matched then"
    " insert (stream_name, type, position) values (s.name, 'T', 0)",
}
# between the first row, which has its position, and the second
INSERT_AND_WAIT = (
    "insert into message_store.messages (stream_name, type, position)"
    " select 'account-1', 'T', n from generate_series(0, 1) n"
    " where n = 0 or exists (select from pg_advisory_xact_lock_shared(4711))"
)
BY_HAND = (
    "insert into message_store.messages (global_position, stream_name, type, position)"
    " values (%s, 'account-2', 'T', 0)"
)


class TestEveryClient:
    @pytest.mark.parametrize("way", INSERTS)
    def test_that_inserts_is_announced(self, writer: Client, other: Client, way: str) -> None:
        other.execute("create view doorway as select * from message_store.messages")

        writer.execute(INSERTS[way])
        other.write("account-2")

        assert (other.announcements(), other.read()) == (1, [])

    def test_that_copies_is_announced(self, writer: Client, other: Client) -> None:
        into = "copy message_store.messages (stream_name, type, position) from stdin"

        with writer.connection.cursor() as cursor, cursor.copy(into) as copy:
            copy.write_row(("account-1", "T", 0))
        other.write("account-2")

        assert (other.announcements(), other.read()) == (1, [])

    def test_is_announced_before_it_takes_its_first_position(
        self, database_url: str, writer: Client, other: Client
    ) -> None:
        other.execute("select pg_advisory_lock(4711)")
        with ThreadPoolExecutor(1) as thread:
            writing = thread.submit(writer.execute, INSERT_AND_WAIT)
            wait_until_blocked(database_url)
            other.write("account-2")
            meanwhile = other.read()
            other.execute("select pg_advisory_unlock(4711)")
            writing.result()

        writer.execute("commit")

        assert (meanwhile, other.read()) == ([], [1, 2, 3])

    def test_that_knows_nothing_of_us_is_announced(self, writer: Client, other: Client) -> None:
        other.execute("create role stranger")
        try:
            other.execute("grant usage on schema message_store to stranger")
            other.execute("grant insert on message_store.messages to stranger")
            other.execute(f"grant usage, select on sequence {SEQUENCE} to stranger")

            writer.execute("set local role stranger")
            writer.execute(INSERTS["insert"])

            assert other.announcements() == 1
        finally:
            writer.execute("rollback")
            other.execute("drop owned by stranger")
            other.execute("drop role stranger")


class TestAPosition:
    def test_made_by_hand_below_the_announced_one_is_refused(self, other: Client) -> None:
        other.write()

        with pytest.raises(psycopg.Error) as caught:
            other.execute(BY_HAND, 0)

        assert caught.value.sqlstate == "PS006"

    def test_drawn_before_the_announcement_is_refused(self, writer: Client) -> None:
        drawn = writer.value(f"select nextval('{SEQUENCE}')")

        with pytest.raises(psycopg.Error) as caught:
            writer.execute(BY_HAND, drawn)

        assert caught.value.sqlstate == "PS006"

    def test_from_a_cache_of_the_sequence_is_refused(self, other: Client) -> None:
        other.execute(f"alter sequence {SEQUENCE} cache 10")
        other.write()

        with pytest.raises(psycopg.Error) as caught:
            other.write()

        assert caught.value.sqlstate == "PS006"

    def test_made_by_hand_above_is_not_shown_until_the_sequence_gets_there(
        self, other: Client
    ) -> None:
        other.execute(BY_HAND, 4)
        before = other.read()

        written = [other.write() for _ in range(3)]

        assert (before, other.read()) == ([], written)


class TestTheSettings:
    @pytest.mark.parametrize("setting", ["penstock.announced", "penstock.bound"])
    @pytest.mark.parametrize("leaked", ["1", "999999999", "nonsense", ""])
    def test_left_behind_in_a_session_does_no_harm(
        self, writer: Client, other: Client, setting: str, leaked: str
    ) -> None:
        writer.execute("select set_config(%s, %s, false)", setting, leaked)
        writer.execute("commit")
        writer.execute("begin")
        writer.write("account-1")
        other.write("account-2")
        meanwhile = other.read()

        writer.execute("commit")

        assert (meanwhile, other.read()) == ([], [1, 2])

    def test_of_an_earlier_transaction_does_no_harm(self, writer: Client, other: Client) -> None:
        writer.write("account-1")
        announced = writer.value("select current_setting('penstock.announced')")
        writer.execute("commit")
        writer.execute("select set_config('penstock.announced', %s, false)", announced)

        writer.execute("begin")
        writer.write("account-1")
        other.write("account-2")

        assert other.read() == [1]

    def test_that_is_reset_leaves_the_announcement_standing(
        self, writer: Client, other: Client
    ) -> None:
        writer.write("account-1")

        writer.execute("reset all")
        writer.write("account-1")
        other.write("account-2")

        assert (other.watermark(), other.read()) == (0, [])


class TestTheKey:
    """An announcement's key has 31 bits; the rest is found from the sequence's last value."""

    @pytest.mark.parametrize("boundary", [2**30, 2**31, 2**31 + 2**30, 2**32, 2**62])
    @pytest.mark.parametrize("is_called", [True, False])
    def test_may_wrap_around(
        self, writer: Client, other: Client, boundary: int, is_called: bool
    ) -> None:
        for last in range(boundary - 5, boundary + 5, 3):
            restart = f"select setval('{SEQUENCE}', %s, %s)"
            other.execute(restart, last if is_called else last + 1, is_called)
            written = [writer.write("account-1"), *(other.write("account-2") for _ in range(2))]
            meanwhile = (other.watermark(), other.read(position=last + 1))

            writer.execute("commit")

            assert meanwhile == (last, [])
            assert other.read(position=last + 1) == written == [last + 1, last + 2, last + 3]
            writer.execute("begin")
            other.execute("delete from message_store.messages")

    def test_may_be_far_behind_the_last_position(self, writer: Client, other: Client) -> None:
        writer.write("account-1")

        other.execute(f"select setval('{SEQUENCE}', %s)", 2**30)

        assert (other.watermark(), other.read()) == (0, [])


class TestTheSequence:
    def test_is_never_seen_ahead_of_what_it_handed_out(
        self, connect: Callable[[], Client], other: Client
    ) -> None:
        """Once in 32 times a nextval() shows for a moment, to a plain SELECT, a value 32 ahead."""
        with _drawing_positions(connect()):
            while not other.value(f"select pg_sequence_last_value('{SEQUENCE}'::regclass)"):
                pause()
            moves = 0
            while moves <= 100:  # on a busy machine one statement sees few of them
                ((ahead, drawn),) = other.execute(
                    "select count(*) filter (where seen > drawn), count(distinct drawn) from ("
                    " select penstock.last_position() as seen,"
                    f" pg_sequence_last_value('{SEQUENCE}'::regclass) as drawn"
                    " from generate_series(1, 200000) offset 0) looks"
                ).fetchall()
                assert ahead == 0
                moves += drawn


@contextmanager
def _drawing_positions(client: Client) -> Iterator[None]:
    """Meanwhile draw positions, as fast as it goes."""

    def draw() -> None:
        with pytest.raises(psycopg.errors.QueryCanceled):
            client.execute(f"do $$ begin loop perform nextval('{SEQUENCE}'); end loop; end $$")

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        yield
    finally:
        client.connection.cancel_safe()
        thread.join()
