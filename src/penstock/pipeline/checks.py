"""Checks of a pipeline: mistakes are found before anything runs, and reported by file and line."""

from __future__ import annotations

import inspect
import keyword
import re
from typing import TYPE_CHECKING

from pyspark.sql.types import StructField, StructType

from penstock.errors import GraphError, PenstockError, PipelineError, first_line
from penstock.message import names
from penstock.pipeline.graph import Pipeline, Processor, TableColumns, check_queue
from penstock.pipeline.tables import columns_of, next_table, parse_schema, table_identifier
from penstock.settings import Settings
from penstock.spark.read.columns import MESSAGE, read_plan

if TYPE_CHECKING:  # needs the extra `lake`
    from penstock.lake.store_catalog import StoreCatalog

#: the parameters that a function may have besides its frames
OFFERED = ("delivery", "spark")
#: PostgreSQL truncates longer names, and a table being rebuilt would have the live one's name
LONGEST_TABLE = 63 - len(next_table(""))
#: columns that a projection's table has besides those that are declared
OWN_COLUMNS = ("stream_name", "position", "removed")


def check(pipeline: Pipeline) -> None:
    """Raise for the first thing that is wrong with a pipeline."""
    if not pipeline.processors:
        raise GraphError("it has no processors", f"pipeline {pipeline.name}")
    written = {queue for one in pipeline.processors.values() for queue in one.publishes}
    known = written | set(pipeline.schemas)
    for one in pipeline.processors.values():
        _check_shape(pipeline.name, one)
        for queue in (*one.reads, *one.looks_up, *one.publishes):
            check_queue(queue, one.location)
        for queue in (*one.reads, *one.looks_up):
            if queue not in known:
                raise GraphError(
                    f"{one.name} reads {queue}, which no processor writes and pipe.schema() does "
                    f"not declare; there are {', '.join(sorted(known)) or 'none'}",
                    one.location,
                )
        _check_parameters(one)
    _check_lake_tables(pipeline)
    _check_fed(pipeline)


def check_schemas(pipeline: Pipeline) -> None:
    """Raise for the first schema, of messages or a table, that Spark cannot read. Needs Spark."""
    for queue, declared in pipeline.schemas.items():
        try:
            read_plan(frame_schema(pipeline, queue))
        except PipelineError as error:
            raise GraphError(f"{queue}: {error}", declared.location) from None
        except Exception as error:
            problem = f"{queue} has a schema that Spark cannot read: {first_line(error)}"
            raise GraphError(problem, declared.location) from None
    for one in pipeline.processors.values():
        if one.keeps is not None:
            _check_table(one, one.keeps)


def check_lake(settings: Settings) -> StoreCatalog:
    """Return the catalog of a pipeline's tables, or raise if there is no warehouse to be used."""
    from penstock.lake.create import check_warehouse
    from penstock.lake.store_catalog import open_catalog  # needs the extra `lake`

    catalog = open_catalog(settings)
    check_warehouse(catalog)
    return catalog


def parameter(queue: str) -> str:
    """Return the name of the parameter for a queue's frame: `order-error` is `order_error`.

    A Python keyword, and a name of `OFFERED`, gets a `_` at its end; a digit gets one before it.
    """
    name = re.sub(r"\W", "_", queue)
    if name[:1].isdigit():
        return f"_{name}"
    return f"{name}_" if keyword.iskeyword(name) or name in OFFERED else name


