"""Installing on a genuine Message DB: beside it, in its place, and back again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

import penstock
from penstock import Edition
from penstock.errors import NotInstalled
from tests import message_db
from tests.database.databases import FIVE_MESSAGES, FUNCTIONS, NewDatabase, ask
from tests.docs import pages
from tests.racing import wait_until_blocked


def test_functions_of_a_genuine_message_db_stay_as_they_are(new_database: NewDatabase) -> None:
    url = new_database("genuine")
    ask(url, FIVE_MESSAGES)
    before = ask(url, FUNCTIONS), ask(url, "select * from messages order by 1")

    plan = penstock.install(url)

    assert plan.edition is Edition.ON_MESSAGE_DB
    assert (ask(url, FUNCTIONS), ask(url, "select * from messages order by 1")) == before
    with penstock.connect(url) as store:
        assert store.context.edition is Edition.ON_MESSAGE_DB
        assert len(store.get_category_messages("$all")) == 5


@pytest.mark.parametrize("kind", ["genuine", "beside"])
def test_taking_over_replaces_the_functions_and_keeps_the_messages(
    new_database: NewDatabase, kind: str
) -> None:
    url = new_database(kind)
    ask(url, FIVE_MESSAGES)
    messages = ask(url, "select * from messages order by 1")

    penstock.install(url, take_over=True)

    assert ask(url, "select * from messages order by 1") == messages
    assert ask(url, FUNCTIONS) == ask(new_database("penstock"), FUNCTIONS)
    with penstock.connect(url) as store:
        assert store.context.edition is Edition.PENSTOCK
        assert store.write_message("account-0", "T", expected_version=1) == 2


def test_the_category_index_is_right_after_taking_over(new_database: NewDatabase) -> None:
    url = new_database("genuine")
    ask(url, FIVE_MESSAGES)
    ask(url, "select write_message(gen_random_uuid()::varchar, 'order-1', 'T', '{}')")

    penstock.install(url, take_over=True)

    question = "select global_position from messages where category(stream_name) = 'account'"
    with psycopg.connect(url, options="-c search_path=message_store") as connection:
        connection.execute("set enable_seqscan = off; set enable_bitmapscan = off")
        plan = connection.execute(f"explain {question}".encode()).fetchall()
        found = connection.execute(question.encode()).fetchall()
    assert "messages_category" in str(plan)
    assert sorted(found) == [(1,), (2,), (3,), (4,), (5,)]


@pytest.mark.parametrize("kind", ["genuine", "beside"])
def test_a_client_that_is_connected_goes_on_after_taking_over(
    new_database: NewDatabase, kind: str
) -> None:
    url = new_database(kind)
    read = "select count(*) from messages where category(stream_name) = 'account'"
    with psycopg.connect(url, options="-c search_path=message_store", autocommit=True) as client:
        client.execute("set enable_seqscan = off; set enable_bitmapscan = off")
        client.execute(FIVE_MESSAGES, prepare=True)
        client.execute(f"prepare read as {read}".encode())
        assert client.execute("execute read").fetchone() == (5,)

        penstock.install(url, take_over=True)

        client.execute(FIVE_MESSAGES, prepare=True)
        assert client.execute("execute read").fetchone() == (10,)
        assert "messages_category" in str(client.execute("explain execute read").fetchall())


def test_installing_waits_for_writers_that_have_announced_nothing(
    new_database: NewDatabase,
) -> None:
    url = new_database("genuine")
    with psycopg.connect(url, options="-c search_path=message_store") as writer:
        writer.execute(FIVE_MESSAGES)
        with ThreadPoolExecutor() as threads:
            installing = threads.submit(penstock.install, url)
            wait_until_blocked(url)

            writer.commit()

            assert installing.result().needed
    with penstock.connect(url) as store:
        assert len(store.get_category_messages("account")) == 5


def test_message_dbs_own_installer_puts_its_functions_back(new_database: NewDatabase) -> None:
    url = new_database("penstock")
    ask(url, FIVE_MESSAGES)
    before = ask(url, "select * from messages order by 1")

    install_message_db_functions(url)
    with pytest.raises(NotInstalled, match=r"lacks a part of Penstock.*run `penstock init`"):
        penstock.connect(url)
    plan = penstock.install(url)

    assert plan.edition is Edition.ON_MESSAGE_DB
    assert ask(url, "select * from messages order by 1") == before
    assert ask(url, FUNCTIONS) == ask(new_database("genuine"), FUNCTIONS)
    with penstock.connect(url) as store:
        assert store.context.edition is Edition.ON_MESSAGE_DB
        assert store.write_message("account-0", "T", expected_version=1) == 2
        assert len(store.get_category_messages("$all")) == 6


def test_going_back_leaves_a_genuine_message_db(new_database: NewDatabase) -> None:
    url = new_database("genuine")
    ask(url, FIVE_MESSAGES)
    penstock.install(url, take_over=True)

    install_message_db_functions(url)
    page = pages.ROOT / "docs" / "compatibility.md"
    for block in pages.blocks(page):
        if block.language == "sql":
            ask(url, block.text)

    assert ask(url, FUNCTIONS) == ask(new_database("genuine"), FUNCTIONS)
    assert ask(url, "select from pg_trigger where tgrelid = 'messages'::regclass") == []
    with penstock.connect(url) as store:
        assert store.context.edition is Edition.GENUINE
        assert len(store.get_category_messages("account")) == 5


def install_message_db_functions(url: str) -> None:
    """Do what Message DB's install-functions.sh does, and install-privileges.sh after it."""
    wanted = ("types/", "functions/", "privileges/")
    for name in message_db.FILES:
        if name.startswith(wanted):
            ask(url, (message_db.folder() / name).read_text(encoding="utf-8"))
