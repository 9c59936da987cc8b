"""Calling a processor's function: the frames it is given, and the frames it gave back."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock.errors import WrongColumns, shown
from penstock.pipeline.checks import OFFERED, parameter
from penstock.pipeline.delivery import Delivery
from penstock.pipeline.frames import Slice, latest_per_stream
from penstock.pipeline.graph import Latest, Processor, table_name


def call(
    one: Processor,
    spark: SparkSession,
    inputs: Mapping[str, Slice],
    tables: Mapping[str, Slice],
    delivery: Delivery,
) -> Any:
    """Call the function with what it takes, by the names of its parameters."""
    frames = {parameter(table_name(table)): _table(spark, table, tables) for table in one.tables}
    wanted = inspect.signature(one.function).parameters
    if one.alts:
        name = next(n for n in wanted if n not in frames and n not in OFFERED)
        (part,) = inputs.values()
        frames[name] = part.frame(spark)
    else:
        frames |= {parameter(queue): part.frame(spark) for queue, part in inputs.items()}
    offered = {"delivery": delivery, "spark": spark}
    return one.function(**frames, **{name: offered[name] for name in OFFERED if name in wanted})


def frames_of(one: Processor, returned: Any) -> dict[str, DataFrame]:
    """Return the frames that a function returned, by queue, or say what is wrong with them."""
    if returned is None or (one.kind == "sink" and not isinstance(returned, DataFrame)):
        return {}
    if isinstance(returned, DataFrame):
        returned = {one.outputs[0]: returned} if len(one.outputs) == 1 else {"": returned}
    if not isinstance(returned, Mapping) or not set(returned) <= set(one.outputs):
        raise WrongColumns(f"{one.name} returned {shown(returned)}", _expected(one))
    for queue, frame in returned.items():
        if frame is not None and not isinstance(frame, DataFrame):
            problem = f"{one.name} returned {shown(frame)} for {queue}"
            raise WrongColumns(problem, "it must return a DataFrame")
    return {queue: frame for queue, frame in returned.items() if frame is not None}


def _expected(one: Processor) -> str:
    if not one.outputs:
        return "it has no output, so it must return None"
    if len(one.outputs) == 1:
        return "it must return a DataFrame"
    return f"it must return DataFrames by queue: {', '.join(one.outputs)}"


def _table(spark: SparkSession, table: str | Latest, tables: Mapping[str, Slice]) -> DataFrame:
    frame = tables[table_name(table)].frame(spark)
    return latest_per_stream(frame) if isinstance(table, Latest) else frame
