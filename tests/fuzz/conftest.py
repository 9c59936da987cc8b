"""One database for all of these tests, and a witness that nothing broke out in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import penstock
from penstock import Store
from tests.conftest import Server
from tests.fuzz.arguments import Moved, Sent

# What there is in the database, and what was there before: not one thing more or less.
_CATALOG = """
select 'schema', nspname::text from pg_namespace where nspname not like 'pg\\_%'
union all select 'relation', oid::regclass::text from pg_class
  where relnamespace not in ('pg_catalog'::regnamespace, 'pg_toast'::regnamespace)
union all select 'function', oid::regprocedure::text from pg_proc
  where pronamespace <> 'pg_catalog'::regnamespace
union all select 'role', rolname::text from pg_roles
union all select 'trigger', tgrelid::regclass || ' ' || tgname from pg_trigger
  where not tgisinternal
union all select 'message', type || data from message_store.messages where stream_name = 'witness-1'
order by 1, 2
"""


@pytest.fixture(scope="package")
def url(server: Server) -> Iterator[str]:
    name = server.create_database(server.template("penstock"))
    yield server.url(name)
    server.drop_database(name)


@pytest.fixture(scope="package")
def store(url: str) -> Iterator[Store]:
    with penstock.connect(url, pool_max_size=4) as store:
        store.declare(Moved, Sent)
        store.write_message("witness-1", "Seen", {"by": "nobody"})
        yield store


@pytest.fixture(scope="package")
def witness(url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


@pytest.fixture(autouse=True)
def nothing_broke_out(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test of the database, all that is in it is what was in it."""
    if "store" not in request.fixturenames:
        yield
        return
    request.getfixturevalue("store")
    witness = request.getfixturevalue("witness")
    before = witness.execute(_CATALOG).fetchall()
    yield
    assert witness.execute(_CATALOG).fetchall() == before
