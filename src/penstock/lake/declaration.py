"""The declaration of a table of the lake: its name, its partitions, its order, and how it changes.

Partitions are written as Iceberg and Spark write them: `sold_at` (by value), `day(sold_at)`,
`bucket(16, customer)`. Nothing here needs Iceberg, so that a pipeline is checked without it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.errors import ValidationError

APPEND, UPSERT, OVERWRITE = "append", "upsert", "overwrite"
_NAME = r"[A-Za-z_]\w*"
_COLUMN = rf"{_NAME}(?:\.{_NAME})*"
_TRANSFORM = re.compile(
    rf"(?P<identity>{_COLUMN})"
    rf"|(?P<time>year|month|day|hour)\(\s*(?P<moment>{_COLUMN})\s*\)"
    rf"|(?P<sized>bucket|truncate)\(\s*(?P<size>[1-9]\d{{0,8}})\s*,\s*(?P<column>{_COLUMN})\s*\)"
)
#: Iceberg's catalog has 255 characters for a name, and a table that is rebuilt has a longer one
_LONGEST = 200
_REBUILT = "__next"
_FORMS = "a column, or year, month, day, hour(column), bucket(n, column) or truncate(n, column)"


@dataclass(frozen=True)
class PartitionField:
    """One field of a table's partitions: a column, and how its value becomes a partition's."""

    column: str
    #: as Iceberg writes it: `identity`, `day`, `bucket[16]`
    transform: str = "identity"

    @property
    def name(self) -> str:
        """The name of the field in the table, such as `sold_at_day`."""
        kind = re.sub(r"\[.*", "", self.transform)
        plain = self.column.replace(".", "_")
        return plain if kind == "identity" else f"{plain}_{kind}"


@dataclass(frozen=True)
class SortField:
    """One column of a table's sort order."""

    column: str
    descending: bool = False


@dataclass(frozen=True)
class LakeTable:
    """An Iceberg table that a processor writes."""

    #: namespace and name, such as `shop.invoice_line`
    name: str
    partition_by: tuple[PartitionField, ...] = ()
    sort_by: tuple[SortField, ...] = ()
    #: the columns that identify a row, for `upsert`
    key: tuple[str, ...] = ()
    mode: str = APPEND

    @property
    def next_name(self) -> str:
        """The name of the table that replaces it when it is rebuilt."""
        return f"{self.name}{_REBUILT}"


def lake_table(
    name: str,
    *,
    partition_by: str | Sequence[str] = (),
    sort_by: str | Sequence[str] = (),
    key: str | Sequence[str] | None = None,
    mode: str | None = None,
) -> LakeTable:
    """Return the declaration of a table, or raise what is wrong with it."""
    check_table_name(name)
    keys = _listed("key", key if key is not None else ())
    for one in keys:
        if not re.fullmatch(_NAME, one):
            raise ValidationError("key", one, "the name of a column at the top of the table")
    fields = tuple(_partition_field(one) for one in _listed("partition_by", partition_by))
    if len({one.name for one in fields}) < len(fields):
        expected = "at most one of a kind for each column"
        raise ValidationError("partition_by", partition_by, expected)
    chosen = mode if mode is not None else (UPSERT if keys else APPEND)
    if chosen not in (APPEND, UPSERT, OVERWRITE):
        raise ValidationError("mode", mode, "'append', 'upsert' or 'overwrite'")
    if (chosen == UPSERT) != bool(keys):
        expected = "the columns that identify a row" if chosen == UPSERT else "left out"
        raise ValidationError("key", key, f"{expected}, for mode {chosen!r}")
    order = tuple(_sort_field(one) for one in _listed("sort_by", sort_by))
    if len({one.column for one in order}) < len(order):
        raise ValidationError("sort_by", sort_by, "each column once")
    return LakeTable(name, fields, order, keys, chosen)


def check_table_name(name: object) -> None:
    """Refuse what cannot be the name of a table in the catalog."""
    expected = f"a namespace and a name, such as shop.invoice_line, of up to {_LONGEST} characters"
    if not isinstance(name, str) or not re.fullmatch(rf"{_NAME}(\.{_NAME})+", name):
        raise ValidationError("table", name, expected)
    if len(name) > _LONGEST:
        raise ValidationError("table", name, expected)
    if name.endswith(_REBUILT):
        expected = f"one that does not end in {_REBUILT}, as the table does that is being rebuilt"
        raise ValidationError("table", name, expected)


def _listed(argument: str, given: object) -> tuple[str, ...]:
    found = (given,) if isinstance(given, str) else given
    if not isinstance(found, Sequence) or not all(isinstance(one, str) for one in found):
        raise ValidationError(argument, given, "text, or a list of texts")
    if len(set(found)) < len(found):
        raise ValidationError(argument, given, "different ones, each once")
    return tuple(found)


def _partition_field(text: str) -> PartitionField:
    found = _TRANSFORM.fullmatch(text.strip())
    if not found:
        raise ValidationError("partition_by", text, _FORMS)
    if found["identity"]:
        return PartitionField(found["identity"])
    if found["time"]:
        return PartitionField(found["moment"], found["time"])
    return PartitionField(found["column"], f"{found['sized']}[{int(found['size'])}]")


def _sort_field(text: str) -> SortField:
    found = re.fullmatch(rf"({_NAME})(?:\s+(asc|desc))?", text.strip(), re.IGNORECASE)
    if not found:
        raise ValidationError("sort_by", text, "a column at the top of the table, or 'column desc'")
    return SortField(found[1], (found[2] or "").lower() == "desc")
