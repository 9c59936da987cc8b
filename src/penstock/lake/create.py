"""Creating tables of the lake, and adding columns to them.

A table is created when its first rows are written, with the columns of that frame. All of them may
be null, except those of the key, since the flags of a frame's columns vary. A later frame may have
new columns, which are added to the table, or lack some, which are null then. A column may become
wider (`int` to `bigint`). One whose type does not fit is refused, with both schemas in the error,
before a file is written. These changes are commits of their own: a table without rows, or with a
column that is null so far, is no half step.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

import pyarrow as pa

from penstock.errors import TableChanged, WarehouseUnusable, WrongTable, first_line
from penstock.extras import from_extra
from penstock.lake.declaration import LakeTable
from penstock.lake.store_catalog import OWNER, StoreCatalog
from penstock.lake.transactions import TableTransaction

with from_extra("lake"):
    from pyiceberg.catalog import Catalog
    from pyiceberg.exceptions import (
        CommitFailedException,
        NamespaceAlreadyExistsError,
        NoSuchTableError,
        TableAlreadyExistsError,
    )
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema, assign_fresh_schema_ids
    from pyiceberg.table import Table
    from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
    from pyiceberg.transforms import IdentityTransform, parse_transform
    from pyiceberg.types import BinaryType, DoubleType, FloatType, NestedField, StringType
    from sqlalchemy.exc import IntegrityError

#: without these a commit takes longer the more there were before it
PROPERTIES = {
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "20",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
ATTEMPTS = 5
_SECRET = r"(?i:key|secret|token|signature|password|credential)"


def check_warehouse(catalog: StoreCatalog) -> None:
    """Write a file to the warehouse and remove it, or raise."""
    warehouse = str(catalog.properties["warehouse"])
    path = f"{warehouse.rstrip('/')}/_penstock_check_{uuid4().hex}"
    with usable(catalog.properties):
        try:
            io = catalog._load_file_io(location=path)
            with io.new_output(path).create() as file:
                file.write(b"penstock")
            io.delete(path)
        except ValueError as error:  # options that contradict each other, or lack one another
            raise OSError(first_line(error)) from None


@contextmanager
def usable(properties: Mapping[str, Any]) -> Iterator[None]:
    """Raise `WarehouseUnusable`, without credentials, if files cannot be read or written."""
    try:
        yield
    except OSError as error:  # pyarrow reports every failure of a store as one
        reason = first_line(error)
        for name, value in properties.items():
            if re.search(_SECRET, name):
                reason = reason.replace(str(value), "***")
        reason = re.sub(rf"({_SECRET}[\w-]*=)[^\s&]+", r"\1***", reason)  # of a signed address
        raise WarehouseUnusable(str(properties["warehouse"]), reason) from None


def prepare_table(catalog: StoreCatalog, name: str, declared: LakeTable, rows: pa.Schema) -> Table:
    """Return the table for rows of this schema: created, or with their new columns; or raise."""
    wanted = iceberg_schema(declared, rows)
    layout = _partition_spec(declared, wanted), _sort_order(declared, wanted)
    for _ in range(ATTEMPTS):
        with suppress(TableAlreadyExistsError, CommitFailedException):  # by others, meanwhile
            try:
                table = catalog.load_table(name)
            except NoSuchTableError:
                return _create(catalog, name, wanted, *layout)
            _check_layout(table, declared)
            return _with_columns(table, declared, wanted)
    raise TableChanged(name, ATTEMPTS)


def _create(
    catalog: StoreCatalog, name: str, schema: Schema, spec: PartitionSpec, order: SortOrder
) -> Table:
    namespace = name.rpartition(".")[0]
    with suppress(NamespaceAlreadyExistsError, IntegrityError):  # by another processor
        if not catalog.namespace_exists(namespace):
            catalog.create_namespace(namespace)
    folder = f"{name.replace('.', '/')}-{int(time.time()):x}{uuid4().hex[:8]}"
    return catalog.create_table(
        name,
        schema,
        # of its own: a table that replaces another one keeps its folder when it gets the name
        location=f"{str(catalog.properties['warehouse']).rstrip('/')}/{folder}",
        partition_spec=spec,
        sort_order=order,
        properties={**PROPERTIES, OWNER: catalog.database_id()},
    )


def iceberg_schema(declared: LakeTable, rows: pa.Schema) -> Schema:
    """Return Iceberg's schema for rows, or raise for a type that it does not have."""
    names: dict[str, str] = {}
    for one in rows:
        if (other := names.setdefault(one.name.lower(), one.name)) != one.name:
            problem = f"cannot have columns {other} and {one.name}: many engines ignore case"
            raise WrongTable(declared.name, problem)
        try:
            Catalog._convert_schema_if_needed(pa.schema([one]), 2)
        except Exception as error:  # a different one for each type
            problem = f"cannot have a column {one.name} of type {one.type}: {first_line(error)}"
            raise WrongTable(declared.name, problem) from None
    found = assign_fresh_schema_ids(Catalog._convert_schema_if_needed(rows, 2))
    fields = [_key(declared, one) if one.name in declared.key else one for one in found.fields]
    return Schema(*fields, identifier_field_ids=[one.field_id for one in fields if one.required])


