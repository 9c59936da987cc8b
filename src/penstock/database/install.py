"""Install and upgrade the SQL: versioned, repeatable, safe from many processes at once.

The files in `sql/message_store` and `sql/penstock` define a database of the current schema version;
each can run again on what it created before. The files in `sql/upgrades` change what that cannot
change in an older schema: they add a column, or drop a function whose arguments changed. Each runs
once in a database, in the order of their names, before the definitions; `0002_...` leads to
version 2. A new database needs none of them.

An installation is one transaction under one advisory lock, recorded in `penstock.installations`:
the version, a digest of the definitions, the upgrades, and the parts (see `parts.py`). SQL that is
newer than this package is never replaced. Where everything is as recorded, nothing is done. A
genuine Message DB keeps its functions unless it is taken over.

Locks. Definitions and upgrades lock tables that clients use, and could deadlock with a client that
holds one of them and waits for another. So an installation waits for a lock for less time than
PostgreSQL waits before it looks for deadlocks; then it rolls back, pauses, and starts again.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg.types.json import Jsonb

from penstock.database import edition as editions
from penstock.database.edition import OLDEST_CLIENT, SCHEMA_VERSION, Edition, Found, Installation
from penstock.database.execute import execute
from penstock.database.operation import Operation
from penstock.database.parts import Parts, created_by, parts
from penstock.errors import IncompatibleVersion, NotInstalled, UnsafeSequence

logger = logging.getLogger("penstock")

Answer = TypeVar("Answer")
Connection = psycopg.Connection[Any]

_LOCK = 8_099_000_251_885_693_285  # the advisory lock of installations
_LOCK_TIMEOUT = "400ms"  # below the default deadlock_timeout of a second
_PAUSE = 0.5  # seconds before an installation tries again to get its locks


@dataclass(frozen=True, slots=True)
class Plan:
    """What `install` would do to a database."""

    edition: Edition
    needed: bool
    actions: tuple[str, ...]


def install_on(
    connection: Connection,
    where: str,
    *,
    take_over: bool = False,
    check: bool = False,
    replace: bool = True,
    progress: Callable[[str], None] = lambda what: None,
) -> Plan:
    """Install or upgrade the SQL over this connection, and return what was done.

    `take_over` replaces a genuine Message DB's functions by ours; `check` only returns the plan.
    Without `replace`, SQL of this version that another build of the package installed stays as it
    is. `progress` is called with the name of each file, and with the holder of a lock it waits for.
    """
    if check:
        return _plan(connection, where, take_over, replace)
    while True:
        try:
            with connection.transaction():
                return _install(connection, where, take_over, replace, progress)
        except psycopg.errors.LockNotAvailable:
            progress(f"waiting for {_lock_holder(connection) or 'a lock'}")
            time.sleep(_PAUSE)


def _install(
    connection: Connection,
    where: str,
    take_over: bool,
    replace: bool,
    progress: Callable[[str], None],
) -> Plan:
    connection.execute("set local client_min_messages = warning")
    connection.execute("set local statement_timeout = 0")
    connection.execute("set local lock_timeout = 0")
    connection.execute("select pg_advisory_xact_lock(%s)", (_LOCK,))
    plan = _plan(connection, where, take_over, replace)
    if plan.needed:
        connection.execute(f"set local lock_timeout = '{_LOCK_TIMEOUT}'".encode())
        files_to_run = definitions(plan.edition)
        for name, text in _upgrades_to_run(connection) + files_to_run:
            progress(name)
            connection.execute(text.encode())
        connection.execute(
            "insert into penstock.installations"
            " (version, oldest_client, digest, edition, upgrades, parts)"
            " values (%s, %s, %s, %s, %s, %s)",
            (
                SCHEMA_VERSION,
                OLDEST_CLIENT,
                digest(plan.edition),
                plan.edition.value,
                [name for name, _ in upgrades()],
                Jsonb(_parts_of(connection, files_to_run)),
            ),
        )
    return plan


def _plan(connection: Connection, where: str, take_over: bool, replace: bool) -> Plan:
    found = _ask(connection, editions.find())
    editions.check_server(found, where)
    if found.has_message_store:
        editions.check_message_db(_ask(connection, editions.message_store_version()), where)
        _refuse_sequence_cache(connection)
    last = _ask(connection, editions.last_installation()) if found.has_penstock else None
    if last:
        _refuse_newer(last, where)
    ours = take_over or found.has_our_functions or not found.has_message_store
    edition = Edition.PENSTOCK if ours else Edition.ON_MESSAGE_DB
    if found.edition is edition and last and last.edition is edition:
        if _is_current(last, edition):
            return _repair_plan(connection, found, edition)
        if last.version == SCHEMA_VERSION and not replace:
            return Plan(edition, False, ("nothing: the SQL of another build stays as it is",))
    return Plan(edition, True, tuple(_actions(connection, found, last, edition)))


def _repair_plan(connection: Connection, found: Found, edition: Edition) -> Plan:
    """Return the plan for an installation of this package: restore what was dropped or changed."""
    compared = _ask(connection, parts()).of(edition)
    if changed := compared.missing + compared.replaced:
        return Plan(edition, True, (f"restore {_listed(changed)}, dropped or changed since",))
    if found.lacks_parts:
        return Plan(edition, True, ("restore the triggers of the attribute index",))
    if _lacks_privileges(connection):
        return Plan(edition, True, ("grant privileges to message_store and penstock_reader",))
    return Plan(edition, False, ("nothing: all is in place",))


def _refuse_newer(last: Installation, where: str) -> None:
    """Refuse to replace newer SQL by that of this package."""
    unknown = sorted(last.upgrades - {name for name, _ in upgrades()})
    if last.version > SCHEMA_VERSION or unknown:
        which = f" with {unknown[-1]}" if unknown and last.version == SCHEMA_VERSION else ""
        raise IncompatibleVersion(
            f"{where} has schema version {last.version}{which}, and this package would install "
            f"{SCHEMA_VERSION}: upgrade the Python package penstock-log"
        )


def _is_current(last: Installation, edition: Edition) -> bool:
    return (last.version, last.digest) == (SCHEMA_VERSION, digest(edition))


def _actions(
    connection: Connection, found: Found, last: Installation | None, edition: Edition
) -> Iterable[str]:
    steps = _upgrades_to_run(connection)
    if not last and not steps:
        yield f"create the schema penstock, version {SCHEMA_VERSION}"
        yield "create the roles message_store and penstock_reader, if this role may"
    elif not last or last.version < SCHEMA_VERSION:
        version = last.version if last else "unknown"
        yield f"upgrade the schema penstock from version {version} to {SCHEMA_VERSION}"
    elif not _is_current(last, last.edition):
        yield f"replace the SQL of another build of version {SCHEMA_VERSION} by this package's"
    for name, text in steps:
        yield f"run {name}: {_first_comment(text)}"
    if not found.has_message_store:
        yield "create the schema message_store with Message DB 1.3's table, functions and views"
    elif edition is Edition.ON_MESSAGE_DB:
        yield "leave Message DB's functions as they are"
    elif not found.has_our_functions:
        yield "replace Message DB's functions by Penstock's; its messages stay as they are"
    if found.has_message_store and not last:
        yield (
            "add triggers and the index messages_correlation to message_store.messages: "
            "writers wait while the index is built"
        )
    elif steps:
        yield (
            "lock the tables until the transaction ends: clients wait meanwhile, and it waits for "
            f"transactions that are open ({_open_transactions(connection)} now)"
        )


def _first_comment(text: str) -> str:
    return text.partition("\n")[0].removeprefix("-- ")


def _upgrades_to_run(connection: Connection) -> list[tuple[str, str]]:
    """Return the upgrades that have not run on an existing schema, in order."""
    row = connection.execute("select to_regclass('penstock.installations') is not null").fetchone()
    if row != (True,):
        return []
    last = _ask(connection, editions.last_installation())
    done = last.upgrades if last else frozenset[str]()
    return [(name, text) for name, text in upgrades() if name not in done]


def _ask(connection: Connection, question: Operation[Answer]) -> Answer:
    return execute(connection, question, prepare=False)


def _parts_of(connection: Connection, files: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the parts that these files create, as they are now; not a user's own functions."""
    created = created_by(text for _, text in files)
    found = _ask(connection, parts()).found
    return {name: digest for name, digest in found.items() if name.partition("(")[0] in created}


