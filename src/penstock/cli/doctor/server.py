"""Checks of the server and the database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, LiteralString

import psycopg

from penstock.cli.doctor.finding import Finding, Level
from penstock.cli.printing import shown_age
from penstock.database import edition as editions
from penstock.database.edition import OLDEST_POSTGRESQL, Edition, Found
from penstock.database.execute import execute
from penstock.database.install import install_on
from penstock.errors import PenstockError, first_line

Connection = psycopg.Connection[Any]

#: with more locks, a transaction locks whole categories (see 04_locks.sql)
MOST_LOCKS = 500
#: the connections of one pool, each with a transaction of that size
LARGEST_AT_ONCE = 10
#: the age from which an open writer is reported
LONG = timedelta(minutes=1)


def checks(connection: Connection, where: str) -> Iterator[Finding]:
    """Run the checks that apply to what is installed."""
    found = execute(connection, editions.find())
    yield server(connection, found, where)
    yield _guarded("message store", lambda: message_store(connection, found, where))
    yield _guarded("durability", lambda: synchronous_commit(connection))
    yield _guarded("lock table", lambda: lock_table(connection))
    if found.has_message_store:
        yield _guarded("sequence", lambda: sequence(connection))
    if found.has_message_store and found.has_penstock:
        yield _guarded("triggers", lambda: triggers(connection))
        yield _guarded("open writers", lambda: open_writers(connection))
        yield _guarded("old snapshots", lambda: old_snapshots(connection))


def server(connection: Connection, found: Found, where: str) -> Finding:
    """Check that the server is new enough and accepts writes."""
    version, standby = _row(
        connection, "select current_setting('server_version'), pg_is_in_recovery()"
    )
    text = f"PostgreSQL {version}, {where}"
    if found.server_version < OLDEST_POSTGRESQL * 10_000:
        advice = f"Penstock needs PostgreSQL {OLDEST_POSTGRESQL} or newer"
        return Finding("server", Level.PROBLEM, text, advice)
    if standby:
        advice = "only streams can be read here: write, and read categories, on the primary"
        return Finding("server", Level.WARNING, f"{text}, a standby", advice)
    return Finding("server", Level.OK, text)


def message_store(connection: Connection, found: Found, where: str) -> Finding:
    """Check that a message store of this version is installed."""
    plan = install_on(connection, where, check=True)
    if not found.has_message_store:
        text, advice = "not installed", "install it with `penstock init`"
        return Finding("message store", Level.PROBLEM, text, advice)
    version = execute(connection, editions.message_store_version())
    last = execute(connection, editions.last_installation()) if found.has_penstock else None
    if last is None:
        text = f"genuine Message DB {version}: no complete reads, no $all"
        advice = "`penstock init` adds Penstock beside it"
        return Finding("message store", Level.WARNING, text, advice)
    whose = "Penstock's" if last.edition is Edition.PENSTOCK else f"Message DB {version}'s"
    text = f"{whose} functions, schema version {last.version}"
    if plan.needed:
        level = Level.PROBLEM if last.version < editions.SCHEMA_VERSION else Level.WARNING
        advice = f"`penstock init` would {plan.actions[0]}"
        return Finding("message store", level, text, advice)
    return Finding("message store", Level.OK, text)


def synchronous_commit(connection: Connection) -> Finding:
    """Check that committed messages survive a crash."""
    (value,) = _row(connection, "select current_setting('synchronous_commit')")
    text = f"synchronous_commit = {value}"
    if value == "off":
        advice = "a crash can lose messages that were read, and reuse their positions: set it to on"
        return Finding("durability", Level.WARNING, text, advice)
    return Finding("durability", Level.OK, text)


def lock_table(connection: Connection) -> Finding:
    """Check that the lock table has room for transactions that write to many streams."""
    per_transaction, slots = _row(
        connection,
        "select current_setting('max_locks_per_transaction')::int,"
        " current_setting('max_connections')::int"
        " + current_setting('max_prepared_transactions')::int",
    )
    room = per_transaction * slots // MOST_LOCKS
    text = (
        f"max_locks_per_transaction = {per_transaction}: room for {room} transactions at once "
        f"that each write to {MOST_LOCKS} streams"
    )
    if room < LARGEST_AT_ONCE:
        enough = -(-LARGEST_AT_ONCE * MOST_LOCKS // slots)
        advice = f"more fail with 'out of shared memory': raise it to {enough}, and restart"
        return Finding("lock table", Level.WARNING, text, advice)
    return Finding("lock table", Level.OK, text)


def sequence(connection: Connection) -> Finding:
    """Check that the sequence has no cache, as the watermark requires."""
    (cache,) = _row(
        connection,
        "select seqcache from pg_sequence"
        " where seqrelid = 'message_store.messages_global_position_seq'::regclass",
    )
    if cache != 1:
        advice = "alter sequence message_store.messages_global_position_seq cache 1"
        return Finding("sequence", Level.PROBLEM, f"has a cache of {cache}", advice)
    return Finding("sequence", Level.OK, "no cache")


def triggers(connection: Connection) -> Finding:
    """Check that the triggers for the watermark exist and are enabled."""
    missing, disabled = _row(
        connection,
        "select array_agg(n.name) filter (where tgname is null),"
        " array_agg(n.name) filter (where tgenabled <> n.fires)"
        " from (values ('penstock_announce', 'A'), ('penstock_refuse_unannounced_position', 'A'),"
        " ('penstock_announce_applied', 'R'), ('penstock_place_applied', 'R'),"
        " ('penstock_forget_log', 'A')) n(name, fires)"
        " left join pg_trigger on tgname = n.name"
        " and tgrelid = 'message_store.messages'::regclass",
    )
    advice = "restore them with `penstock init`"
    if missing:
        text = f"missing: {', '.join(missing)}; readers can miss messages"
        return Finding("triggers", Level.PROBLEM, text, advice)
    if disabled:
        text = f"disabled: {', '.join(disabled)}; readers can miss messages"
        return Finding("triggers", Level.PROBLEM, text, advice)
    return Finding("triggers", Level.OK, "in place")


def open_writers(connection: Connection) -> Finding:
    """Check for a transaction that has held readers back for a long time."""
    writers = connection.execute("select pid, age from penstock.open_writers()").fetchall()
    for pid, age in writers:
        if pid is None or (age is not None and age > LONG):
            writer = (
                "a prepared transaction"
                if pid is None
                else f"pid {pid}, open for {shown_age(age)},"
            )
            return Finding(
                "open writers",
                Level.WARNING,
                f"{writer} holds back readers of categories",
                "`penstock status` shows details",
            )
    unseen = any(age is None for _, age in writers)  # `old_snapshots` reports the missing privilege
    how_long = "ages not visible" if unseen else "none for long"
    return Finding("open writers", Level.OK, f"{len(writers)}, {how_long}")


def old_snapshots(connection: Connection) -> Finding:
    """Check that the owner of Penstock's schema sees the transactions of other roles."""
    owner, sees_all = _row(
        connection,
        "select r.rolname::text, r.rolsuper or pg_has_role(r.oid, 'pg_read_all_stats', 'usage')"
        " from pg_proc p join pg_roles r on r.oid = p.proowner"
        " where p.oid = 'penstock.older_snapshot_open'::regproc",
    )
    if not sees_all:
        text = f"{owner}, the owner of Penstock's schema, sees only its own"
        advice = f"grant pg_read_all_stats to {owner}, if other roles write as well"
        return Finding("old snapshots", Level.WARNING, text, advice)
    return Finding("old snapshots", Level.OK, f"{owner} sees those of all roles")


def _guarded(name: str, check: Callable[[], Finding]) -> Finding:
    """Return the finding of a check; an error is a problem."""
    try:
        return check()
    except (PenstockError, psycopg.Error) as error:
        return Finding(name, Level.PROBLEM, first_line(error))


def _row(connection: Connection, sql: LiteralString) -> tuple[Any, ...]:
    row = connection.execute(sql).fetchone()
    assert row is not None
    return tuple(row)