def _key(declared: LakeTable, one: NestedField) -> NestedField:
    """Return a column of the key, which is never null."""
    if not one.field_type.is_primitive or isinstance(one.field_type, FloatType | DoubleType):
        problem = f"cannot have the key {one.name}, which is of type {one.field_type}"
        raise WrongTable(declared.name, problem)
    return NestedField(one.field_id, one.name, one.field_type, required=True)


def _partition_spec(declared: LakeTable, schema: Schema) -> PartitionSpec:
    fields = []
    for number, one in enumerate(declared.partition_by):
        source = _column(declared, schema, one.column, "partition_by")
        transform = parse_transform(one.transform)
        # not a number is equal to nothing, so its rows would be in no partition
        inexact = isinstance(source.field_type, FloatType | DoubleType)
        if inexact or not transform.can_transform(source.field_type):
            problem = f"cannot be partitioned by {one.transform} of {one.column}, which is of type "
            raise WrongTable(declared.name, f"{problem}{source.field_type}")
        if one.name in schema.column_names and one.name != one.column:
            problem = f"has a column {one.name}, the name of its partitions by {one.transform}"
            raise WrongTable(declared.name, f"{problem} of {one.column}: rename the column")
        fields.append(PartitionField(source.field_id, 1000 + number, transform, one.name))
    return PartitionSpec(*fields)


def _sort_order(declared: LakeTable, schema: Schema) -> SortOrder:
    fields = []
    for one in declared.sort_by:
        source = _column(declared, schema, one.column, "sort_by")
        if not source.field_type.is_primitive:
            problem = f"cannot be sorted by {one.column}, which is of type {source.field_type}"
            raise WrongTable(declared.name, problem)
        direction = SortDirection.DESC if one.descending else SortDirection.ASC
        nulls = NullOrder.NULLS_LAST  # as Arrow sorts
        fields.append(SortField(source.field_id, IdentityTransform(), direction, nulls))
    return SortOrder(*fields)


def _column(declared: LakeTable, schema: Schema, column: str, argument: str) -> NestedField:
    try:
        return schema.find_field(column)
    except ValueError:
        known = ", ".join(one.name for one in schema.fields)
        problem = f"has no column {column}, which {argument} names; the frame has {known}"
        raise WrongTable(declared.name, problem) from None


def _check_layout(table: Table, declared: LakeTable) -> None:
    """Refuse a table with other partitions or another key than those that are declared."""
    schema, name = table.schema(), ".".join(table.name())
    found = [
        f"{one.transform} of {schema.find_column_name(one.source_id)}"
        for one in table.spec().fields
    ]
    wanted = [f"{one.transform} of {one.column}" for one in declared.partition_by]
    if found != wanted:
        problem = f"is partitioned by {found or 'nothing'}, and declared with {wanted or 'nothing'}"
        raise WrongTable(name, f"{problem}; run the pipeline from scratch to build it anew")
    keys = {str(schema.find_column_name(one)) for one in schema.identifier_field_ids}
    if declared.key and keys and keys != set(declared.key):  # others may declare none
        problem = f"has the key {sorted(keys)}, not {sorted(declared.key)}"
        raise WrongTable(name, f"{problem}; run the pipeline from scratch to build it anew")


def _with_columns(table: Table, declared: LakeTable, wanted: Schema) -> Table:
    """Return the table with the columns and the order of these rows; raise if some do not fit."""
    try:
        _check_columns(table.schema(), wanted)
        with TableTransaction(table) as transaction:
            with transaction.update_schema() as schema:
                schema.union_by_name(wanted)
            order = _sort_order(declared, transaction.table_metadata.schema())
            if order.fields != table.sort_order().fields:
                with transaction.update_sort_order() as sorting:
                    for one in declared.sort_by:
                        add = sorting.desc if one.descending else sorting.asc
                        add(one.column, IdentityTransform(), NullOrder.NULLS_LAST)
    except CommitFailedException:
        raise
    except Exception as error:  # a different one for each kind of change
        problem = (
            f"does not take this frame: {first_line(error)}\n"
            f"the table has {_one_line(table.schema())}\nthe frame has {_one_line(wanted)}"
        )
        raise WrongTable(".".join(table.name()), problem) from None
    return table


def _check_columns(schema: Schema, wanted: Schema) -> None:
    """Refuse what pyiceberg would take for new columns, or for a column of another type."""
    names = {one.name.lower(): one.name for one in schema.fields}
    for one in wanted.fields:
        known = names.get(one.name.lower(), one.name)
        if known != one.name:
            raise ValueError(f"{one.name} and {known} are the same to engines that ignore case")
        old = schema.find_type(one.name) if one.name.lower() in names else one.field_type
        if {type(old), type(one.field_type)} == {StringType, BinaryType}:
            raise ValueError(f"{one.name} cannot change from {old} to {one.field_type}")
    missing = [
        one.name for one in schema.fields if one.required and one.name not in wanted.column_names
    ]
    if missing:
        raise ValueError(f"the frame lacks {', '.join(missing)}, which cannot be null")


def _one_line(schema: Schema) -> str:
    return ", ".join(f"{one.name} {one.field_type}" for one in schema.fields)