#: the locks that other sessions hold on our tables
_LOCKS_OF_OTHERS: LiteralString = (
    " from pg_locks l join pg_class c on c.oid = l.relation"
    " left join pg_stat_activity a on a.pid = l.pid"
    " where l.database = (select oid from pg_database where datname = current_database())"
    " and c.relnamespace in (to_regnamespace('message_store'), to_regnamespace('penstock'))"
    " and l.granted and l.pid <> pg_backend_pid()"
)


def _lock_holder(connection: Connection) -> str | None:
    """Return the session with the oldest transaction of those that hold a lock on our tables."""
    row = connection.execute(
        "select format('pid %s (%s), %s for %s', a.pid, a.application_name, a.state,"
        " date_trunc('second', clock_timestamp() - a.xact_start))"
        f"{_LOCKS_OF_OTHERS} and a.pid is not null order by a.xact_start limit 1"
    ).fetchone()
    return row[0] if row else None


def _open_transactions(connection: Connection) -> int:
    row = connection.execute(f"select count(distinct l.pid){_LOCKS_OF_OTHERS}").fetchone()
    assert row is not None
    return int(row[0])


def _lacks_privileges(connection: Connection) -> bool:
    """Whether a role lacks privileges, or does not exist and can be created: as after a restore."""
    row = connection.execute(
        "select exists (select from unnest(array['message_store', 'penstock_reader']) as r(name)"
        " where case when to_regrole(r.name) is not null"
        " then not has_schema_privilege(r.name, 'penstock', 'usage')"
        " else (select rolsuper or rolcreaterole from pg_roles where rolname = current_user) end)"
    ).fetchone()
    return row == (True,)


