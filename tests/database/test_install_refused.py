"""Databases that do not fit this client, and what connecting and installing say to them."""

from __future__ import annotations

import pytest

import penstock
from penstock.database import edition
from penstock.database.edition import SCHEMA_VERSION, Found
from penstock.errors import IncompatibleVersion, UnsafeSequence
from tests.database.databases import CATALOG, FIVE_MESSAGES, NewDatabase, ask


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

    complaint = (
        f"has schema version {SCHEMA_VERSION - 1}, and this client needs {SCHEMA_VERSION}:"
        " run `penstock init` to upgrade it$"
    )
    with pytest.raises(IncompatibleVersion, match=complaint):
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
    complaint = (
        f"has schema version {newer}, which needs a client of version {newer}, and this client has"
        f" {SCHEMA_VERSION}: upgrade the Python package penstock-log$"
    )

    with pytest.raises(IncompatibleVersion, match=complaint):
        penstock.connect(url)
    with pytest.raises(IncompatibleVersion, match=r"would install .*: upgrade the Python package"):
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


def name_version(url: str, version: str) -> None:
    ask(
        url,
        "create or replace function message_store_version() returns varchar"
        f" language plpgsql as $$ begin return '{version}'; end $$",
    )
