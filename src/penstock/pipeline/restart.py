"""Starting from scratch: the positions at which a pipeline's processors begin again.

Sources do not run again: their messages are in the log, and stay. What a stream published stays in
the log too. So a queue that streams of this pipeline publish anew begins, for its readers in this
pipeline, where it ends now. A table that a sink upserts into is emptied, since values would
otherwise be added to it twice.

A queue that others write to as well has no such position: their messages would be skipped with the
rest. Such a pipeline is refused before anything changes.

An open request to start from scratch (`admin/restarts.py`) is answered in the same transaction.
"""

from __future__ import annotations

from psycopg import sql

from penstock.admin import restarts
from penstock.errors import GraphError
from penstock.lake.catalog_rows import drop_table
from penstock.pipeline import state
from penstock.pipeline.connection import RunConnection
from penstock.pipeline.frames import message_from_elsewhere, queue_target
from penstock.pipeline.graph import Pipeline, Processor
from penstock.pipeline.tables import next_table, table_exists, table_identifier
from penstock.spark.read import planning

#: kinds of processors that do not begin again
_GO_ON = ("source", "archive")


def restart(connection: RunConnection, pipeline: Pipeline) -> None:
    """Let every processor begin again that reads the log."""
    processors = [one for one in pipeline.processors.values() if one.kind not in _GO_ON]
    republished = {queue for one in processors for queue in one.publishes}
    with connection.transaction():
        for one in pipeline.processors.values():
            _refuse_shared_queues(connection, pipeline, one, republished)
        for one in processors:
            _restart_processor(connection, pipeline, one, republished)
        # last, since readers do not pass a message before its transaction has ended
        connection.run(restarts.answer(pipeline.name, restarts.RESTARTED))


def _restart_processor(
    connection: RunConnection, pipeline: Pipeline, one: Processor, republished: set[str]
) -> None:
    connection.run(state.open_processor(pipeline.name, one.name, one.kind))
    starts = {
        queue: connection.run(planning.head(queue_target(queue, (), connection.lake_options)))
        for queue in (*one.reads, *one.looks_up)
        if queue in republished
    }
    restarted = state.restart_processor(pipeline.name, one.name, starts, rebuild=one.rebuilds)
    connection.run(restarted)
    for table in connection.run(state.upserted_tables(pipeline.name, one.name)):
        if connection.run(table_exists(table)):
            connection.raw.execute(sql.SQL("delete from {}").format(table_identifier(table)))
    if one.keeps is not None:
        unfinished = table_identifier(next_table(one.keeps.table))
        connection.raw.execute(sql.SQL("drop table if exists {}").format(unfinished))
    if one.lake is not None:
        drop_table(connection.raw, one.lake.next_name)


def _refuse_shared_queues(
    connection: RunConnection, pipeline: Pipeline, one: Processor, republished: set[str]
) -> None:
    """Raise if a queue that is published anew has messages that nobody would publish again."""
    for queue in republished.intersection((*one.reads, *one.looks_up)):
        target = queue_target(queue, (), connection.lake_options)
        head = connection.run(planning.head(target))
        found = connection.run(message_from_elsewhere(target, head, pipeline.name))
        if found is not None:
            raise GraphError(
                f"{one.name} cannot begin again: {queue} has messages of this pipeline, which will "
                f"be published anew, and others, such as that at {found}, which would be skipped "
                "with them; let the streams publish to a category of their own",
                one.location,
            )
