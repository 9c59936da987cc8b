"""Old messages move to the archive, and every read still finds them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import psycopg
import pyarrow.parquet as pq
import pytest

import penstock
from penstock import CommitMode, Consumer, Message, Store
from penstock.errors import (
    ArchivedMessages,
    ArchiveLost,
    ArchiveMismatch,
    ArchiveRunning,
    ArchiveUnreachable,
    CategoryWritten,
    NoWarehouse,
    UnreadMessages,
    ValidationError,
    WarehouseUnusable,
)
from penstock.lake import catalog
from penstock.log.archive import Archived, archive, digest_of, move_to_archive
from penstock.log.read import get_category_messages
from penstock.log.retention import Keep
from tests.consumers.consuming import Numbers
from tests.log.archiving import NOW, archived, in_table, store_with_warehouse

THOUSANDS = """
insert into message_store.messages (stream_name, type, position, data)
select 'counted', 'Counted', n, jsonb_build_object('n', n) from generate_series(0, 6000) n
"""
LARGE = """
insert into message_store.messages (stream_name, type, position, data)
select 'scan', 'Scanned', n, jsonb_build_object('image', repeat(md5(n::text), 16000))
from generate_series(0, 39) n
"""


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def store(database_url: str, warehouse: Path) -> Iterator[Store]:
    warehouse.mkdir()
    with store_with_warehouse(database_url, warehouse) as store:
        yield store


def fill(store: Store, count: int = 30, streams: int = 3) -> None:
    for number in range(count):
        store.write_message(
            f"account-{number % streams}",
            "Opened" if number < streams else "Deposited",
            {"number": number, "text": 'é\n\\"\u2028', "amount": 1e300},
            {"trace": str(number)} if number % 2 else None,
        )


class TestReads:
    def test_a_category_is_the_same_as_before(self, store: Store) -> None:
        fill(store)
        before = store.get_category_messages("account")

        moved = archived(store, "account", batch_size=8)

        assert moved.moved == 27
        assert len(in_table(store)) == 3
        assert store.get_category_messages("account") == before

    @pytest.mark.parametrize("size", [1, 4, 30])
    def test_pages_of_a_category_cross_the_seam(self, store: Store, size: int) -> None:
        fill(store)
        before = store.get_category_messages("account")
        archived(store, "account", Keep(count=11), batch_size=8)

        assert list(store.read_category("account", batch_size=size)) == before
        assert list(store.read_category("$all", batch_size=size)) == before

    def test_a_stream_and_its_version_go_on(self, store: Store) -> None:
        fill(store)
        before = store.get_stream_messages("account-1")
        archived(store, "account")

        assert store.get_stream_messages("account-1") == before
        assert store.get_stream_messages("account-1", 4, 3) == before[4:7]
        assert store.stream_version("account-1") == 9
        assert store.write_message("account-1", "Closed", expected_version=9) == 10

    def test_the_last_message_of_a_type_may_be_archived(self, store: Store) -> None:
        fill(store)
        opened = store.get_stream_messages("account-2")[0]
        archived(store, "account")

        assert store.get_last_stream_message("account-2", "Opened") == opened
        assert store.get_last_stream_message("account-2", "Closed") is None
        assert store.get_last_stream_message("account-9") is None

    def test_a_stream_of_its_own_is_archived_whole(self, store: Store) -> None:
        store.append([Message("Paid", {"number": number}) for number in range(5)])
        paid = store.get_category_messages("Paid")

        assert archived(store, "Paid").moved == 4

        assert [store.get_stream_messages(one.stream_name) for one in paid] == [[m] for m in paid]
        assert store.get_last_stream_message(paid[0].stream_name) == paid[0]

    def test_members_of_a_group_share_the_archived_messages(self, store: Store) -> None:
        fill(store, 40, streams=9)
        before = [_member(store, number) for number in range(3)]
        archived(store, "account")

        assert [_member(store, number) for number in range(3)] == before
        assert sum(map(len, before)) == 40

    def test_correlation_with_archived_messages(self, store: Store) -> None:
        for number in range(6):
            metadata = {"correlation_id": f"request-{number}"}
            store.write_message("command-1", "Pay", {}, metadata)
            store.write_message(f"account-{number % 2}", "Paid", {"number": number}, metadata)
            store.write_message("account-0", "Audited", {})
        before = store.get_category_messages("account", correlation="command")
        archived(store, "command")
        archived(store, "account", Keep(count=5))

        assert store.get_category_messages("account", correlation="command") == before
        assert store.get_category_messages("account", correlation="other") == []
        assert len(before) == 6

    def test_correlation_with_a_prefix_of_archived_streams_is_refused(self, store: Store) -> None:
        store.write_message("command-pay-1", "Pay", {}, {"correlation_id": "1"})
        store.write_message("command-pay-1", "Pay", {}, {"correlation_id": "2"})
        archived(store, "command")

        with pytest.raises(ArchivedMessages, match="command-pay"):
            store.get_category_messages("account", correlation="command-pay")

    def test_a_resume_token_of_an_archived_message_is_valid(self, store: Store) -> None:
        fill(store)
        tenth = store.get_category_messages("account")[9]
        archived(store, "account")

        rest = store.get_category_messages("account", after=tenth.resume_token)

        assert [one.data["number"] for one in rest] == list(range(10, 30))

    def test_a_condition_is_refused_where_it_would_meet_the_archive(
        self, database_url: str, warehouse: Path
    ) -> None:
        warehouse.mkdir()
        with store_with_warehouse(database_url, warehouse, sql_condition=True) as store:
            fill(store)
            archived(store, "account", Keep(count=10))
            condition = "type = 'Deposited'"

            with pytest.raises(ArchivedMessages, match="type = 'Deposited'"):
                store.get_category_messages("account", condition=condition)
            with pytest.raises(ArchivedMessages):
                store.get_stream_messages("account-1", condition=condition)
            assert len(store.get_category_messages("account", 21, condition=condition)) == 10

    def test_a_read_in_an_older_snapshot_finds_each_message_once(self, store: Store) -> None:
        fill(store)
        before = store.get_category_messages("account")
        with store.transaction("repeatable read", read_only=True) as tx:
            assert tx.get_category_messages("account", 1, 2) == before[:2]
            archived(store, "account")
            assert tx.get_category_messages("account") == before

    def test_messages_that_were_written_and_archived_later_are_not_read_early(
        self, store: Store
    ) -> None:
        """Else a message at a lower position that is in the table would be skipped."""
        fill(store)
        before = store.get_category_messages("account")
        until_then = store.context.until(store.category_head("account"))
        fill(store)
        archived(store, "account")

        read = store.run(get_category_messages(until_then, "account"))

        assert read == before

    def test_a_message_that_stayed_and_is_archived_later_is_read_in_order(
        self, store: Store
    ) -> None:
        store.write_message("account-slow", "Opened")
        fill(store)
        archived(store, "account")
        store.write_message("account-slow", "Closed")
        fill(store)
        archived(store, "account", batch_size=7)

        positions = [one.global_position for one in store.get_category_messages("account")]
        assert positions == list(range(1, 63))
        assert list(store.read_category("$all", batch_size=3)) == store.get_category_messages(
            "$all"
        )


class TestReaders:
    def test_a_consumer_handles_archived_messages_and_goes_on(self, store: Store) -> None:
        fill(store)
        archived(store, "account", Keep(count=7))
        seen = Numbers()
        consumer = Consumer(
            store, "account", "reader", handlers={"Opened": seen, "Deposited": seen}
        )

        consumer.run_until_idle()
        fill(store, 2)
        consumer.run_until_idle()

        assert seen == [*range(30), 0, 1]

    @pytest.mark.parametrize("mode", list(CommitMode))
    def test_a_session_polls_archived_records(self, store: Store, mode: CommitMode) -> None:
        queue = store.queue("mail")
        for number in range(10):
            queue.offer(number)
        archived(store, "queue", Keep(count=4))
        session = queue.create_consumer("sender", mode)

        polled = []
        while (record := session.poll()) is not None:
            polled.append(record.value)
            session.commit()

        assert polled == list(range(10))
        assert session.missed == 0
        assert session.committed_offset() == 10

    @pytest.mark.parametrize("mode", list(CommitMode))
    def test_a_session_seeks_into_the_archive(self, store: Store, mode: CommitMode) -> None:
        queue = store.queue("mail")
        for number in range(10):
            queue.offer(number)
        store.admin.retain("queue-mail", keep_from=2)
        archived(store, "queue")
        session = queue.create_consumer("sender", mode)

        assert session.seek_to_beginning() == 2
        assert session.poll().value == 2  # type: ignore[union-attr]
        assert session.seek(5) == 0
        assert session.poll().value == 5  # type: ignore[union-attr]
        assert queue.fetch_at(3).value == 3  # type: ignore[union-attr]
        assert queue.fetch_at(1) is None

    def test_async_reads_cross_the_seam(self, store: Store) -> None:
        import asyncio

        fill(store)
        before = store.get_category_messages("account")
        archived(store, "account")

        async def read() -> list[Any]:
            async with await penstock.connect_async(store.settings.conninfo()) as other:
                return await other.get_category_messages("account")

        assert asyncio.run(read()) == before


#: ten messages to a stream, whose last one stays
FILL = """
insert into message_store.messages (stream_name, type, position, data)
select '{stream}-' || n / 10, 'Filled', n % 10, jsonb_build_object('text', repeat('x', 500))
from generate_series(0, {count} - 1) n
"""


def size_of_table(connection: psycopg.Connection[tuple[int]]) -> int:
    row = connection.execute("select pg_relation_size('message_store.messages')").fetchone()
    assert row is not None
    return row[0]


class TestMoving:
    def test_through_the_admin(self, store: Store) -> None:
        fill(store)
        calls: list[int] = []

        moved = store.admin.archive("account", older_than=0, progress=calls.append)

        assert moved == Archived(27, 1)
        assert calls == [27]
        status = store.status()
        assert (status.archived_to, status.archived_messages) == (27, 27)

    def test_only_messages_of_that_age(self, store: Store) -> None:
        fill(store)

        assert store.admin.archive("account", timedelta(days=1)).moved == 0
        assert store.status().archived_to is None

    def test_retention_that_moves_instead_of_deleting(self, store: Store) -> None:
        fill(store)

        assert store.admin.retain("account", keep_count=10, archive=True).removed == 20
        assert len(store.get_category_messages("account")) == 30

    def test_what_cannot_be_archived_is_refused(self, store: Store) -> None:
        fill(store)
        for category in ("account-1", "$all", "", 5):
            with pytest.raises(ValidationError):
                store.admin.archive(category, 0)  # type: ignore[arg-type]
        for load in (0, -1, 1.5, True, "half"):
            with pytest.raises(ValidationError):
                store.admin.archive("account", 0, max_load=load)  # type: ignore[arg-type]
        for age in (-1, "90d", None, 1e300, float("nan")):
            with pytest.raises(ValidationError):
                store.admin.archive("account", age)  # type: ignore[arg-type]
        assert len(in_table(store)) == 30

    def test_without_a_warehouse(self, database_url: str) -> None:
        with penstock.connect(database_url) as store, pytest.raises(NoWarehouse):
            store.admin.archive("account", 0)

    def test_a_warehouse_that_cannot_be_written(self, database_url: str, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("not a folder")
        with store_with_warehouse(database_url, tmp_path / "file" / "lake") as store:
            fill(store)
            with pytest.raises(WarehouseUnusable):
                archived(store, "account")
            assert len(in_table(store)) == 30

    def test_unread_messages_are_not_moved(self, store: Store) -> None:
        fill(store)
        consumer = Consumer(store, "account", "slow", handlers={"Opened": Numbers()})
        consumer.run_until_idle()
        fill(store)

        with pytest.raises(UnreadMessages, match=r"consumer slow .* from 32 on"):
            archived(store, "account")
        assert len(in_table(store)) == 61

        moved = archive(store.context, "account", NOW, ignore_consumers=True)
        assert moved.moved == 57

    def test_two_runs_at_once(self, store: Store) -> None:
        fill(store)
        with psycopg.connect(store.settings.conninfo()) as other:
            other.execute("select pg_advisory_lock(1885693291, hashtext('account'))")
            with pytest.raises(ArchiveRunning, match="account"):
                archived(store, "account")

    def test_a_category_that_is_written_in_bulk(self, store: Store) -> None:
        fill(store)
        with psycopg.connect(store.settings.conninfo()) as other:
            other.execute("select pg_advisory_xact_lock(message_store.hash_64('account'))")
            with pytest.raises(CategoryWritten, match="account"):
                archived(store, "account")
        assert len(in_table(store)) == 30
        assert store.status().archived_to is None

    def test_files_that_hold_other_messages_move_nothing(self, store: Store) -> None:
        fill(store)
        archived(store, "account", Keep(count=20))
        with pytest.raises(ArchiveMismatch):
            store.run(move_to_archive("account", in_table(store)[:5], "0" * 32))
        assert len(in_table(store)) == 20

    def test_a_message_that_is_removed_meanwhile_is_noticed(self, store: Store) -> None:
        fill(store)
        archived(store, "account", Keep(count=20))
        with pytest.raises(ArchiveMismatch):
            store.run(move_to_archive("account", [1, *in_table(store)[:5]], "0" * 32))

    def test_the_digest_of_a_file_equals_that_of_the_server(self, store: Store) -> None:
        fill(store)
        archived(store, "account")
        rows = catalog(store).load_table("penstock.archive").scan().to_arrow()

        assert len(digest_of(rows.sort_by("global_position"))) == 32

    def test_new_messages_take_the_space_of_those_that_moved(self, store: Store) -> None:
        url = store.settings.conninfo()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(FILL.format(stream="large", count=4000))
            before = size_of_table(connection)

            def write(moved: int) -> None:
                connection.execute(FILL.format(stream=f"later{moved}", count=700))

            archive(
                store.context, "large", Keep(count=0), batch_size=1000, max_load=1, progress=write
            )

            assert size_of_table(connection) <= before

    def test_a_dictionary_of_ids_does_not_grow_with_their_number(self, store: Store) -> None:
        with store.transaction() as transaction:
            transaction.connection.execute(THOUSANDS)
        archived(store, "counted", batch_size=6_000)

        table = catalog(store).load_table("penstock.archive")
        [file] = table.inspect.files().column("file_path").to_pylist()
        group = pq.ParquetFile(file.removeprefix("file://")).metadata.row_group(0)
        columns = {one.path_in_schema: one for one in map(group.column, range(8))}
        ids = columns["id"]
        dictionary = ids.data_page_offset - (ids.dictionary_page_offset or ids.data_page_offset)

        assert group.num_rows == 6_000
        assert dictionary < ids.total_compressed_size / 4
        assert columns["type"].total_compressed_size < 200

    def test_a_row_group_of_large_messages_has_few_of_them(self, store: Store) -> None:
        with store.transaction() as transaction:
            transaction.connection.execute(LARGE)
        archived(store, "scan")

        table = catalog(store).load_table("penstock.archive")
        [file] = table.inspect.files().column("file_path").to_pylist()
        footer = pq.ParquetFile(file.removeprefix("file://")).metadata
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]

        assert max(group.total_byte_size for group in groups) < 10_000_000
        assert sum(group.num_rows for group in groups) == 39
        first, *rest = store.get_category_messages("scan", batch_size=40)
        assert len(rest) == 39
        assert len(first.data["image"]) == 512_000

    def test_truncate_forgets_the_archive(self, store: Store) -> None:
        fill(store)
        archived(store, "account")
        with psycopg.connect(store.settings.conninfo()) as connection:
            connection.execute("truncate message_store.messages restart identity")
        fill(store, 4)

        assert [one.data["number"] for one in store.get_category_messages("account")] == [
            0,
            1,
            2,
            3,
        ]
        archived(store, "account")
        assert len(store.get_category_messages("account")) == 4


class TestUnreachable:
    def test_reads_that_need_no_history_go_on(self, store: Store, warehouse: Path) -> None:
        fill(store)
        archived(store, "account", Keep(count=10))
        penstock_files_forgotten()
        shutil.move(warehouse, warehouse.with_name("elsewhere"))

        with pytest.raises(ArchiveUnreachable, match=r"metadata\.json"):
            store.get_category_messages("account")
        assert len(store.get_category_messages("account", 21)) == 10
        store.write_message("account-1", "Closed")

        shutil.move(warehouse.with_name("elsewhere"), warehouse)
        assert len(store.get_category_messages("account")) == 31

    def test_an_archive_that_is_not_in_the_catalog(self, store: Store) -> None:
        fill(store)
        archived(store, "account", Keep(count=10))
        with psycopg.connect(store.settings.conninfo()) as connection:
            connection.execute("delete from iceberg_tables")

        with pytest.raises(ArchiveLost):
            store.get_category_messages("account")
        assert len(store.get_category_messages("account", 21)) == 10


class TestWhileWriting:
    def test_a_reader_beside_writers_and_an_archive_misses_nothing(self, store: Store) -> None:
        def write() -> None:
            with penstock.connect(store.settings.conninfo()) as other:
                for number in range(300):
                    other.write_message(f"account-{number % 5}", "Deposited", {"number": number})

        writers = [Thread(target=write) for _ in range(2)]
        for one in writers:
            one.start()
        seen: list[int] = []
        while True:
            alive = any(one.is_alive() for one in writers)
            archived(store, "account", batch_size=50)
            position = seen[-1] + 1 if seen else 1
            page = store.get_category_messages("account", position, 70)
            seen += [one.global_position for one in page]
            assert len(list(store.read_category("account", batch_size=40))) >= len(seen)
            if not alive and not page:
                break
        assert seen == list(range(1, 601))


def _member(store: Store, number: int) -> list[Any]:
    return store.get_category_messages(
        "account", consumer_group_member=number, consumer_group_size=3
    )


def penstock_files_forgotten() -> None:
    """Forget what was read from the archive, as in another process."""
    from penstock.lake import archive_files

    archive_files.archive_files.cache_clear()
    archive_files._footer.cache_clear()
    archive_files.kept_row_groups.clear()
