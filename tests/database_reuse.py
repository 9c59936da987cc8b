"""Databases are used again after a test: deleting rows is far cheaper than a new database.

Only rows are deleted, the triggers that come with the first declared message type, and the tables
of Iceberg's catalog that come with the first table of a lake. A database is used again if its
catalogs are then those of the template it was copied from, the template's own rows have not
changed, and it has not grown much; any other is dropped. So a test may do anything to its database.
After a test with Spark or processes it gets another name before it is used again: what such a test
left running no longer finds it.

One connection to each database is kept to do this, since in a new session the first look at a
catalog or table costs most of all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg
from psycopg import sql

GROWN = 1_000_000  # bytes: deleting more would cost as much as a new database

_CATALOGS: tuple[LiteralString, ...] = (
    "pg_namespace", "pg_class", "pg_attribute", "pg_attrdef", "pg_index", "pg_constraint",
    "pg_trigger", "pg_proc", "pg_type", "pg_sequence", "pg_rewrite", "pg_cast", "pg_policy",
    "pg_default_acl", "pg_extension", "pg_event_trigger",
)  # fmt: skip

#: nothing can be made, changed or dropped without another count, or a newer row
_FINGERPRINT: LiteralString = (
    "select array["
    + ", ".join(f"(select count(*) || ' ' || max(xmin::text::bigint) from {c})" for c in _CATALOGS)
    + "]"
)

_TABLES: LiteralString = """
select format('%I.%I', n.nspname, c.relname)
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind = 'r' and n.nspname in ('message_store', 'penstock', 'public') order by 1
"""
_SEQUENCES: LiteralString = """
select format('%I.%I', s.schemaname, s.sequencename),
  coalesce(s.last_value, s.start_value), s.last_value is not null
from pg_sequences s order by 1
"""
#: the tables and catalogs that were written to since the database was fresh, by PostgreSQL's
#: counters. Others need not be looked at.
_WRITTEN: LiteralString = """
select n.nspname = 'pg_catalog', format('%I.%I', n.nspname, c.relname),
  case n.nspname when 'pg_catalog' then 0 else pg_total_relation_size(c.oid) end
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind = 'r' and not c.relisshared
  and n.nspname in ('message_store', 'penstock', 'public', 'pg_catalog')
  and pg_stat_get_tuples_inserted(c.oid) + pg_stat_get_tuples_updated(c.oid)
    + pg_stat_get_tuples_deleted(c.oid) > 0
"""
#: the first declared message type of a database attaches triggers
_DETACH_ATTRIBUTE_TRIGGERS: LiteralString = "; ".join(
    f"drop trigger if exists penstock_{name} on message_store.messages"
    for name in ("index_attributes", "forget_attributes", "index_applied", "forget_applied")
)
#: the first table of a lake creates those of Iceberg's catalog
_LAKE_CATALOG: tuple[LiteralString, ...] = (
    "public.iceberg_tables", "public.iceberg_namespace_properties",
)  # fmt: skip
_DROP_LAKE_CATALOG: LiteralString = "drop table if exists " + ", ".join(_LAKE_CATALOG)
#: settings of the database are in a catalog of the whole server
_SETTINGS: LiteralString = """
select count(*) from pg_db_role_setting s join pg_database d on d.oid = s.setdatabase
where d.datname = current_database()
"""
_END_OTHERS = (
    "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
    " where datname = %s and pid <> pg_backend_pid() and pid <> all(%s)"
)


@dataclass(frozen=True)
class FreshState:
    """The state of a fresh database of an edition."""

    fingerprint: list[str]
    rows: dict[str, list[Any]]  # by table
    sequences: list[tuple[str, int, bool]]

    @classmethod
    def of(cls, url: str) -> FreshState:
        """Read the state of a fresh database."""
        with psycopg.connect(url, autocommit=True) as connection:
            tables = [name for (name,) in connection.execute(_TABLES)]
            state = cls(
                _fingerprint(connection),
                {name: _rows(connection, name) for name in tables},
                connection.execute(_SEQUENCES).fetchall(),
            )
            connection.execute("select pg_stat_reset()")
            return state

    def restore(self, connection: psycopg.Connection[Any], kept: Sequence[int] = ()) -> bool:
        """Bring a database back to this state. False if deleting rows is not enough.

        Ends all other sessions: they count what they wrote at the latest when they end. The kept
        ones, given by process id, have counted it.
        """
        connection.execute(_END_OTHERS, (connection.info.dbname, list(kept)))
        written = connection.execute(_WRITTEN).fetchall()
        changed = {name for is_catalog, name, _ in written if is_catalog}
        tables = {name: size for is_catalog, name, size in written if not is_catalog}
        if "pg_catalog.pg_trigger" in changed:
            connection.execute(_DETACH_ATTRIBUTE_TRIGGERS)
        if "pg_catalog.pg_class" in changed:
            connection.execute(_DROP_LAKE_CATALOG)
            tables = {name: tables[name] for name in tables if name not in _LAKE_CATALOG}
        if (
            sum(tables.values()) > GROWN
            or connection.execute(_SETTINGS).fetchone() != (0,)
            or (changed and _fingerprint(connection) != self.fingerprint)
            or any(_rows(connection, name) != self.rows[name] for name in self._kept(tables))
        ):
            return False
        connection.execute("set session_replication_role = replica")  # no triggers
        connection.execute(self._clear(name for name in tables if not self.rows[name]))
        return True

    def _kept(self, tables: Iterable[str]) -> list[str]:
        """The tables among these that hold rows in a fresh database."""
        return [name for name in tables if self.rows[name]]

    def _clear(self, tables: Iterable[str]) -> sql.Composed:
        return sql.SQL("; ").join(
            [
                *(sql.SQL("delete from " + name) for name in tables),
                *(sql.SQL("select setval({}, {}, {})").format(*one) for one in self.sequences),
                sql.SQL("select pg_stat_force_next_flush()"),
                sql.SQL("select pg_stat_reset()"),
            ]
        )


def rename(administrator: psycopg.Connection[Any], old: str, new: str) -> bool:
    """Rename a database and end its connections. False if another one connects meanwhile."""
    statement = sql.SQL("alter database {} rename to {}")
    administrator.execute(_END_OTHERS, (old, []))
    try:
        administrator.execute(statement.format(sql.Identifier(old), sql.Identifier(new)))
    except psycopg.errors.ObjectInUse:
        return False
    return True


def _rows(connection: psycopg.Connection[Any], table: str) -> list[Any]:
    return connection.execute(f"select t::text from {table} t order by 1".encode()).fetchall()


def _fingerprint(connection: psycopg.Connection[Any]) -> list[str]:
    row = connection.execute(_FINGERPRINT).fetchone()
    assert row is not None
    found: list[str] = row[0]
    return found
