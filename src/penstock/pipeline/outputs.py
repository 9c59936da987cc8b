"""Staging what a function returned: the messages of each output, and the rows with errors.

A row that still has the `id` and `global_position` of its input follows from it: the row gets an
id of its own, its input's id as `causation_id`, and its input's `correlation_id`. If a row has its
input's `global_position` and an `error`, its input goes to the errors queue instead: once, with the
first of its errors, however many of its rows have one. An error that belongs to no message of the
step is refused.

Rows are staged where it costs least. If Spark's plan says that a result is small, the driver
collects and stages it. Otherwise each task stages its own rows, unless they are few: those go to
the driver too, which saves a connection. So the driver's memory does not grow with the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
from pyspark.sql import DataFrame
from pyspark.sql.types import IntegralType, StructType

from penstock.database.operation import Operation, call, only_value
from penstock.errors import InvalidErrorRow, WrongColumns, WrongValue
from penstock.message import names
from penstock.pipeline.connection import RunConnection, bare_connection
from penstock.pipeline.frames import queue_target
from penstock.spark.connections import DatabaseRef
from penstock.spark.json_columns import json_texts
from penstock.spark.read.archive_rows import archived_messages, find_archive
from penstock.spark.write.rows import RowsToStage, in_category, rows_to_stage
from penstock.spark.write.staging import Staged, stage

_INPUT = ("position", "global_position", "time")
_JSON = ("data", "metadata")
#: the columns of an archived message that goes to an errors queue
_ARCHIVED = ["id", "stream_name", "type", "position", "global_position", *_JSON]
#: up to so many rows and bytes, a task returns its rows instead of staging them
FEW, FEW_BYTES = 1_000, 1024 * 1024
#: what a task returns: what it has staged, or its rows
_PARTS = "token string, count long, errors boolean, rows binary"
_PART = pa.schema(
    {"token": pa.string(), "count": pa.int64(), "errors": pa.bool_(), "rows": pa.binary()}
)


@dataclass(frozen=True)
class StagedErrors(Staged):
    """Staged for the errors queue."""


@dataclass(frozen=True)
class ErrorsQueue:
    """Where failed messages of a step go, and the range that they must be in."""

    queue: str
    input: str
    after: int
    until: int
    types: tuple[str, ...] = ()

    def stage(self, connection: RunConnection, failed: Mapping[int | None, str]) -> StagedErrors:
        """Stage failed messages, by global position, with their errors; refuse any others."""
        archived: list[dict[str, Any]] = []
        while True:
            staging = self._stage_errors(failed, archived)
            try:
                return connection.run(staging)
            except InvalidErrorRow:
                found = self._archived(connection, failed)
                if len(found) <= len(archived):
                    raise
                archived = found

    def _stage_errors(
        self, failed: Mapping[int | None, str], archived: Sequence[Mapping[str, Any]]
    ) -> Operation[StagedErrors]:
        token, errors = uuid4(), [one[:2000] for one in failed.values()]
        limits = (self.input, self.after, self.until, list(self.types))
        rows = msgspec.json.encode(archived).decode()
        return call(
            "stage_errors",
            "select penstock.stage_errors("
            "%s, %s, %s::bigint[], %s::text[], %s, %s, %s, %s, %s::jsonb)",
            (token, self.queue, list(failed), errors, *limits, rows),
            lambda rows: StagedErrors(token, only_value(rows)),
        )

    def _archived(
        self, connection: RunConnection, failed: Mapping[int | None, str]
    ) -> list[dict[str, Any]]:
        """Return those of the failed messages that are in the archive."""
        target = queue_target(self.input, self.types, connection.lake_options)
        location = connection.run(find_archive(target, self.after, self.until))
        if location is None:
            return []
        wanted, found = pa.array(list(failed), pa.int64()), []
        for batch in archived_messages(target, self.after, self.until, location, _ARCHIVED):
            matching = pc.is_in(batch.column("global_position"), wanted)
            found += batch.filter(matching).select(_ARCHIVED).to_pylist()
        for one in found:
            one |= {name: msgspec.Raw((one[name] or "null").encode()) for name in _JSON}
        return found


@dataclass(frozen=True)
class Output:
    """How the rows of a frame become messages of a queue."""

    queue: str
    rows_to_stage: RowsToStage
    follows: bool
    errors: ErrorsQueue | None
    #: categories of the step's inputs: a row that follows from one may still name its stream
    inputs: tuple[str, ...] = ()

    def stage(self, connection: RunConnection, batches: Iterable[pa.RecordBatch]) -> list[Staged]:
        """Stage the rows, and the errors among them."""
        failed: dict[int | None, str] = {}
        good = (self._messages(batch, failed) for batch in batches)
        staged = [stage(connection.raw, self.rows_to_stage, good, connection.where)]
        if failed and self.errors:
            staged.append(self.errors.stage(connection, failed))
        return staged

    def _messages(self, batch: pa.RecordBatch, failed: dict[int | None, str]) -> pa.RecordBatch:
        """Return the rows that are messages, ready to be staged; add the others to `failed`."""
        if "error" in batch.schema.names:
            wrong = pc.is_valid(batch.column("error"))
            rows = batch.filter(wrong)
            positions = rows.column("global_position").to_pylist()
            for position, error in zip(positions, rows.column("error").to_pylist(), strict=True):
                failed.setdefault(position, str(error))
            batch = batch.filter(pc.invert(wrong))
        columns = {name: batch.column(name) for name in batch.schema.names}
        if self.follows:
            columns = _following(columns)
        if "stream_name" in columns:
            columns["stream_name"] = self._streams(columns["stream_name"].cast(pa.string()))
        if not names.is_category(self.queue):
            columns["stream_name"] = pa.array([self.queue] * batch.num_rows, pa.string())
        for name in (*_INPUT, "error", "causation_id", "correlation_id"):
            columns.pop(name, None)
        return pa.RecordBatch.from_pydict(columns)

    def _streams(self, streams: Any) -> Any:
        """Return the streams that rows name; null for those that still have their input's."""
        category = names.category(self.queue)
        if names.is_category(self.queue):
            fits, expected = in_category(streams, category), f"a stream of category {category}"
        else:
            fits, expected = pc.equal(streams, self.queue), f"the stream {self.queue}"
        if self.follows:
            for one in self.inputs:
                own = pc.and_(in_category(streams, one), pc.invert(fits))
                streams = pc.if_else(own, None, streams)
                fits = pc.if_else(own, None, fits)
        found = pc.index(fits, False).as_py()
        if found >= 0:
            expected = f"{expected}, where the output goes"
            raise WrongValue("stream_name", streams[found].as_py(), expected, None)
        return streams


