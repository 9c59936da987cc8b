"""A store with a warehouse, and archives of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg

import penstock
from penstock import Store
from penstock.log.archive import Archived, archive
from penstock.log.retention import Keep

NOW = Keep(age=timedelta(0))


@contextmanager
def store_with_warehouse(database_url: str, folder: Path, **options: Any) -> Iterator[Store]:
    with penstock.connect(database_url, warehouse=folder.as_uri(), **options) as store:
        yield store


def archived(store: Store, category: str, keep: Keep = NOW, batch_size: int = 1000) -> Archived:
    return archive(store.context, category, keep, batch_size=batch_size, max_load=1)


def in_table(store: Store) -> list[int]:
    """The global positions of the messages that are in PostgreSQL."""
    with psycopg.connect(store.settings.conninfo()) as connection:
        rows = connection.execute(
            "select global_position from message_store.messages order by 1"
        ).fetchall()
    return [position for (position,) in rows]
