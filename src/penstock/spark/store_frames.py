"""The messages of a store as Spark frames.

`Frames(store, spark)` uses the format `penstock` with the address of the store. `read` and
`read_stream` return frames, `write` and `write_stream` write them, named after Spark's own.

PostgreSQL and Arrow fill the frames, and no message passes through the Python of the store. So a
store's serializer, and interceptors that change messages, cannot be applied. A store that has such
is refused, because a frame would silently differ from what the store reads and writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.database.interceptor import overrides
from penstock.errors import UnsupportedBySpark, ValidationError
from penstock.log.context import LogContext
from penstock.message.serializer import JsonSerializer
from penstock.settings import Settings
from penstock.spark.history import Schema, load_frame
from penstock.spark.options import read_options, replica_options, write_options
from penstock.spark.session import activate
from penstock.store import Store
from penstock.store_async import AsyncStore


class ReadArguments(TypedDict, total=False):
    """The options of a read; see the table in the guide."""

    types: Sequence[str]
    after: int | Literal["latest"]
    until: int
    columns: Sequence[str]
    partitions: int
    on_wrong_type: Literal["error", "null"]
    max_rows_per_batch: int
    fail_on_data_loss: bool
    on_restore: int


class WriteArguments(TypedDict, total=False):
    """The options of a write; see the table in the guide."""

    delivery: str
    order_by: str
    atomic: bool
    rows_per_transaction: int


class Frames:
    """Reads and writes the messages of a store as Spark frames."""

    def __init__(self, store: Store | AsyncStore, spark: SparkSession) -> None:
        if not isinstance(store, Store | AsyncStore):
            raise ValidationError("store", store, "a Store or an AsyncStore")
        self._store = store
        self._spark = spark

    @property
    def read(self) -> FrameReader:
        """Reads batches, as `spark.read` does."""
        return self._reader(streaming=False)

    @property
    def read_stream(self) -> FrameReader:
        """Reads streams, as `spark.readStream` does."""
        return self._reader(streaming=True)

    def write(self, frame: DataFrame, **options: Unpack[WriteArguments]) -> None:
        """Write a frame of messages: all of it or nothing, unless it is a large delivery."""
        chosen = self._write_options(frame, options, streaming=False)
        frame.write.format("penstock").mode("append").options(**chosen).save()

    def write_stream(self, frame: DataFrame, **options: Unpack[WriteArguments]) -> DataStreamWriter:
        """Return the writer of a streaming frame: give it a checkpoint, and start it."""
        chosen = self._write_options(frame, options, streaming=True)
        return frame.writeStream.format("penstock").options(**chosen)

    def _reader(self, *, streaming: bool) -> FrameReader:
        refuse_custom_messages(self._store.context, "on_read")
        return FrameReader(self._spark, self._store.settings, streaming=streaming)

    def _write_options(
        self, frame: DataFrame, options: Mapping[str, Any], *, streaming: bool
    ) -> dict[str, str]:
        refuse_custom_messages(self._store.context, "on_write")
        chosen = {"url": self._store.settings.conninfo(), **_options(options)}
        write_options(chosen, streaming=streaming)  # raises here, and not inside Spark
        activate(frame.sparkSession)
        return chosen


class FrameReader:
    """Returns frames of messages. Made by `Frames.read` and `Frames.read_stream`.

    `schema` names the columns to read, and the fields of `data` and `metadata`; without it a frame
    has all columns, and these two are JSON text.
    """

    def __init__(self, spark: SparkSession, settings: Settings, *, streaming: bool) -> None:
        self._spark = spark
        self._given = _options({"lake_options": dict(settings.lake_options) or None})
        self._given |= {"url": settings.conninfo(), **replica_options(settings)}
        self._streaming = streaming

    def category(
        self, category: str, schema: Schema = None, **options: Unpack[ReadArguments]
    ) -> DataFrame:
        """Return the messages of a category; `$all` is the whole log."""
        return self._load("category", category, schema, options)

    def stream(
        self, stream_name: str, schema: Schema = None, **options: Unpack[ReadArguments]
    ) -> DataFrame:
        """Return the messages of one stream."""
        return self._load("stream", stream_name, schema, options)

    def attributes(
        self,
        attributes: Mapping[str, object],
        schema: Schema = None,
        **options: Unpack[ReadArguments],
    ) -> DataFrame:
        """Return the messages that carry these values; a list of values is alternatives."""
        return self._load("attributes", attributes, schema, options)

    def _load(self, name: str, target: object, schema: Schema, options: ReadArguments) -> DataFrame:
        chosen = {**self._given, **_options({name: target, **options})}
        if not self._streaming:
            return load_frame(self._spark, chosen, schema)
        read_options(chosen)  # raises here, and not inside Spark
        activate(self._spark)
        loading = self._spark.readStream.format("penstock").options(**chosen)
        return (loading if schema is None else loading.schema(schema)).load()


def refuse_custom_messages(context: LogContext, hook: str) -> None:
    """Raise if a store has a serializer of its own, or an interceptor with that hook."""
    serializer = type(context.serializer)
    if serializer is not JsonSerializer:
        raise UnsupportedBySpark(f"serializer {serializer.__name__}")
    for interceptor in context.interceptors:
        if overrides(interceptor, hook):
            raise UnsupportedBySpark(f"interceptor {type(interceptor).__name__}.{hook}")


def _options(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return Spark's options: `max_rows_per_batch=5` is `maxrowsperbatch`, in any case, `5`."""
    options = {}
    for name, value in arguments.items():
        if value is not None:
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            options[name.replace("_", "")] = text
    return options
