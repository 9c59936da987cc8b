"""The checks of the server and the database: `penstock doctor`, and the console's overview.

Each check is a function that returns a finding. A problem prevents Penstock from working or breaks
one of its promises. A warning does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any, LiteralString, NamedTuple

import psycopg

from penstock.database import edition as editions
from penstock.database.edition import OLDEST_POSTGRESQL, Edition
from penstock.database.execute import execute
from penstock.database.install import install_on
from penstock.database.wake_ups import notifications_arrive
from penstock.errors import PenstockError, first_line
from penstock.log.bloated_indexes import unfinished
from penstock.log.overview import shortened
from penstock.loops.durations import shown_age

#: with more locks, a transaction locks whole categories (see 04_locks.sql)
MOST_LOCKS = 500
#: the connections of one pool, each with a transaction of that size
LARGEST_AT_ONCE = 10
#: the age from which an open writer is reported
LONG = timedelta(minutes=1)

#: the levels of findings, and their styles in a terminal
STYLES = {"OK": "green", "warning": "yellow", "PROBLEM": "bold red"}


class Finding(NamedTuple):
    """What a check has found, and what to do."""

    level: str
    found: str
    advice: str = ""


ok = partial(Finding, "OK")
warning = partial(Finding, "warning")
problem = partial(Finding, "PROBLEM")


class Server(NamedTuple):
    """The server to check: a connection to it, what is installed, and where it is."""

    connection: psycopg.Connection[Any]
    installed: editions.Found
    where: str

    def row(self, sql: LiteralString) -> tuple[Any, ...]:
        """Return the only row of a query."""
        [row] = self.connection.execute(sql).fetchall()
        return tuple(row)


def reachable(server: Server) -> Finding:
    """Check that the server is new enough and accepts writes."""
    version, standby = server.row("select current_setting('server_version'), pg_is_in_recovery()")
    found = f"PostgreSQL {version}, {server.where}"
    if server.installed.server_version < OLDEST_POSTGRESQL * 10_000:
        return problem(found, f"Penstock needs PostgreSQL {OLDEST_POSTGRESQL} or newer")
    if standby:
        advice = "only streams can be read here: write, and read categories, on the primary"
        return warning(f"{found}, a standby", advice)
    return ok(found)


def message_store(server: Server) -> Finding:
    """Check that a message store of this version is installed."""
    connection, installed, where = server
    plan = install_on(connection, where, check=True)
    if not installed.has_message_store:
        return problem("not installed", "install it with `penstock init`")
    version = execute(connection, editions.message_store_version())
    last = execute(connection, editions.last_installation()) if installed.has_penstock else None
    if last is None:
        found = f"genuine Message DB {version}: no complete reads, no $all"
        return warning(found, "`penstock init` adds Penstock beside it")
    whose = "Penstock's" if last.edition is Edition.PENSTOCK else f"Message DB {version}'s"
    found = f"{whose} functions, schema version {last.version}"
    if plan.needed:
        report = problem if last.version < editions.SCHEMA_VERSION else warning
        return report(found, f"`penstock init` would {plan.actions[0]}")
    return ok(found)


def durability(server: Server) -> Finding:
    """Check that committed messages survive a crash."""
    [value] = server.row("select current_setting('synchronous_commit')")
    found = f"synchronous_commit = {value}"
    advice = "a crash can lose messages that were read, and reuse their positions: set it to on"
    return warning(found, advice) if value == "off" else ok(found)


def lock_table(server: Server) -> Finding:
    """Check that the lock table has room for transactions that write to many streams."""
    per_transaction, slots = server.row(
        "select current_setting('max_locks_per_transaction')::int,"
        " current_setting('max_connections')::int"
        " + current_setting('max_prepared_transactions')::int",
    )
    room = per_transaction * slots // MOST_LOCKS
    found = (
        f"max_locks_per_transaction = {per_transaction}: room for {room} transactions at once "
        f"that each write to {MOST_LOCKS} streams"
    )
    if room < LARGEST_AT_ONCE:
        enough = -(-LARGEST_AT_ONCE * MOST_LOCKS // slots)
        advice = f"more fail with 'out of shared memory': raise it to {enough}, and restart"
        return warning(found, advice)
    return ok(found)


def sequence(server: Server) -> Finding:
    """Check that the sequence has no cache, as the watermark requires."""
    [cache] = server.row(
        "select seqcache from pg_sequence"
        " where seqrelid = 'message_store.messages_global_position_seq'::regclass",
    )
    advice = "alter sequence message_store.messages_global_position_seq cache 1"
    return ok("no cache") if cache == 1 else problem(f"has a cache of {cache}", advice)


def triggers(server: Server) -> Finding:
    """Check that the triggers for the watermark exist and are enabled."""
    states = server.row(
        "select array_agg(n.name) filter (where tgname is null),"
        " array_agg(n.name) filter (where tgenabled <> n.fires)"
        " from (values ('penstock_announce', 'A'), ('penstock_refuse_unannounced_position', 'A'),"
        " ('penstock_announce_applied', 'R'), ('penstock_place_applied', 'R'),"
        " ('penstock_forget_log', 'A')) n(name, fires)"
        " left join pg_trigger on tgname = n.name"
        " and tgrelid = 'message_store.messages'::regclass",
    )
    for state, names in zip(("missing", "disabled"), states, strict=True):
        if names:
            found = f"{state}: {', '.join(names)}; readers can miss messages"
            return problem(found, "restore them with `penstock init`")
    return ok("in place")


def open_writers(server: Server) -> Finding:
    """Check for a transaction that has held readers back for a long time."""
    writers = server.connection.execute(
        "select w.pid, w.age, w.application_name, a.query from penstock.open_writers() w"
        " left join pg_catalog.pg_stat_activity a on a.pid = w.pid"
    ).fetchall()
    for pid, age, application, statement in writers:
        if pid is None:
            found = f"the prepared transaction {application!r} holds back readers of categories"
            return warning(found, "commit it or roll it back: see pg_prepared_xacts")
        if age is not None and age > LONG:
            last = shortened(" ".join((statement or "?").split()))
            found = (
                f"pid {pid} ({application}), open for {shown_age(age)}, holds back readers of "
                f"categories; its last statement: {last}"
            )
            return warning(found, f"`penstock release-writer {pid}` ends it")
    unseen = any(
        age is None for _, age, *_ in writers
    )  # `old_snapshots` reports the missing privilege
    return ok(f"{len(writers)}, {'ages not visible' if unseen else 'none for long'}")


def old_snapshots(server: Server) -> Finding:
    """Check that the owner of Penstock's schema sees the transactions of other roles."""
    owner, sees_all = server.row(
        "select r.rolname::text, r.rolsuper or pg_has_role(r.oid, 'pg_read_all_stats', 'usage')"
        " from pg_proc p join pg_roles r on r.oid = p.proowner"
        " where p.oid = 'penstock.older_snapshot_open'::regproc",
    )
    if not sees_all:
        advice = f"grant pg_read_all_stats to {owner}, if other roles write as well"
        return warning(f"{owner}, the owner of Penstock's schema, sees only its own", advice)
    return ok(f"{owner} sees those of all roles")


