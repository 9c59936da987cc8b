"""Starting from scratch: which positions a pipeline's processors go back to.

Sources are not run again: what they brought is in the log, and stays. What a stream published stays
too, since a log forgets nothing; so a queue that streams of this pipeline make anew begins, for
those who read it here, where it ends now. A table that a sink's steps upsert into is emptied, or
what is added to it would be there twice.

A queue that somebody else writes to as well has no such place: what came from there would be passed
over with the rest. So it is refused, before anything is touched.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from penstock.errors import GraphError
from penstock.pipeline.frames import queue_target
from penstock.pipeline.graph import Pipeline
from penstock.pipeline.projection import next_table
from penstock.pipeline.state import open_processor
from penstock.pipeline.upsert import table_exists, table_identifier
from penstock.spark.connections import run
from penstock.spark.read import planning

# Messages of a queue that no stream, sink or projection of the pipeline has made.
_FROM_ELSEWHERE = """
select m.global_position {rows} and (
  m.metadata ->> 'pipeline' is distinct from {pipeline}
  or m.metadata ->> 'processor' in (
    select p.processor from penstock.processors p
    where p.pipeline = {pipeline} and p.kind = 'source'))
limit 1
"""


def restart(connection: psycopg.Connection[Any], pipeline: Pipeline) -> None:
    """Let every processor but the sources begin again."""
    made = {
        queue
        for one in pipeline.processors.values()
        if one.kind != "source"
        for queue in one.publishes
    }
    with connection.transaction():
        _refuse_shared_queues(connection, pipeline, made)
        for one in pipeline.processors.values():
            if one.kind == "source":
                continue
            open_processor(connection, pipeline.name, one.name, one.kind)
            floors = {
                queue: run(connection, planning.head(queue_target(queue)))
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


def _refuse_shared_queues(
    connection: psycopg.Connection[Any], pipeline: Pipeline, made: set[str]
) -> None:
    """Raise if a queue that is made anew has messages that nobody would make again."""
    for one in pipeline.processors.values():
        for queue in made.intersection((*one.reads, *one.looks_up)):
            target = queue_target(queue)
            rows = target.rows(target.before_first, run(connection, planning.head(target)))
            query = sql.SQL(_FROM_ELSEWHERE).format(rows=rows, pipeline=pipeline.name)
            if found := connection.execute(query).fetchone():
                raise GraphError(
                    f"{one.name} cannot begin again: queue {queue} has messages of this pipeline, "
                    f"which will be made anew, and others, such as that at {found[0]}, which would "
                    "be lost with them; let the streams publish to a queue of their own",
                    one.location,
                )


def _empty_tables(connection: psycopg.Connection[Any], pipeline: str, processor: str) -> None:
    rows = connection.execute(
        "select unnest(tables) from penstock.processors where pipeline = %s and processor = %s",
        (pipeline, processor),
    ).fetchall()
    for (table,) in rows:
        if table_exists(connection, table):
            connection.execute(sql.SQL("delete from {}").format(table_identifier(table)))