def _check_shape(pipeline: str, one: Processor) -> None:
    problem, records = None, f"{pipeline}:try-"
    queues = (*one.reads, *one.looks_up)
    if one.inputs and one.alts:
        problem = "has inputs and alts: it can have one or the other"
    elif one.kind not in ("source", "archive") and not one.reads:
        problem = "reads nothing: give inputs or alts"
    elif one.kind == "source" and not one.outputs:
        problem = "has no output"
    elif one.errors and len(one.inputs) > 1:
        problem = "has an errors queue and several inputs: a step of one input only can be split"
    elif one.errors and one.errors in one.outputs:
        problem = f"has {one.errors} both as an output and as its errors queue"
    elif one.kind == "projection" and not names.is_category(one.inputs[0]):
        problem = f"projects {one.inputs[0]}, which is a stream: a projection takes a category"
    elif "$all" in one.reads:
        problem = "reads $all, where its own steps are recorded: it would never end"
    elif unread := set(one.types) - set(one.reads):
        problem = f"has types for {', '.join(sorted(unread))}, which it does not read"
    elif len(set(queues)) < len(queues):
        problem = "names a category or stream twice among its inputs and tables"
    elif recorded := [q for q in (*one.reads, *one.publishes) if f"{q}-".startswith(records)]:
        problem = f"has {recorded[0]}, where its pipeline's own steps are recorded"
    if problem:
        raise GraphError(f"{one.name} {problem}", one.location)


def _check_parameters(one: Processor) -> None:
    """Refuse a function whose parameters are not its frames, by the names of their queues."""
    found = [
        p.name
        for p in inspect.signature(one.function).parameters.values()
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.default is p.empty
    ]
    frames = [name for name in found if name not in OFFERED]
    tables = [parameter(queue) for queue in one.looks_up]
    if one.kind == "projection":
        wanted, fits = ["state", "message"], len(found) == 2
    elif one.alts:
        wanted = ["messages", *tables]
        fits = len(set(frames) - set(tables)) == 1 and set(tables) <= set(frames)
    else:
        rows = ["rows"] if one.from_table is not None else []
        wanted = [*(parameter(queue) for queue in one.inputs), *tables, *rows]
        fits = sorted(frames) == sorted(wanted)
    if not fits:
        problem = f"{one.name}({', '.join(found)}) must take ({', '.join(wanted)})"
        raise GraphError(problem, one.location)


def _check_lake_tables(pipeline: Pipeline) -> None:
    """Refuse two processors that write to one Iceberg table: each would build it anew."""
    writers: dict[str, str] = {}
    for one in pipeline.processors.values():
        if one.lake is None:
            continue
        if other := writers.get(one.lake.name.lower()):
            problem = f"{one.name} writes to the Iceberg table {one.lake.name}, as {other} does"
            raise GraphError(problem, one.location)
        writers[one.lake.name.lower()] = one.name


def _check_fed(pipeline: Pipeline) -> None:
    """Refuse a cycle of processors that only feed each other."""
    fed, waiting = set(pipeline.schemas), dict(pipeline.processors)
    begin = ("source", "archive")
    while ready := [one for one in waiting.values() if one.kind in begin or one.can_read(fed)]:
        for one in ready:
            fed.update(one.publishes)
            del waiting[one.name]
    if waiting:
        problem = f"nothing feeds {', '.join(waiting)}: they wait for each other"
        raise GraphError(problem, next(iter(waiting.values())).location)


def _check_table(one: Processor, keeps: TableColumns) -> None:
    """Refuse a projection's table that cannot be created."""
    try:
        columns = parse_schema(keeps.columns)
    except Exception as error:
        problem = f"{one.name} has columns that Spark cannot read: {first_line(error)}"
        raise GraphError(problem, one.location) from None
    for name in OWN_COLUMNS:
        if name in columns.fieldNames():
            problem = f"{one.name} has a column {name}, which every projection's table has"
            raise GraphError(problem, one.location)
    if len(keeps.table.split(".")[-1].encode()) > LONGEST_TABLE:
        problem = f"{one.name} has a table whose name is longer than {LONGEST_TABLE} bytes"
        raise GraphError(f"{problem}: {keeps.table}", one.location)
    try:
        table_identifier(keeps.table)
        columns_of(columns)
    except PenstockError as error:
        raise GraphError(str(error), one.location) from None


def frame_schema(pipeline: Pipeline, queue: str) -> StructType:
    """Return the schema of a queue's frames: a message's, with the fields that were declared."""
    declared = pipeline.schemas.get(queue)
    texts = {"data": declared.data, "metadata": declared.metadata} if declared else {}
    return StructType(
        [
            StructField(one.name, parse_schema(text)) if (text := texts.get(one.name)) else one
            for one in MESSAGE.fields
        ]
    )
