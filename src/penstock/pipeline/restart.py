"""Starting from scratch: which positions a pipeline's processors go back to.

Sources are not run again: what they brought is in the log, and stays. What a stream published stays
too, since a log forgets nothing; so a queue that streams of this pipeline make anew begins, for
those who read it here, where it ends now. A table that a sink's steps upsert into is emptied, or
what is added to it would be there twice.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from penstock.pipeline import planning
from penstock.pipeline.frames import queue_target
from penstock.pipeline.graph import Pipeline
from penstock.pipeline.projection import next_table
from penstock.pipeline.state import open_processor
from penstock.pipeline.upsert import table_exists, table_identifier


def restart(connection: psycopg.Connection[Any], pipeline: Pipeline) -> None:
    """Let every processor but the sources begin again."""
    made = {
        queue
        for one in pipeline.processors.values()
        if one.kind != "source"
        for queue in one.publishes
    }
    with connection.transaction():
        for one in pipeline.processors.values():
            if one.kind == "source":
                continue
            open_processor(connection, pipeline.name, one.name, one.kind)
            floors = {
                queue: planning.head(connection, queue_target(queue))
                for queue in (*one.reads, *one.looks_up)
                if queue in made
            }
            connection.execute(
                "select penstock.restart_processor(%s, %s, %s, %s)",
                (pipeline.name, one.name, Jsonb(floors), one.keeps is not None),
            )
            _empty_tables(connection, pipeline.name, one.name)
            if one.keeps is not None:
                begun = table_identifier(next_table(one.keeps.table))
                connection.execute(sql.SQL("drop table if exists {}").format(begun))


def _empty_tables(connection: psycopg.Connection[Any], pipeline: str, processor: str) -> None:
    rows = connection.execute(
        "select unnest(tables) from penstock.processors where pipeline = %s and processor = %s",
        (pipeline, processor),
    ).fetchall()
    for (table,) in rows:
        if table_exists(connection, table):
            connection.execute(sql.SQL("delete from {}").format(table_identifier(table)))
