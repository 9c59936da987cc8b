"""Every part of an installation is recorded, and reported once it is dropped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import psycopg
import pytest

from penstock import Edition
from penstock.database.execute import execute
from penstock.database.parts import created_by, definitions, parts
from tests.conftest import Server
from tests.database.databases import NewDatabase

Connection = psycopg.Connection[Any]

#: they are created when the first type is declared
ATTRIBUTE_TRIGGERS = {
    "trigger penstock_index_attributes",
    "trigger penstock_forget_attributes",
    "trigger penstock_index_applied",
    "trigger penstock_forget_applied",
}
CREATED = created_by(text for _, text in definitions(Edition.PENSTOCK)) - ATTRIBUTE_TRIGGERS


@pytest.fixture(scope="module")
def connection(server: Server) -> Iterator[Connection]:
    """A connection to a database of Penstock, for tests that roll back."""
    url = server.url(server.create_database(server.template("penstock")))
    with psycopg.connect(url) as connection:
        yield connection


@pytest.mark.parametrize("part", sorted(CREATED - {"table penstock.installations"}))
def test_a_part_that_is_dropped_is_missing(connection: Connection, part: str) -> None:
    connection.execute(f"drop {as_statement(part)} cascade".encode())
    missing = execute(connection, parts()).missing
    connection.rollback()

    assert part in without_arguments(missing)


def test_nothing_is_missing_otherwise(connection: Connection) -> None:
    compared = execute(connection, parts())

    assert (compared.missing, compared.replaced) == ([], [])


@pytest.mark.parametrize(
    ("kind", "edition"), [("penstock", Edition.PENSTOCK), ("beside", Edition.ON_MESSAGE_DB)]
)
def test_all_that_the_files_create_is_recorded(
    new_database: NewDatabase, kind: str, edition: Edition
) -> None:
    with psycopg.connect(new_database(kind)) as connection:
        compared = execute(connection, parts())

    created = created_by(text for _, text in definitions(edition)) - ATTRIBUTE_TRIGGERS
    assert without_arguments(compared.recorded) == created


def test_nothing_else_is_there(connection: Connection) -> None:
    compared = execute(connection, parts())

    others = compared.found.keys() - compared.recorded.keys()
    assert [one for one in others if not one.endswith(("_pkey", "_key"))] == []


def as_statement(part: str) -> str:
    """Return what `drop` takes for a part."""
    kind, _, name = part.rpartition(" ")
    match kind:
        case "":
            return f"function {name}"
        case "index":
            schema = "message_store" if name.startswith("messages_") else "penstock"
            return f"index {schema}.{name}"
        case "trigger":
            return f"trigger {name} on message_store.messages"
        case _:
            return part


def without_arguments(names: Iterable[str]) -> set[str]:
    """Return the names of parts, of functions without their arguments."""
    return {name.partition("(")[0] for name in names}
