"""The catalog of Iceberg tables, in the store's database.

A table of the lake is one row of `iceberg_tables`, Iceberg's own SQL catalog: the row names the
table's newest metadata file, and a commit replaces that name if it still is the one that was read.
Spark, Trino, Flink and pyiceberg open such a catalog as it is.

Because the row is in the store's database, a commit can be part of any transaction there. `on`
binds a catalog to an open connection: what is committed through it becomes visible when the
transaction of that connection is committed, together with everything else in it, or not at all.
Data files, manifests and metadata are written before. If the transaction fails, no table names
them, and `upkeep` removes them later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, Self

import psycopg

from penstock.errors import NoWarehouse
from penstock.extras import from_extra
from penstock.lake.catalog_rows import CATALOG
from penstock.lake.transactions import share_history
from penstock.settings import Settings

with from_extra("lake"):
    import sqlalchemy
    from pyiceberg.catalog import Catalog, MetastoreCatalog
    from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
    from pyiceberg.io import FileIO
    from pyiceberg.table import CommitTableResponse, Table
    from pyiceberg.table.metadata import TableMetadata
    from sqlalchemy.exc import DBAPIError
    from sqlalchemy.pool import NullPool, StaticPool

#: the property of a table that names the database which created it
OWNER = "penstock.database"
#: an advisory lock, so that one of several processes creates the catalog's tables
_CREATING = 1885693290
#: so many metadata files are kept in memory
_REMEMBERED = 16


_DATABASE_ID = (
    "select to_hex(c.system_identifier) || to_hex(d.oid::bigint)"
    " from pg_control_system() c, pg_database d where d.datname = current_database()"
)


class _HasSettings(Protocol):
    @property
    def settings(self) -> Settings: ...


class StoreCatalog(SqlCatalog):
    """Iceberg's SQL catalog in the database of a store."""

    def __init__(self, engine: sqlalchemy.Engine, properties: Mapping[str, str]) -> None:
        MetastoreCatalog.__init__(self, CATALOG, **properties)
        self.engine = engine
        self._schema_version = "v1"
        #: metadata that was read or written last, by its location
        self._known: dict[str, TableMetadata] = {}
        #: whose transactions its commits are part of; None: each commit is a transaction of its own
        self.connection: psycopg.Connection[Any] | None = None

    def on(self, connection: psycopg.Connection[Any]) -> Self:
        """Return the same catalog on a connection, whose owner begins and ends its transactions."""
        engine = _engine(lambda: _Borrowed(connection), StaticPool)
        bound = type(self)(engine, self.properties)
        bound._schema_version = self._schema_version
        bound.connection = connection
        bound._known = dict(self._known)
        return bound

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> Table:
        """Return the table of a row. Its metadata file never changes, and may be in `_known`."""
        location = orm_table.metadata_location
        known = self._known.get(location or "")
        if location is None or known is None:
            table = super()._convert_orm_to_iceberg(orm_table)
            self._remember(table.metadata_location, table.metadata)
            return table
        identifier = *Catalog.identifier_to_tuple(orm_table.table_namespace), orm_table.table_name
        io = self._load_file_io(known.properties, location)
        return Table(identifier, known, location, io, self)

    def commit_table(
        self, table: Table, requirements: tuple[Any, ...], updates: tuple[Any, ...]
    ) -> CommitTableResponse:
        """Write a table's new metadata and name it in the catalog."""
        response = super().commit_table(table, requirements, updates)
        self._remember(response.metadata_location, response.metadata)
        return response

    def _remember(self, location: str, metadata: TableMetadata) -> None:
        share_history(metadata)
        self._known[location] = metadata
        for old in list(self._known)[:-_REMEMBERED]:
            self._known.pop(old, None)

    def _delete_old_metadata(  # type: ignore[override]  # which is called by an instance
        self, io: FileIO, base: TableMetadata, metadata: TableMetadata
    ) -> None:
        """Leave old metadata files in place while the transaction may still be rolled back."""
        if self.connection is None or _is_idle(self.connection):
            self.delete_old_metadata(io, base, metadata)

    def delete_old_metadata(self, io: FileIO, base: TableMetadata, metadata: TableMetadata) -> None:
        """Remove the metadata files that a table named before a commit, and no longer does."""
        super()._delete_old_metadata(io, base, metadata)

    def database_id(self) -> str:
        """Return what tells this database from others: its server's identifier and its own."""
        with self.engine.connect() as connection:
            return str(connection.execute(sqlalchemy.text(_DATABASE_ID)).scalar())

    def __repr__(self) -> str:
        return f"<StoreCatalog {self.name}: {self.properties.get('warehouse')}>"


def catalog(store: _HasSettings) -> StoreCatalog:
    """Return the catalog of a store's Iceberg tables, as a pyiceberg catalog.

    The catalog's two tables are created if the database does not have them.
    """
    return open_catalog(store.settings)


def open_catalog(settings: Settings) -> StoreCatalog:
    """Return the catalog in the database that the settings name."""
    if settings.warehouse is None:
        raise NoWarehouse(settings.where())
    engine = _engine(lambda: psycopg.connect(settings.conninfo()), NullPool)
    found = StoreCatalog(engine, lake_properties(settings))
    with psycopg.connect(settings.conninfo(), autocommit=True) as connection, psycopg_errors():
        connection.execute("select pg_advisory_lock(%s)", (_CREATING,))
        found._init_catalog()  # creates the tables, or finds out which version they have
    return found


def lake_properties(settings: Settings) -> dict[str, str]:
    """Return the properties by which pyiceberg finds the warehouse and signs in to it."""
    return {"warehouse": str(settings.warehouse), **settings.lake_options}


@contextmanager
def psycopg_errors() -> Iterator[None]:
    """Raise what psycopg raised, not SQLAlchemy's errors that wrap it."""
    try:
        yield
    except DBAPIError as error:
        raise (error.orig or error) from None


def _is_idle(connection: psycopg.Connection[Any]) -> bool:
    return connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def _engine(creator: Any, pool: Any) -> sqlalchemy.Engine:
    return sqlalchemy.create_engine(
        "postgresql+psycopg://", creator=creator, poolclass=pool, use_native_hstore=False
    )


class _Borrowed:
    """A psycopg connection whose transactions are not SQLAlchemy's to begin or end."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def commit(self) -> None:
        """Leave it to the owner of the connection."""

    def rollback(self) -> None:
        """Leave it to the owner of the connection."""

    def close(self) -> None:
        """Leave it to the owner of the connection."""
