"""Reading a few messages in the user's own process, through psycopg.

Tasks read with the ADBC driver. It is faster, but aborts its process if the server goes away at the
wrong moment (see `arrow`), and nothing restarts the user's application.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.database.operation import call, only_value
from penstock.spark.connections import Connection, run
from penstock.spark.read.archive_rows import archived_matches, find_archive
from penstock.spark.read.archived import read_archived
from penstock.spark.read.binary_rows import BATCH_ROWS, read_columns
from penstock.spark.read.plan import VALUE_ERRORS, ReadPlan, raise_wrong_value
from penstock.spark.read.splits import Split
from penstock.spark.target import Target


def read_table(
    connection: Connection,
    target: Target,
    plan: ReadPlan,
    split: Split,
    *,
    batch_rows: int = BATCH_ROWS,
) -> pa.Table:
    """Return a split of a target: what is in the database, and what was in the archive then."""
    rows = target.rows(split.after, split.until)
    positions: list[pa.Array] = []
    try:
        found = []
        query = plan.query(rows, target.axis)
        for *columns, axis in read_columns(connection, query, batch_rows=batch_rows):
            found.append(plan.batch(columns))
            positions.append(axis)
    except VALUE_ERRORS as error:
        raise_wrong_value(connection, rows, plan, error)
    found += _archived(connection, target, plan, split, positions)
    return pa.Table.from_batches(found, plan.schema)


def _archived(
    connection: Connection, target: Target, plan: ReadPlan, split: Split, read: list[pa.Array]
) -> Iterator[pa.RecordBatch]:
    """Yield the archived messages, but for those that were read before they were moved."""
    location = run(
        connection, find_archive(target, split.after, split.until)
    )  # after the rows: nothing is missed
    if location is not None:
        if target.attributes:
            query = archived_matches(target, split.after, split.until)
            found = run(connection, call("archived_matches", query, None, only_value))
            target = replace(target, archived=tuple(found))
        known = np.concatenate([one.to_numpy() for one in read] or [np.empty(0, np.int64)])
        yield from read_archived(lambda: connection, target, plan, split, location, known=known)
