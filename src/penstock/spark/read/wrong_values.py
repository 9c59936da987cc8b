"""Which value of which message does not read as its type: looked for once a read has failed."""

from __future__ import annotations

from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql

from penstock.errors import WrongValue
from penstock.spark.read.read_plan import Plan, Typed

#: what a read raises that may have met such a value
UNFIT = (psycopg.DataError, psycopg.IntegrityError, pa.ArrowException, WrongValue)


def find_wrong(
    connection: psycopg.Connection[Any], rows: sql.Composed, plan: Plan, error: Exception
) -> WrongValue | None:
    """Return which value does not read as its type, if that is what went wrong."""
    for one in () if plan.null_if_wrong else plan.typed:
        query = sql.SQL("select m.global_position, {} {} and {} limit 1").format(
            one.text, rows, _wrong(one, error)
        )
        if found := connection.execute(query).fetchone():
            return WrongValue(one.name, found[1], one.expected, found[0])
    return None


def _wrong(one: Typed, error: Exception) -> sql.Composable:
    """Return the condition for the message that has the wrong value."""
    if one.wrong is not None:
        return one.wrong
    if isinstance(error, WrongValue) and error.field == one.name:
        return sql.SQL("{} = {}").format(one.text, error.value)
    return sql.SQL("false")
