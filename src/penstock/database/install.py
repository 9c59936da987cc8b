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

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, LiteralString

import psycopg
from psycopg.types.json import Jsonb

from penstock.database import edition as editions
from penstock.database import pool
from penstock.database.edition import OLDEST_CLIENT, SCHEMA_VERSION, Edition, Found, Installation
from penstock.database.embedded import EmbeddedServer, start
from penstock.database.execute import execute
from penstock.database.parts import created_by, definitions, digest, listed, parts, upgrades
from penstock.errors import IncompatibleVersion, UnsafeSequence
from penstock.settings import Settings

Connection = psycopg.Connection[Any]
SqlFiles = list[tuple[str, str]]  # names and texts

_LOCK = 8_099_000_251_885_693_285  # the advisory lock of installations
_LOCK_TIMEOUT = "400ms"  # below the default deadlock_timeout of a second
_PAUSE = 0.5  # seconds before an installation tries again to get its locks

#: the locks that other sessions hold on our tables
_LOCKS_OF_OTHERS: LiteralString = (
    " from pg_locks l join pg_class c on c.oid = l.relation"
    " left join pg_stat_activity a on a.pid = l.pid"
    " where l.database = (select oid from pg_database where datname = current_database())"
    " and c.relnamespace in (to_regnamespace('message_store'), to_regnamespace('penstock'))"
    " and l.granted and l.pid <> pg_backend_pid()"
)
_OPEN_TRANSACTIONS: LiteralString = f"select count(distinct l.pid){_LOCKS_OF_OTHERS}"
#: the session with the oldest transaction of those that hold a lock on our tables
_LOCK_HOLDER: LiteralString = (
    "select format('pid %s (%s), %s for %s', a.pid, a.application_name, a.state,"
    " date_trunc('second', clock_timestamp() - a.xact_start))"
    f"{_LOCKS_OF_OTHERS} and a.pid is not null order by a.xact_start limit 1"
)
#: whether a role lacks privileges, or does not exist and can be created: as after a restore
_LACKS_PRIVILEGES: LiteralString = """
    select exists (select from unnest(array['message_store', 'penstock_reader']) as r(name)
      where case when to_regrole(r.name) is not null
        then not has_schema_privilege(r.name, 'penstock', 'usage')
        else (select rolsuper or rolcreaterole from pg_roles where rolname = current_user) end)
"""
_SEQUENCE_CACHE: LiteralString = """
    select seqcache from pg_sequence
    where seqrelid = to_regclass('message_store.messages_global_position_seq')
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """What `install` would do to a database."""

    edition: Edition
    needed: bool
    actions: tuple[str, ...]


def install(
    database_url: str | Settings | None = None,
    /,
    *,
    take_over: bool = False,
    check: bool = False,
    progress: Callable[[str], None] = lambda what: None,
    **options: Any,
) -> Plan:
    """Install or upgrade Penstock in a database, and return what was done.

    Safe to repeat, and to run from many processes at once. On a genuine Message DB, its functions
    stay as they are unless `take_over` replaces them with Penstock's. `check` returns what would be
    done, and changes nothing. `progress` is called with each file that is run, and with the session
    that holds a required lock.
    """
    settings = Settings.load(database_url, **options)
    with ExitStack() as opened:
        if settings.embedded:
            server = opened.enter_context(start(settings.folder))
            settings = replace(settings, database_url=server.url)
        connection = opened.enter_context(pool.connect(settings))
        return install_on(
            connection, settings.where(), take_over=take_over, check=check, progress=progress
        )


def start_embedded(settings: Settings) -> EmbeddedServer:
    """Start or join the embedded server, and install or upgrade its database."""
    server = start(settings.folder)
    try:
        settings = replace(settings, database_url=server.url)
        with pool.connect(settings) as connection:
            install_on(connection, settings.where(), keep_other_build=True)
    except BaseException:
        server.leave()
        raise
    return server


def install_on(
    connection: Connection,
    where: str,
    *,
    take_over: bool = False,
    check: bool = False,
    keep_other_build: bool = False,
    progress: Callable[[str], None] = lambda what: None,
) -> Plan:
    """Install or upgrade the SQL over this connection, and return what was done.

    With `keep_other_build`, SQL of this version that another build of the package installed stays
    as it is. The other arguments are those of `install`.
    """
    connection.prepare_threshold = None  # prepare nothing: each statement runs once
    if check:
        return _plan(connection, where, take_over, keep_other_build)[0]
    while True:
        try:
            with connection.transaction():
                _wait_for_other_installations(connection)
                plan, sql_files = _plan(connection, where, take_over, keep_other_build)
                if plan.needed:
                    _run(connection, sql_files, progress)
                    _record(connection, plan.edition)
                return plan
        except psycopg.errors.LockNotAvailable:
            progress(f"waiting for {_value(connection, _LOCK_HOLDER) or 'a lock'}")
            time.sleep(_PAUSE)


def _wait_for_other_installations(connection: Connection) -> None:
    connection.execute("set local client_min_messages = warning")
    connection.execute("set local statement_timeout = 0")
    connection.execute("set local lock_timeout = 0")
    connection.execute("select pg_advisory_xact_lock(%s)", (_LOCK,))


def _run(connection: Connection, sql_files: SqlFiles, progress: Callable[[str], None]) -> None:
    connection.execute(f"set local lock_timeout = '{_LOCK_TIMEOUT}'".encode())
    for name, text in sql_files:
        progress(name)
        connection.execute(text.encode())


def _record(connection: Connection, edition: Edition) -> None:
    created = created_by(text for _, text in definitions(edition))  # not a user's own functions
    found = execute(connection, parts()).found
    recorded = {name: one for name, one in found.items() if name.partition("(")[0] in created}
    done = [name for name, _ in upgrades()]
    connection.execute(
        "insert into penstock.installations"
        " (version, oldest_client, digest, edition, upgrades, parts)"
        " values (%s, %s, %s, %s, %s, %s)",
        (SCHEMA_VERSION, OLDEST_CLIENT, digest(edition), edition.value, done, Jsonb(recorded)),
    )


def _plan(
    connection: Connection, where: str, take_over: bool, keep_other_build: bool
) -> tuple[Plan, SqlFiles]:
    found = execute(connection, editions.find())
    editions.check_server(found, where)
    if found.has_message_store:
        editions.check_message_db(execute(connection, editions.message_store_version()), where)
        _refuse_sequence_cache(connection)
    last = execute(connection, editions.last_installation()) if found.has_penstock else None
    if last:
        _refuse_newer(last, where)
    ours = take_over or found.has_our_functions or not found.has_message_store
    edition = Edition.PENSTOCK if ours else Edition.ON_MESSAGE_DB
    done = last.upgrades if last else frozenset[str]()
    steps = [one for one in upgrades() if one[0] not in done] if found.has_penstock else []
    needed, actions = True, list(_actions(connection, found, last, edition, steps))
    if last and last.version == SCHEMA_VERSION and last.edition is found.edition is edition:
        if last.digest == digest(edition):
            repair = _repair(connection, found, edition)
            needed, actions = bool(repair), [repair or "nothing: all is in place"]
        elif keep_other_build:
            needed, actions = False, ["nothing: the SQL of another build stays as it is"]
    return Plan(edition, needed, tuple(actions)), steps + definitions(edition)


def _repair(connection: Connection, found: Found, edition: Edition) -> str | None:
    """Return what was dropped or changed since this package's SQL was installed."""
    compared = execute(connection, parts()).of(edition)
    if changed := compared.missing + compared.replaced:
        return f"restore {listed(changed)}, dropped or changed since"
    if found.lacks_parts:
        return "restore the triggers of the attribute index"
    if _value(connection, _LACKS_PRIVILEGES):
        return "grant privileges to message_store and penstock_reader"
    return None


