"""Installing: what it does to a database of each kind, alone and from many processes at once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import penstock
from penstock import Edition, IncompatibleVersion, NotInstalled, UnsafeSequence
from penstock.database import edition
from penstock.database.edition import SCHEMA_VERSION, Found
from penstock.database.install import digest
from tests import message_db
from tests.conftest import Server
from tests.docs import pages
from tests.racing import at_once, wait_until_blocked

NewDatabase = Callable[[str], str]

FUNCTIONS = """
    select p.proname, pg_get_functiondef(p.oid) from pg_proc p
    where p.pronamespace = 'message_store'::regnamespace order by 1
    """
CATALOG = """
    select array_agg(one::text order by one::text) from (
      select 'class' as kind, oid, xmin from pg_class where relpersistence <> 't'
      union all select 'function', oid, xmin from pg_proc
      union all select 'trigger', oid, xmin from pg_trigger
      union all select 'schema', oid, xmin from pg_namespace where nspname not like 'pg_%temp%'
      union all select 'role', oid, xmin from pg_authid
    ) one
    """
FIVE_MESSAGES = """
    select message_store.write_message(gen_random_uuid()::varchar, 'account-' || n % 2, 'T', '{}')
    from generate_series(1, 5) n
    """


def ask(url: str, question: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(
        url, options="-c search_path=message_store", autocommit=True
    ) as connection:
        cursor = connection.execute(question.encode())
        return cursor.fetchall() if cursor.description else []


# An empty database


def test_an_empty_database_gets_all(new_database: NewDatabase) -> None:
    url = new_database("empty")

    plan = penstock.install(url)

    assert (plan.edition, plan.needed) == (Edition.PENSTOCK, True)
    with penstock.connect(url) as store:
        assert store.write_message("account-1", "Opened") == 0


def test_what_was_done_is_recorded(new_database: NewDatabase) -> None:
    url = new_database("empty")

    penstock.install(url)

    record = "select version, oldest_client, digest, edition from penstock.installations"
    version = SCHEMA_VERSION
    assert ask(url, record) == [
        (version, edition.OLDEST_CLIENT, digest(Edition.PENSTOCK), "penstock")
    ]


@pytest.mark.parametrize("kind", ["penstock", "beside"])
def test_a_second_time_changes_nothing(new_database: NewDatabase, kind: str) -> None:
    url = new_database(kind)
    before = ask(url, CATALOG)

    plan = penstock.install(url)

    assert (plan.needed, plan.actions) == (False, ("nothing: all is in place",))
    assert ask(url, CATALOG) == before


def test_processes_that_install_at_once_install_once(new_database: NewDatabase) -> None:
    url = new_database("empty")
    code = "import sys, penstock; print(penstock.install(sys.argv[1]).needed)"

    processes = [
        subprocess.Popen([sys.executable, "-c", code, url], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    answers = [process.communicate()[0].strip() for process in processes]

    assert sorted(answers) == ["False", "False", "False", "True"]


def test_threads_that_install_at_once_install_once(new_database: NewDatabase) -> None:
    url = new_database("empty")

    plans = at_once(*[lambda: penstock.install(url).needed] * 8)

    assert sorted(map(str, plans)) == ["False"] * 7 + ["True"]


def test_databases_of_one_server_can_be_installed_at_once(
    no_roles: None, new_database: NewDatabase
) -> None:
    urls = [new_database("empty") for _ in range(4)]

    plans = at_once(*[lambda url=url: penstock.install(url).needed for url in urls])

    assert plans == [True] * 4
    for url in urls:
        assert _may_write(url, "message_store")


def test_without_installing_it_says_what_to_do(new_database: NewDatabase) -> None:
    url = new_database("empty")

    with pytest.raises(NotInstalled, match="holds no message store: run `penstock init`"):
        penstock.connect(url)


# What it would do


@pytest.mark.parametrize(
    ("kind", "take_over", "edition", "actions"),
    [
        ("empty", False, Edition.PENSTOCK, ["create the schema penstock", "create the schema m"]),
        ("genuine", False, Edition.BESIDE, ["create the schema penstock", "leave", "add triggers"]),
        ("genuine", True, Edition.PENSTOCK, ["create the schema penstock", "replace", "add trigg"]),
        ("beside", True, Edition.PENSTOCK, ["replace Message DB's functions"]),
        ("beside", False, Edition.BESIDE, ["nothing"]),
        ("penstock", True, Edition.PENSTOCK, ["nothing"]),
    ],
)
def test_check_says_what_it_would_do_and_changes_nothing(
    new_database: NewDatabase, kind: str, take_over: bool, edition: Edition, actions: list[str]
) -> None:
    url = new_database(kind)
    before = ask(url, CATALOG)

    plan = penstock.install(url, take_over=take_over, check=True)

    assert plan.edition is edition
    assert plan.needed == (actions != ["nothing"])
    assert [one for one in actions if not any(two.startswith(one) for two in plan.actions)] == []
    assert ask(url, CATALOG) == before
    assert penstock.install(url, take_over=take_over) == plan


# A genuine Message DB


def test_functions_of_a_genuine_message_db_stay_as_they_are(new_database: NewDatabase) -> None:
    url = new_database("genuine")
    ask(url, FIVE_MESSAGES)
    before = ask(url, FUNCTIONS), ask(url, "select * from messages order by 1")

    plan = penstock.install(url)

    assert plan.edition is Edition.BESIDE
    assert (ask(url, FUNCTIONS), ask(url, "select * from messages order by 1")) == before
    with penstock.connect(url) as store:
        assert store.context.edition is Edition.BESIDE
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
        plan = connection.execute(f"explain {question} order by 1".encode()).fetchall()
        found = connection.execute(f"{question} order by 1".encode()).fetchall()
    assert "messages_category" in str(plan)
    assert found == [(1,), (2,), (3,), (4,), (5,)]


def test_a_client_that_is_connected_goes_on_after_taking_over(new_database: NewDatabase) -> None:
    url = new_database("genuine")
    read = "select stream_name from messages where category(stream_name) = 'account'"
    with psycopg.connect(url, options="-c search_path=message_store", autocommit=True) as client:
        client.execute("set enable_seqscan = off; set enable_bitmapscan = off")
        client.execute(FIVE_MESSAGES, prepare=True)
        client.execute(f"prepare read as {read} order by global_position".encode())
        before = client.execute("execute read").fetchall()

        penstock.install(url, take_over=True)

        client.execute(FIVE_MESSAGES, prepare=True)
        assert client.execute("execute read").fetchall() == before * 2
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


def test_roles_with_privileges_of_their_own_keep_them_after_taking_over(
    new_role: Callable[..., str], new_database: NewDatabase
) -> None:
    role, url = new_role(), new_database("genuine")
    ask(url, f"grant usage on schema message_store to {role}")
    ask(url, f"grant select, insert on messages to {role}")
    ask(url, f"grant usage, select on sequence messages_global_position_seq to {role}")

    penstock.install(url, take_over=True)

    assert ask(as_role(url, role), FIVE_MESSAGES)
    assert len(ask(as_role(url, role), "select get_category_messages('account')")) == 5


def test_message_dbs_own_installer_puts_its_functions_back(new_database: NewDatabase) -> None:
    url = new_database("penstock")
    ask(url, FIVE_MESSAGES)
    before = ask(url, "select * from messages order by 1")

    install_message_db_functions(url)
    with pytest.raises(NotInstalled, match=r"lacks a part of Penstock.*run `penstock init`"):
        penstock.connect(url)
    plan = penstock.install(url)

    assert plan.edition is Edition.BESIDE
    assert ask(url, "select * from messages order by 1") == before
    assert ask(url, FUNCTIONS) == ask(new_database("genuine"), FUNCTIONS)
    with penstock.connect(url) as store:
        assert store.context.edition is Edition.BESIDE
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


def test_a_schema_that_was_dropped_is_put_back(new_database: NewDatabase) -> None:
    url = new_database("penstock")
    ask(url, "drop schema penstock cascade")

    with pytest.raises(NotInstalled, match="run `penstock init`"):
        penstock.connect(url)
    penstock.install(url)

    with penstock.connect(url) as store:
        assert store.write_message("account-1", "Opened") == 0


# What is refused


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("kind", ["genuine", "penstock"])
def test_a_sequence_with_a_cache_is_refused(
    new_database: NewDatabase, kind: str, check: bool
) -> None:
    url = new_database(kind)
    ask(url, "alter sequence messages_global_position_seq cache 20")
    before = ask(url, CATALOG)

    with pytest.raises(UnsafeSequence, match=r"has a cache of 20.*alter sequence .* cache 1"):
        penstock.install(url, check=check)

    assert ask(url, CATALOG) == before


@pytest.mark.parametrize("version", ["1.2.3", "1.0.0", "2.0.0", "0.9", "unknown"])
def test_another_message_db_is_refused(new_database: NewDatabase, version: str) -> None:
    url = new_database("genuine")
    name_version(url, version)
    before = ask(url, CATALOG)

    complaint = f"holds Message DB {version}; Penstock works with 1.3 and later 1.x"
    with pytest.raises(IncompatibleVersion, match=complaint):
        penstock.connect(url)
    with pytest.raises(IncompatibleVersion, match=complaint):
        penstock.install(url)

    assert ask(url, CATALOG) == before


@pytest.mark.parametrize("version", ["1.3.1", "1.4.0", "1.10.0"])
def test_a_later_message_db_of_the_same_kind_is_welcome(
    new_database: NewDatabase, version: str
) -> None:
    url = new_database("genuine")
    name_version(url, version)

    penstock.install(url)

    with penstock.connect(url) as store:
        assert store.message_store_version() == version


def test_an_older_installation_is_refused_by_connect_and_upgraded_by_install(
    new_database: NewDatabase,
) -> None:
    url = new_database("penstock")
    ask(url, FIVE_MESSAGES)
    ask(url, f"update penstock.installations set version = {SCHEMA_VERSION - 1}, digest = 'old'")

    with pytest.raises(IncompatibleVersion, match="run `penstock init` to upgrade it"):
        penstock.connect(url)
    plan = penstock.install(url)

    assert plan.actions == (
        f"upgrade the schema penstock from version {SCHEMA_VERSION - 1} to {SCHEMA_VERSION}",
    )
    with penstock.connect(url) as store:
        assert len(store.get_category_messages("account")) == 5


def test_a_newer_installation_is_refused(new_database: NewDatabase) -> None:
    url = new_database("penstock")
    newer = SCHEMA_VERSION + 1
    ask(url, f"update penstock.installations set version = {newer}, oldest_client = {newer}")

    with pytest.raises(IncompatibleVersion, match=r"too new .*: upgrade the Python package"):
        penstock.connect(url)
    with pytest.raises(IncompatibleVersion, match=r"would put back .*: upgrade the Python package"):
        penstock.install(url)


def test_a_newer_installation_may_still_serve_this_client(new_database: NewDatabase) -> None:
    url = new_database("penstock")
    ask(url, f"update penstock.installations set version = {SCHEMA_VERSION + 1}")

    with penstock.connect(url) as store:
        assert store.write_message("account-1", "Opened") == 0
    with pytest.raises(IncompatibleVersion, match="upgrade the Python package"):
        penstock.install(url)


def test_a_postgresql_that_is_too_old_is_named() -> None:
    found = Found(140_011, True, True, True, False)

    with pytest.raises(IncompatibleVersion) as error:
        edition.check_found(found, "example:5432/log")

    assert str(error.value) == "example:5432/log runs PostgreSQL 14; Penstock needs 15 or newer"


# Roles


def test_a_role_that_may_not_create_roles_can_install(
    server: Server, no_roles: None, new_role: Callable[..., str], new_database: NewDatabase
) -> None:
    role, url = new_role(), new_database("empty")
    server.administer("alter database {} owner to {}", url.split("/")[3].split("?")[0], role)

    penstock.install(as_role(url, role))

    with penstock.connect(as_role(url, role)) as store:
        store.write_message("account-1", "Opened")
        assert len(store.get_category_messages("$all")) == 1
    assert ask(url, "select to_regrole('message_store'), to_regrole('penstock_reader')") == [
        (None, None)
    ]


@pytest.mark.parametrize("kind", ["penstock", "beside"])
def test_the_role_message_store_reads_and_writes_and_changes_nothing(
    new_database: NewDatabase, kind: str
) -> None:
    url = as_role(new_database(kind), "message_store")
    with penstock.connect(url) as store:
        store.write_message("account-1", "Opened")
        store.write_messages("account-2", [penstock.Message("Opened"), penstock.Message("Closed")])
        with store.transaction() as transaction:
            transaction.write_message("account-1", "Closed", expected_version=0)

        assert len(store.get_stream_messages("account-1")) == 2
        assert len(store.get_category_messages("account")) == 4
        assert store.stream_version("account-2") == 1
    for change in ("update messages set type = 'X'", "delete from messages", "truncate messages"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            ask(url, change)


@pytest.mark.parametrize("kind", ["penstock", "beside"])
def test_a_penstock_reader_reads_all_and_writes_nothing(
    new_role: Callable[..., str], new_database: NewDatabase, kind: str
) -> None:
    role, owners_url = new_role("in role penstock_reader"), new_database(kind)
    ask(owners_url, FIVE_MESSAGES)
    url = as_role(owners_url, role)

    with penstock.connect(url) as store:
        assert len(store.get_stream_messages("account-0")) == 2
        assert len(store.get_category_messages("account")) == 5
        assert len(store.get_category_messages("$all")) == 5
        assert store.stream_version("account-1") == 2
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            store.write_message("account-1", "T")
    assert ask(url, "select penstock.watermark()") == [(5,)]
    assert ask(url, "select sum(message_count) from stream_summary") == [(5,)]


@pytest.mark.parametrize("kind", ["penstock", "beside", "genuine"])
def test_a_read_only_store_writes_nothing(new_database: NewDatabase, kind: str) -> None:
    url = new_database(kind)
    ask(url, FIVE_MESSAGES)

    with penstock.connect(penstock.Settings(database_url=url, read_only=True)) as store:
        assert len(store.get_category_messages("account")) == 5
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            store.write_message("account-1", "T")
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction), store.transaction() as tx:
            tx.write_message("account-1", "T")

        assert store.stream_version("account-1") == 2


@pytest.fixture
def no_roles(server: Server) -> Iterator[None]:
    """Hide the roles that the server has: others are free to be created."""
    server.template("genuine"), server.template("penstock")  # they have made the roles
    roles = ("message_store", "penstock_reader")
    for role in roles:
        server.administer("alter role {} rename to {}", role, f"hidden_{role}")
    yield
    for role in roles:
        server.administer("drop role if exists {}", role)
        server.administer("alter role {} rename to {}", f"hidden_{role}", role)


@pytest.fixture
def new_role(server: Server) -> Iterator[Callable[..., str]]:
    """Make a role that can log in and has no rights of its own. Ask for it before a database."""
    made: list[str] = []

    def create(rights: str = "") -> str:
        made.append(f"role_{len(made)}")
        server.administer(f"create role {{}} login {rights}", made[-1])
        return made[-1]

    yield create
    for role in made:
        server.administer("drop role {}", role)


def as_role(url: str, role: str) -> str:
    return url.replace("postgres@", f"{role}@")


def name_version(url: str, version: str) -> None:
    ask(
        url,
        "create or replace function message_store_version() returns varchar"
        f" language plpgsql as $$ begin return '{version}'; end $$",
    )


def install_message_db_functions(url: str) -> None:
    """Do what Message DB's install-functions.sh does, and install-privileges.sh after it."""
    wanted = ("types/", "functions/", "privileges/")
    for name in message_db.FILES:
        if name.startswith(wanted):
            ask(url, (message_db.folder() / name).read_text(encoding="utf-8"))


def _may_write(url: str, role: str) -> bool:
    return ask(url, f"select has_table_privilege('{role}', 'messages', 'insert')") == [(True,)]
