"""Install and upgrade the SQL: versioned, repeatable, safe from many processes at once.

The files in `sql/` are the whole truth: each can be run again over what it made before, so
installing and upgrading are one act, in one transaction, under one lock. What was done is recorded
in `penstock.installations` with a digest of the files; where the digest is the same and nothing was
lost since, not even rights, nothing is done. A genuine Message DB keeps its functions unless it is
taken over.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

import psycopg

from penstock.database import edition as editions
from penstock.database.edition import OLDEST_CLIENT, SCHEMA_VERSION, Edition, Found, Installation
from penstock.database.execute import execute
from penstock.database.operation import Operation
from penstock.errors import IncompatibleVersion, UnsafeSequence

Answer = TypeVar("Answer")

_LOCK = 8_099_000_251_885_693_285  # ours alone: held while installing


@dataclass(frozen=True, slots=True)
class Plan:
    """What `install` would do to a database, and why."""

    edition: Edition
    needed: bool
    actions: tuple[str, ...]


def install_on(
    connection: psycopg.Connection[Any],
    where: str,
    *,
    take_over: bool = False,
    check: bool = False,
) -> Plan:
    """Install or upgrade the SQL over this connection, and return what was done.

    `take_over` replaces a genuine Message DB's functions by ours; `check` only says what is to do.
    """
    if check:
        return _plan(connection, where, take_over)
    with connection.transaction():
        connection.execute("set local client_min_messages = warning")
        connection.execute("set local statement_timeout = 0")
        connection.execute("select pg_advisory_xact_lock(%s)", (_LOCK,))
        plan = _plan(connection, where, take_over)
        if plan.needed:
            for _, text in _sql_files(plan.edition):
                connection.execute(text)
            connection.execute(
                "insert into penstock.installations (version, oldest_client, digest, edition)"
                " values (%s, %s, %s, %s)",
                (SCHEMA_VERSION, OLDEST_CLIENT, digest(plan.edition), plan.edition.value),
            )
    return plan


def _plan(connection: psycopg.Connection[Any], where: str, take_over: bool) -> Plan:
    found = _ask(connection, editions.find())
    editions.check_server(found, where)
    if found.has_message_store:
        editions.check_message_db(_ask(connection, editions.message_store_version()), where)
        _refuse_sequence_cache(connection)
    last = _ask(connection, editions.last_installation()) if found.has_penstock else None
    if last and last.version > SCHEMA_VERSION:
        raise IncompatibleVersion(
            f"{where} holds Penstock's SQL of version {last.version}; this package would put back "
            f"{SCHEMA_VERSION}: upgrade the Python package penstock"
        )
    ours = take_over or found.has_our_functions or not found.has_message_store
    edition = Edition.PENSTOCK if ours else Edition.BESIDE
    in_place = not found.lacks_parts and not _lacks_functions(connection, edition)
    if found.edition is edition and _is_current(last, edition) and in_place:
        if not _lacks_privileges(connection):
            return Plan(edition, False, ("nothing: all is in place",))
        return Plan(
            edition, True, ("give the roles message_store and penstock_reader their rights",)
        )
    return Plan(edition, True, tuple(_actions(found, last, edition)))


def _is_current(last: Installation | None, edition: Edition) -> bool:
    return last is not None and (last.edition, last.digest) == (edition, digest(edition))


def _actions(found: Found, last: Installation | None, edition: Edition) -> Iterable[str]:
    if not last:
        yield f"create the schema penstock, version {SCHEMA_VERSION}"
        yield "create the roles message_store and penstock_reader, if the server lets us"
    elif not _is_current(last, last.edition):
        yield f"upgrade the schema penstock from version {last.version} to {SCHEMA_VERSION}"
    elif last.edition is edition:
        yield "put back the functions and triggers of Penstock that were dropped or switched off"
    if not found.has_message_store:
        yield "create the schema message_store with Message DB 1.3's table, functions and views"
    elif edition is Edition.BESIDE:
        yield "leave Message DB's functions as they are"
    elif not found.has_our_functions:
        yield "replace Message DB's functions by Penstock's; its messages stay as they are"
    if found.has_message_store and not last:
        yield (
            "add triggers and the index messages_correlation to message_store.messages: "
            "writers wait while the index is built"
        )


def _ask(connection: psycopg.Connection[Any], question: Operation[Answer]) -> Answer:
    return execute(connection, question, prepare=False)


def _lacks_functions(connection: psycopg.Connection[Any], edition: Edition) -> bool:
    """Whether somebody dropped a function of ours, by hand or with a type that it had."""
    texts = "".join(text for _, text in _sql_files(edition))
    row = connection.execute(
        "select exists (select from unnest(%s::text[]) as f(name) where f.name not in"
        " (select format('%%s.%%s', p.pronamespace::regnamespace, p.proname) from pg_proc p))",
        (re.findall(r"^create or replace function (\w+\.\w+)", texts, re.MULTILINE),),
    ).fetchone()
    return row == (True,)


def _lacks_privileges(connection: psycopg.Connection[Any]) -> bool:
    """Whether a role has no rights here, or is not there though we may make it: as in a restore."""
    row = connection.execute(
        "select exists (select from unnest(array['message_store', 'penstock_reader']) as r(name)"
        " where case when to_regrole(r.name) is not null"
        " then not has_schema_privilege(r.name, 'penstock', 'usage')"
        " else (select rolsuper or rolcreaterole from pg_roles where rolname = current_user) end)"
    ).fetchone()
    return row == (True,)


def _refuse_sequence_cache(connection: psycopg.Connection[Any]) -> None:
    row = connection.execute(
        "select seqcache from pg_sequence"
        " where seqrelid = to_regclass('message_store.messages_global_position_seq')"
    ).fetchone()
    if row and row[0] != 1:
        raise UnsafeSequence(
            f"message_store.messages_global_position_seq has a cache of {row[0]}, so positions "
            "would be taken long before they are announced: "
            "run `alter sequence message_store.messages_global_position_seq cache 1` first"
        )


@cache
def digest(edition: Edition) -> str:
    """Return the digest of the SQL files that make up an edition."""
    digested = hashlib.sha256()
    for name, text in _sql_files(edition):
        digested.update(f"{name}\n{text}\n".encode())
    return digested.hexdigest()


def _sql_files(edition: Edition) -> list[tuple[str, str]]:
    """Return name and text of the files to run, in order."""
    folders = ["message_store", "penstock"] if edition is Edition.PENSTOCK else ["penstock"]
    root = files("penstock.database") / "sql"
    return [
        (f"{folder}/{file.name}", file.read_text(encoding="utf-8"))
        for folder in folders
        for file in sorted((root / folder).iterdir(), key=lambda file: file.name)
        if file.name.endswith(".sql")
    ]
