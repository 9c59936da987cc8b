"""The rows of Iceberg's catalog that a transaction of ours changes without Iceberg.

Tables are locked, dropped and renamed here: no file changes. The files of a dropped table are
removed by `upkeep`.
"""

from __future__ import annotations

from typing import Any

import psycopg

#: the name under which other engines open the catalog
CATALOG = "penstock"
_LOCK = (
    "select metadata_location from iceberg_tables"
    " where catalog_name = %s and table_namespace = %s and table_name = %s for update"
)
_DROP = (
    "delete from iceberg_tables"
    " where catalog_name = %s and table_namespace = %s and table_name = %s"
)
_RENAME = (
    "update iceberg_tables set table_name = %s"
    " where catalog_name = %s and table_namespace = %s and table_name = %s"
)


def lock_table(connection: psycopg.Connection[Any], name: str) -> str | None:
    """Return the location of a table's metadata, which stays the same until the transaction ends.

    None if there is no such table.
    """
    row = connection.execute(_LOCK, _key(name)).fetchone()
    return None if row is None else str(row[0])


def drop_table(connection: psycopg.Connection[Any], name: str) -> None:
    """Remove a table from the catalog, if there is one."""
    if _has_catalog(connection):
        connection.execute(_DROP, _key(name))


def replace_table(connection: psycopg.Connection[Any], name: str, by: str) -> None:
    """Give a table the name of another one, which leaves the catalog.

    If there is no table to replace it, since nothing was written, the old one leaves all the same.
    """
    drop_table(connection, name)
    if _has_catalog(connection):
        connection.execute(_RENAME, (name.rpartition(".")[2], *_key(by)))


def _has_catalog(connection: psycopg.Connection[Any]) -> bool:
    row = connection.execute("select to_regclass('iceberg_tables') is not null").fetchone()
    return bool(row and row[0])


def _key(name: str) -> tuple[str, str, str]:
    namespace, _, table = name.rpartition(".")
    return CATALOG, namespace, table