def _refuse_newer(last: Installation, where: str) -> None:
    unknown = sorted(last.upgrades - {name for name, _ in upgrades()})
    if last.version > SCHEMA_VERSION or unknown:
        which = f" with {unknown[-1]}" if unknown and last.version == SCHEMA_VERSION else ""
        raise IncompatibleVersion(
            f"{where} has schema version {last.version}{which}, and this package would install "
            f"{SCHEMA_VERSION}: upgrade the Python package penstock-log"
        )


def _actions(
    connection: Connection,
    found: Found,
    last: Installation | None,
    edition: Edition,
    steps: SqlFiles,
) -> Iterator[str]:
    if not last and not steps:
        yield f"create the schema penstock, version {SCHEMA_VERSION}"
        yield "create the roles message_store and penstock_reader, if this role may"
    elif not last or last.version < SCHEMA_VERSION:
        version = last.version if last else "unknown"
        yield f"upgrade the schema penstock from version {version} to {SCHEMA_VERSION}"
    elif last.digest != digest(last.edition):
        yield f"replace the SQL of another build of version {SCHEMA_VERSION} by this package's"
    for name, text in steps:
        purpose = text.partition("\n")[0].removeprefix("-- ")
        yield f"run {name}: {purpose}"
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
            f"transactions that are open ({_value(connection, _OPEN_TRANSACTIONS)} now)"
        )


def _value(connection: Connection, query: LiteralString) -> Any:
    row = connection.execute(query).fetchone()
    return row[0] if row else None


def _refuse_sequence_cache(connection: Connection) -> None:
    cache = _value(connection, _SEQUENCE_CACHE)
    if cache not in (None, 1):
        raise UnsafeSequence(
            f"message_store.messages_global_position_seq has a cache of {cache}, which takes "
            "positions before they are announced: "
            "run `alter sequence message_store.messages_global_position_seq cache 1` first"
        )
