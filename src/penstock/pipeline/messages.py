"""Frames of messages: what sources and streams return."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructType

from penstock.errors import ValidationError

#: a frame that has both follows from the messages of an input
FOLLOWS = ("id", "global_position")


def messages(
    frame: DataFrame,
    *,
    type: str | Column,
    data: Sequence[str | Column] | Column,
    stream: str | Column | None = None,
    error: Column | None = None,
) -> DataFrame:
    """Return a frame of messages, one for each row of a frame.

    If the frame still has the `id` and `global_position` of an input's messages, the new messages
    follow from those: each carries the input's id as `causation_id`, and its `correlation_id` on.

    Args:
        frame: the rows.
        type: the type of the messages, or a column with the type of each.
        data: the columns that `data` consists of, by name or as expressions with an alias; or one
            column, a struct or JSON text.
        stream: the stream to write to, or a column with the stream of each; without it, each
            message gets a stream of its own.
        error: a column that says what is wrong with a row, null for a good one. What is wrong goes
            to the processor's errors queue.
    """
    if isinstance(data, str) or not (isinstance(data, Column) or data):
        raise ValidationError("data", data, "a list of columns, or one Column")
    return frame.select(
        *_origin(frame),
        *_named("error", error),
        *_named("stream_name", stream),
        *_named("type", type),
        (data if isinstance(data, Column) else f.struct(*data)).alias("data"),
    )


def _named(name: str, value: str | Column | None) -> Iterator[Column]:
    if value is not None:
        yield (f.lit(value) if isinstance(value, str) else value).alias(name)


def _origin(frame: DataFrame) -> Iterator[Column]:
    """Return the columns by which new messages follow from those of an input."""
    if not set(FOLLOWS) <= set(frame.columns):
        return
    yield from (f.col(name) for name in FOLLOWS)
    if "metadata" in frame.columns:
        kind = frame.schema["metadata"].dataType
        if isinstance(kind, StringType):
            correlation = f.get_json_object("metadata", "$.correlation_id")
            yield f.to_json(f.struct(correlation.alias("correlation_id"))).alias("metadata")
        elif isinstance(kind, StructType) and "correlation_id" in kind.fieldNames():
            yield f.struct("metadata.correlation_id").alias("metadata")