def output(
    queue: str,
    schema: StructType,
    errors: ErrorsQueue | None = None,
    inputs: Iterable[str] = (),
) -> Output:
    """Return how frames of this schema become messages of a queue, or raise what is wrong."""
    found = {one.name: one.dataType for one in schema.fields}
    follows = "global_position" in found and "id" in found
    if "error" in found and (errors is None or "global_position" not in found):
        raise WrongColumns(
            "a column error needs an errors queue, and its input's global_position",
            "keep global_position in the frame, and give errors= to the processor",
        )
    if "error" in found and not isinstance(found["global_position"], IntegralType):
        raise WrongColumns(
            f"column global_position is {found['global_position'].simpleString()}",
            "beside a column error it has to be that of the input, a whole number",
        )
    dropped = ("error", "correlation_id", "causation_id", *(["id"] if follows else []))
    kept = [one for one in schema.fields if one.name not in dropped]
    columns = rows_to_stage(StructType(kept), category=names.category(queue))
    columns = replace(columns, names=tuple(one for one in columns.names if one not in _INPUT))
    return Output(queue, columns, follows, errors, tuple(names.category(one) for one in inputs))


def stage_frame(
    database: DatabaseRef, frame: DataFrame, into: Output, driver_rows: int, *, is_small: bool
) -> list[Staged]:
    """Evaluate a frame and stage it: from the driver if it is small, else from the executors."""
    if is_small:
        batches = frame.toArrow().to_batches()
        with bare_connection(database) as connection:
            return into.stage(connection, batches)
    few = min(FEW, driver_rows)
    parts = frame.mapInArrow(_Stager(database, into, few), _PARTS).collect()
    staged: list[Staged] = []
    own: RunConnection | None = None
    with ExitStack() as stack:
        for one in parts:  # in the order of the frame's partitions
            if one["rows"] is None:
                kind = StagedErrors if one["errors"] else Staged
                staged.append(kind(UUID(one["token"]), one["count"]))
                continue
            own = own or stack.enter_context(bare_connection(database))
            with pa.ipc.open_stream(one["rows"]) as rows:
                staged += into.stage(own, rows)
    return staged


