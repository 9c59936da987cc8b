"""Tables of the same database that a step writes in the transaction that commits it.

A table has PostgreSQL's types for Spark's columns; rows are copied into it as CSV. An upsert merges
a frame into a table by key; `projection` folds messages into one.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.csv
from psycopg import sql
from pyspark.sql import DataFrame, types
from pyspark.sql.types import DataType, StructType

from penstock.database.operation import Operation, call, only_value
from penstock.errors import ValidationError, WrongColumns, WrongValue
from penstock.spark.json_columns import json_texts, refuse_duplicate_columns, refuse_without_json

Connection = psycopg.Connection[Any]
_AS_CSV = pa.csv.WriteOptions(include_header=False, quoting_style="all_valid")
_CREATE_STAGING = (
    "drop table if exists pg_temp.penstock_upsert;"
    " create temp table penstock_upsert on commit drop as select {names} from {table} limit 0"
)
_MERGE = (
    "insert into {table} as t ({names}) select {names} from pg_temp.penstock_upsert"
    " order by {key} on conflict ({key}) do {action}"
)
_REPLACED = "{name} = excluded.{name}"
_ADDED = "{name} = coalesce(t.{name} + excluded.{name}, t.{name}, excluded.{name})"
_POSTGRES: tuple[tuple[type[DataType], str], ...] = (
    (types.StringType, "text"),
    (types.BooleanType, "boolean"),
    (types.IntegralType, "bigint"),
    (types.FloatType, "double precision"),
    (types.DoubleType, "double precision"),
    (types.DateType, "date"),
    (types.TimestampType, "timestamptz"),
    (types.TimestampNTZType, "timestamp"),
)


@dataclass(frozen=True)
class Upsert:
    """A frame, and the table that its rows are merged into."""

    table: str
    columns: tuple[tuple[str, str], ...]
    key: tuple[str, ...]
    add: tuple[str, ...]
    frame: DataFrame
    #: what the frame holds, once it is evaluated
    rows: pa.Table | None = None

    def evaluated(self, frame: DataFrame) -> Upsert:
        """Return it with the rows of the frame. Raise if a row has no key."""
        rows = frame.toArrow()
        for name in self.key:
            if rows.column(name).null_count:
                expected = "a value: it is the key, or a part of it"
                raise WrongValue(name, None, expected, None, of=f"a row for {self.table}")
        return replace(self, rows=rows)

    def apply(self, connection: Connection) -> None:
        """Write the rows. Create the table if there is none."""
        create_table(connection, self.table, self.columns, self.key)
        if self.rows is None or not self.rows.num_rows:
            return
        names = [name for name, _ in self.columns]
        parts = {
            "table": table_identifier(self.table),
            "names": identifiers(names),
            "key": identifiers(self.key),
            "action": self._action(),
        }
        connection.execute(sql.SQL(_CREATE_STAGING).format(**parts))
        copy_csv(connection, sql.Identifier("penstock_upsert"), names, self.rows)
        try:
            connection.execute(sql.SQL(_MERGE).format(**parts))
        except psycopg.errors.CardinalityViolation as error:
            problem = f"several rows for {self.table} have the same {', '.join(self.key)}"
            raise WrongColumns(problem, "a step needs one row for each key: group them") from error

    def _action(self) -> sql.Composable:
        changed = [
            sql.SQL(_ADDED if name in self.add else _REPLACED).format(name=sql.Identifier(name))
            for name, _ in self.columns
            if name not in self.key
        ]
        if not changed:
            return sql.SQL("nothing")
        return sql.SQL("update set ") + sql.SQL(", ").join(changed)


def upsert_of(
    frame: DataFrame, table: str, key: str | Sequence[str], add: Sequence[str] = ()
) -> Upsert:
    """Return the upsert of a frame's rows into a table, or raise what is wrong with it."""
    if not isinstance(frame, DataFrame):
        raise ValidationError("frame", frame, "a DataFrame")
    keys = (key,) if isinstance(key, str) else tuple(key)
    for name in (*keys, *add):
        if name not in frame.columns:
            raise WrongColumns(f"there is no column {name}", f"there are {frame.columns}")
    if not keys:
        raise ValidationError("key", key, "the columns that identify a row")
    return Upsert(table, columns_of(frame.schema), keys, tuple(add), frame)


def parse_schema(text: str) -> StructType:
    """Return the schema that a text describes."""
    read = StructType.fromDDL(text)
    assert isinstance(read, StructType)
    return read


def columns_of(schema: StructType) -> tuple[tuple[str, str], ...]:
    """Return the columns of a table for a schema, with PostgreSQL's types."""
    refuse_duplicate_columns(schema)
    return tuple((one.name, postgres_type(one.name, one.dataType)) for one in schema.fields)


def postgres_type(column: str, kind: DataType) -> str:
    """Return PostgreSQL's type for one of Spark's; `jsonb` if there is no other."""
    if isinstance(kind, types.DecimalType):
        return f"numeric({kind.precision},{kind.scale})"
    if isinstance(kind, types.BinaryType):
        raise WrongColumns("a column is binary", "write it as text, in base64")
    refuse_without_json(f"column {column}", kind)
    return next((name for spark, name in _POSTGRES if isinstance(kind, spark)), "jsonb")


def create_table(
    connection: Connection, table: str, columns: Sequence[tuple[str, str]], key: Sequence[str]
) -> None:
    """Create a table if there is none. Its schema has to exist."""
    defined = [
        sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind)) for name, kind in columns
    ]
    connection.execute(
        sql.SQL("create table if not exists {} ({}, primary key ({}))").format(
            table_identifier(table), sql.SQL(", ").join(defined), identifiers(key)
        )
    )


def copy_csv(
    connection: Connection, table: sql.Composable, names: Sequence[str], rows: pa.Table
) -> None:
    """COPY these columns of an Arrow table into a table."""
    columns = {name: rows.column(name) for name in names}
    for name, column in columns.items():
        if pa.types.is_nested(column.type):
            columns[name] = json_texts(column.combine_chunks(), name)
    text = io.BytesIO()
    pa.csv.write_csv(pa.table(columns), text, _AS_CSV)
    copy = sql.SQL("copy {} ({}) from stdin (format csv)").format(table, identifiers(names))
    with connection.cursor() as cursor, cursor.copy(copy) as stream:
        stream.write(text.getbuffer())


def table_identifier(table: str) -> sql.Identifier:
    """Return the name of a table, quoted, with its schema if it has one."""
    parts = table.split(".")
    if not all(parts) or len(parts) > 2:
        raise ValidationError("table", table, "a table's name, with or without a schema")
    return sql.Identifier(*parts)


def next_table(table: str) -> str:
    """Return the name of the table that replaces another one when it is rebuilt."""
    return f"{table}__next"


def table_exists(table: str) -> Operation[bool]:
    """Return whether a table exists."""
    quoted = table_identifier(table).as_string()
    return call("table_exists", "select to_regclass(%s) is not null", (quoted,), only_value)


def identifiers(names: Sequence[str]) -> sql.Composed:
    """Return names as a list, quoted."""
    return sql.SQL(", ").join(sql.Identifier(name) for name in names)
