"""Looking how a store stands costs the same however long the log is.

PostgreSQL's own counters say how many rows of tables and entries of indexes a look has read.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import penstock
from penstock import Store
from penstock.console.data import categories
from penstock.database.embedded import start
from tests.database.test_versions import _known
from tests.log.client import Client
from tests.outbox.outboxes import sql
from tests.servers import FAST
from tests.telemetry.busy import busy

WITH_ICU = 15  # Debian's is built with it, the wheel's is not

READ = """
    select sum(pg_stat_get_xact_tuples_returned(c.oid))::bigint
    from pg_class c
    where c.relnamespace in ('message_store'::regnamespace, 'penstock'::regnamespace)
      and c.relkind in ('i', 'r')
    """
FILL = """
    insert into message_store.messages (stream_name, type, position, data)
    select name, type, coalesce(message_store.stream_version(name), 0)
      + row_number() over (partition by name), data
    from generate_series(1, 2000) n
    cross join lateral (values
      ('order-' || mod(n, 100), 'Placed', '{}'::jsonb),
      ('order:position-mailer', 'PositionUpdated', '{"position": 1}'),
      ('queue-mail', 'Offered', '{}'),
      ('device.seen-' || gen_random_uuid(), 'device.seen', '{"device_id": "held"}')
    ) as m(name, type, data)
    """
OUTBOX = """
    insert into penstock.outbox (id, topic, payload, encoding, state, finished_at)
    select gen_random_uuid(), 'mail', '', 'text', 'done', now() from generate_series(1, 2000)
    """


def entries_read(store: Store) -> int:
    """Look, and return how many rows of tables and entries of indexes that took."""
    with psycopg.connect(store.settings.conninfo(), autocommit=True) as connection:
        client = Client(connection)
        client.execute("select * from penstock.health()")  # what a session reads once
        client.execute("begin")
        before = client.value(READ)
        client.execute("select * from penstock.health()")
        return int(client.value(READ) - before)


@pytest.mark.parametrize("statistics", ["fresh", "never gathered"])
def test_a_look_reads_as_much_of_a_long_log_as_of_a_short_one(
    store: Store, statistics: str
) -> None:
    sql(store, "alter table message_store.messages set (autovacuum_enabled = off)")
    busy(store)
    read = []
    for _ in range(2):
        sql(store, FILL)
        sql(store, OUTBOX)
        if statistics == "fresh":
            sql(store, "analyze")

        read.append(entries_read(store))

    short, long = read
    assert long <= short + 16  # the planner looks where an index ends
    assert long < 200


@pytest.fixture
def under_icu() -> Iterator[Store]:
    """A store whose names sort as people do it: order and Order side by side."""
    with _known(WITH_ICU):
        folder = Path(tempfile.mkdtemp(prefix="penstock-"))
        with start(folder, version=WITH_ICU, settings=FAST) as embedded:
            with psycopg.connect(embedded.url_for("postgres"), autocommit=True) as connection:
                connection.execute(
                    "create database people template template0"
                    " encoding 'UTF8' locale_provider icu icu_locale 'en-US'"
                )
            penstock.install(embedded.url_for("people"))
            with penstock.connect(embedded.url_for("people")) as store:
                yield store
        shutil.rmtree(folder)


def test_consumers_are_found_where_others_stand_between_them(under_icu: Store) -> None:
    for number in range(10, 30):
        for category in ("order", "Order", "ORDER"):
            under_icu.write_message(f"{category}:position-{number}", "Recorded", {"position": 0})
        under_icu.write_message(f"order-position-{number}", "Placed")

    figures = [one for one in under_icu.admin.health() if one.name == "consumer.lag"]

    assert len(figures) == 60
    assert len(under_icu.admin.consumers()) == 60
    assert len(under_icu.streams("order:position")) == 20


async def test_the_console_lists_streams_where_others_stand_between_them(under_icu: Store) -> None:
    for number in range(10, 30):
        under_icu.write_message(f"order-{number}", "Placed")
        under_icu.write_message(f"Order-{number}", "Placed")

    async with await penstock.connect_async(under_icu.settings) as store:
        found = await categories.streams(store, "order")

    assert [one.stream_name for one in found.items] == [f"order-{n}" for n in range(10, 30)]