def is_known_to_be_small(frame: DataFrame, driver_rows: int) -> bool:
    """Whether Spark's plan says that a frame has no more rows than this."""
    most = frame._jdf.queryExecution().optimizedPlan().maxRows()
    return bool(most.isDefined()) and int(str(most.get())) <= driver_rows


def without_repeated_errors(connection: RunConnection, staged: Sequence[Staged]) -> list[Staged]:
    """Leave one error for each message, where several outputs or tasks have staged one."""
    tokens = [one.token for one in staged if isinstance(one, StagedErrors)]
    if len(tokens) < 2:
        return list(staged)
    sql = "select * from penstock.drop_repeated_errors(%s)"
    rows = connection.run(call("drop_repeated_errors", sql, (tokens,), list))
    dropped = {token: int(count) for token, count in rows}
    return [replace(one, count=one.count - dropped.get(one.token, 0)) for one in staged]


@dataclass(frozen=True)
class _Stager:
    """Stages the rows of one task, or returns them if they are few. Each attempt has own tokens."""

    database: DatabaseRef
    into: Output
    few: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first, rows, size = [], 0, 0
        for batch in batches:
            first.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows > self.few or size > FEW_BYTES:
                break
        else:
            if rows:
                yield pa.RecordBatch.from_pylist([{"rows": _serialized(first)}], _PART)
            return
        with bare_connection(self.database) as connection:
            staged = self.into.stage(connection, chain(first, batches))
        for one in staged:
            part = {"token": str(one.token), "count": one.count}
            part["errors"] = isinstance(one, StagedErrors)
            yield pa.RecordBatch.from_pylist([part], _PART)


def _serialized(batches: Sequence[pa.RecordBatch]) -> bytes:
    text = pa.BufferOutputStream()
    with pa.ipc.new_stream(text, batches[0].schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return bytes(text.getvalue())


def _following(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Replace an input's id by a causation id, and carry its correlation id on."""
    without_id = dict(columns)
    ids, metadata = without_id.pop("id").to_pylist(), without_id.get("metadata")
    if metadata is None or pa.types.is_null(metadata.type):
        metadata = pa.nulls(len(ids))
    elif not (pa.types.is_string(metadata.type) or pa.types.is_large_string(metadata.type)):
        metadata = json_texts(metadata, "metadata")
    followed = [_follow(*one) for one in zip(ids, metadata.to_pylist(), strict=True)]
    return {**without_id, "metadata": pa.array(followed, pa.string())}


def _follow(id: str | None, text: str | None) -> str | None:
    if id is None:
        return text
    if text is None:
        return f'{{"correlation_id":"{id}","causation_id":"{id}"}}'
    facts = msgspec.json.decode(text)
    if not isinstance(facts, dict):
        raise WrongValue("metadata", text, "a JSON object", None)
    carried = {"correlation_id": facts.get("correlation_id") or id, "causation_id": id}
    return msgspec.json.encode({**facts, **carried}).decode()