def check_parts(installation: Installation, parts: Parts, where: str) -> None:
    """Refuse an installation that lacks a part, and warn of one that differs from this package's.

    A missing index is a warning: most calls work without it, though slowly.
    """
    if missing := [name for name in parts.missing if not name.startswith("index ")]:
        raise NotInstalled(
            f"{where} lacks {_listed(missing)}, dropped since it was installed: "
            "run `penstock init` to restore it"
        )
    if parts.missing:
        logger.warning(
            "%s lacks %s; run `penstock init` to restore it", where, _listed(parts.missing)
        )
    if parts.replaced:
        logger.warning(
            "%s: %s changed since `penstock init` installed it; run it again to restore it",
            where,
            _listed(parts.replaced),
        )
    if installation.digest != digest(installation.edition):
        logger.warning(
            "%s has the SQL of another build of version %s than this package's; "
            "`penstock init` replaces it",
            where,
            installation.version,
        )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _refuse_sequence_cache(connection: Connection) -> None:
    row = connection.execute(
        "select seqcache from pg_sequence"
        " where seqrelid = to_regclass('message_store.messages_global_position_seq')"
    ).fetchone()
    if row and row[0] != 1:
        raise UnsafeSequence(
            f"message_store.messages_global_position_seq has a cache of {row[0]}, which takes "
            "positions before they are announced: "
            "run `alter sequence message_store.messages_global_position_seq cache 1` first"
        )


@cache
def digest(edition: Edition) -> str:
    """Return the digest of the SQL files that define an edition."""
    digested = hashlib.sha256()
    for name, text in definitions(edition):
        digested.update(f"{name}\n{text}\n".encode())
    return digested.hexdigest()


def definitions(edition: Edition) -> list[tuple[str, str]]:
    """Return name and text of the files that define an edition, in order."""
    folders = ["message_store", "penstock"] if edition is Edition.PENSTOCK else ["penstock"]
    return [
        (f"{folder}/{name}.sql", text) for folder in folders for name, text in _files_in(folder)
    ]


def upgrades() -> list[tuple[str, str]]:
    """Return name and text of the upgrades from all versions, in order."""
    return _files_in("upgrades")


@cache
def _files_in(folder: str) -> list[tuple[str, str]]:
    return [
        (file.name.removesuffix(".sql"), file.read_text(encoding="utf-8"))
        for file in sorted(
            (files("penstock.database") / "sql" / folder).iterdir(), key=lambda file: file.name
        )
        if file.name.endswith(".sql")
    ]