def indexes(server: Server) -> Finding:
    """Check that no interrupted rebuild has left an index that is of no use."""
    names = [f"message_store.{one}" for one in unfinished(server.connection)]
    if names:
        found = f"{', '.join(names)}: left by an interrupted rebuild; every write maintains it"
        advice = f"drop index concurrently {', '.join(names)}; or the next archive drops it"
        return warning(found, advice)
    return ok("none is unfinished")


def wake_ups(
    connection: psycopg.Connection[Any], other: psycopg.Connection[Any], timeout: float = 1.0
) -> Finding:
    """Check that notifications arrive, so that waiters need not poll."""
    if notifications_arrive(connection, other, timeout):
        return ok("notifications arrive: what waits for messages sleeps until they are written")
    found = "notifications do not arrive, as behind a transaction pooler: waiters poll"
    return warning(found, "connect what waits for messages to the server itself")


_CHECKS = {"message store": message_store, "durability": durability, "lock table": lock_table}
_MESSAGE_STORE_CHECKS = {"sequence": sequence, "indexes": indexes}
_PENSTOCK_CHECKS = {
    "triggers": triggers,
    "open writers": open_writers,
    "old snapshots": old_snapshots,
}


def server_checks(connection: psycopg.Connection[Any], where: str) -> Iterator[tuple[str, Finding]]:
    """Run the checks that apply to what is installed; an error in one is a problem."""
    server = Server(connection, execute(connection, editions.find()), where)
    yield "server", reachable(server)
    checks = dict(_CHECKS)
    if server.installed.has_message_store:
        checks |= _MESSAGE_STORE_CHECKS
        checks |= _PENSTOCK_CHECKS if server.installed.has_penstock else {}
    for name, check in checks.items():
        try:
            finding = check(server)
        except (PenstockError, psycopg.Error) as error:
            finding = problem(first_line(error))
        yield name, finding
