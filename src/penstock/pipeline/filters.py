"""Spark's filters as SQL, as far as they mean the same in both: on plain columns, by value."""

from __future__ import annotations

from datetime import UTC, datetime

from psycopg import sql
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

_TEXT = {"type", "stream_name", "id"}
_NUMBERS = {"position", "global_position"}
_COMPARED = {
    EqualTo: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}


def as_sql(one: Filter) -> str | None:
    """Return the condition that a filter is, or None if Spark has to apply it."""
    path: tuple[str, ...] = getattr(one, "attribute", ())
    if len(path) != 1:
        return None
    name = path[0]
    if isinstance(one, IsNotNull):
        return "true" if name in _TEXT | _NUMBERS | {"time"} else None
    if isinstance(one, In):
        values = [found for value in one.value if (found := _literal(name, value)) is not None]
        listed = sql.SQL("({})").format(sql.SQL(", ").join(values))
        return _text(name, "in", listed) if len(values) == len(one.value) else None
    if isinstance(one, StringStartsWith) and name in ("type", "stream_name"):
        return _starts_with(name, one.value)
    if operator := _COMPARED.get(type(one)):
        if name in _TEXT and operator != "=":
            return None  # the database may sort texts in another order
        value = _literal(name, one.value)  # type: ignore[attr-defined]
        return None if value is None else _text(name, operator, value)
    return None


def _starts_with(name: str, value: object) -> str | None:
    prefix = _literal(name, value)
    if prefix is None:
        return None
    return sql.SQL("starts_with({}, {})").format(_column(name), prefix).as_string()


def _text(name: str, operator: str, value: sql.Composable) -> str:
    parts = sql.SQL("{} {} {}").format(_column(name), sql.SQL(operator), value)
    return parts.as_string()


def _column(name: str) -> sql.Composable:
    column = sql.SQL("m.") + sql.Identifier(name)
    return column + sql.SQL("::text") if name == "id" else column


def _literal(name: str, value: object) -> sql.Composable | None:
    if name in _TEXT and isinstance(value, str) and "\0" not in value:
        return sql.Literal(value)
    if name in _NUMBERS and isinstance(value, int) and not isinstance(value, bool):
        return sql.Literal(value)
    if name == "time" and isinstance(value, datetime):
        instant = value.replace(tzinfo=None) if value.tzinfo is None else value.astimezone(UTC)
        return sql.Literal(instant.replace(tzinfo=None))
    return None
