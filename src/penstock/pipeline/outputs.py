"""What a function returned, staged: messages for each output, and rows that are errors.

A row that still has its input's `global_position` follows from that input: it gets an id of its
own, its input's id as its cause, and the correlation is carried on. If such a row also has an
`error`, its input goes to the errors queue instead: once, with the first of its errors,
however many of its rows have one. An error that belongs to no message of the step is refused.

Rows are staged where it costs least. A result that Spark knows to be small, from its plan, comes to
the driver and is staged from here. Of any other, each task stages its own rows, except a few: those
come here, too, which spares a connection. So what the driver holds does not grow with the result.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any
from uuid import UUID, uuid4

import msgspec
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
from pyspark.sql import DataFrame
from pyspark.sql.types import IntegralType, StructType

from penstock.database.server_errors import typed_errors
from penstock.errors import WrongColumns, WrongValue
from penstock.message import names
from penstock.pipeline.frames import Slice
from penstock.spark.connections import DatabaseRef, connect
from penstock.spark.json_columns import json_texts
from penstock.spark.write.rows import RowsToStage, in_category, rows_to_stage
from penstock.spark.write.staging import Staged, stage

_INPUT = ("position", "global_position", "time")
#: rows, and bytes of them, that a task hands over instead of staging them
FEW, FEW_BYTES = 1_000, 1024 * 1024
_PARTS = "token string, count long, errors boolean, rows binary"
Connection = psycopg.Connection[Any]


@dataclass(frozen=True)
class StagedErrors(Staged):
    """What was staged for the errors queue."""


@dataclass(frozen=True)
class ErrorsQueue:
    """Where messages of a step go that cannot be processed, and which messages those can be."""

    queue: str
    input: str
    after: int
    until: int
    types: tuple[str, ...] = ()

    @classmethod
    def of(cls, queue: str, input: str, part: Slice) -> ErrorsQueue:
        """Return the errors queue of a step that takes this part of its input."""
        return cls(queue, input, part.after, part.until, part.target.types)

    def stage(self, connection: Connection, failed: Mapping[int | None, str]) -> StagedErrors:
        """Stage messages, by their global positions, with what is wrong; refuse other messages."""
        token = uuid4()
        row = connection.execute(
            "select penstock.stage_errors(%s, %s, %s::bigint[], %s::text[], %s, %s, %s, %s)",
            (
                token, self.queue, list(failed), [one[:2000] for one in failed.values()],
                self.input, self.after, self.until, list(self.types),
            ),
        ).fetchone()  # fmt: skip
        assert row is not None
        return StagedErrors(token, row[0])


@dataclass(frozen=True)
class Output:
    """How the rows of a frame become messages of a queue."""

    queue: str
    outgoing: RowsToStage
    follows: bool
    errors: ErrorsQueue | None
    #: categories of the step's inputs: a row that follows from one may still have its stream
    inputs: tuple[str, ...] = ()

    def stage(
        self, connection: Connection, batches: Iterable[pa.RecordBatch], where: str
    ) -> list[Staged]:
        """Stage the rows, and the errors among them."""
        failed: dict[int | None, str] = {}
        good = (self._messages(batch, failed) for batch in batches)
        staged = [stage(connection, self.outgoing, good, where)]
        if failed and self.errors:
            with typed_errors(where):
                staged.append(self.errors.stage(connection, failed))
        return staged

    def _messages(self, batch: pa.RecordBatch, failed: dict[int | None, str]) -> pa.RecordBatch:
        """Return the rows that are messages, as the staging takes them; put errors aside."""
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
        """Return the streams that rows name; none for those that have their input's still."""
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
    """Return how frames of this schema become messages of a queue, or what is wrong with it."""
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
    kept = [
        one for one in schema.fields if one.name not in ("error", "correlation_id", "causation_id")
    ]
    if follows:
        kept = [one for one in kept if one.name != "id"]
    columns = rows_to_stage(StructType(kept), category=names.category(queue))
    columns = replace(columns, names=tuple(one for one in columns.names if one not in _INPUT))
    return Output(queue, columns, follows, errors, tuple(names.category(one) for one in inputs))


def stage_frame(
    place: DatabaseRef, frame: DataFrame, made: Output, driver_rows: int, *, is_small: bool
) -> list[Staged]:
    """Evaluate a frame and stage it: from here if it is small, else from the executors."""
    if is_small:
        batches = frame.toArrow().to_batches()
        with connect(place) as connection:
            return made.stage(connection, batches, place.where)
    few = min(FEW, driver_rows)
    parts = frame.mapInArrow(_Stager(place, made, few), _PARTS).collect()
    staged: list[Staged] = []
    lent: Connection | None = None
    with ExitStack() as here:
        for one in parts:  # in the order of the frame's partitions
            if one["rows"] is None:
                kind = StagedErrors if one["errors"] else Staged
                staged.append(kind(UUID(one["token"]), one["count"]))
                continue
            lent = lent or here.enter_context(connect(place))
            with pa.ipc.open_stream(one["rows"]) as rows:
                staged += made.stage(lent, rows, place.where)
    return staged


def is_known_to_be_small(frame: DataFrame, driver_rows: int) -> bool:
    """Whether Spark can tell from the plan that a frame has no more rows than that."""
    most = frame._jdf.queryExecution().optimizedPlan().maxRows()
    return bool(most.isDefined()) and int(str(most.get())) <= driver_rows


def without_repeated_errors(connection: Connection, staged: Sequence[Staged]) -> list[Staged]:
    """Leave one error for each message, where several outputs or tasks have staged one."""
    tokens = [one.token for one in staged if isinstance(one, StagedErrors)]
    if len(tokens) < 2:
        return list(staged)
    dropped = dict(
        connection.execute("select * from penstock.drop_repeated_errors(%s)", (tokens,)).fetchall()
    )
    return [replace(one, count=one.count - dropped.get(one.token, 0)) for one in staged]


class _Stager:
    """Stages what one task makes, or hands it over if it is little. Each attempt has own tokens."""

    def __init__(self, place: DatabaseRef, made: Output, few: int) -> None:
        self.place = place
        self.made = made
        self.few = few

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begun, rows, size = [], 0, 0
        for batch in batches:
            begun.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows > self.few or size > FEW_BYTES:
                break
        else:
            if rows:
                yield _part_of_rows(begun)
            return
        with connect(self.place) as connection:
            staged = self.made.stage(connection, chain(begun, batches), self.place.where)
        for one in staged:
            yield _part(str(one.token), one.count, isinstance(one, StagedErrors), None)


def _part_of_rows(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    text = io.BytesIO()
    with pa.ipc.new_stream(text, batches[0].schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return _part(None, None, None, text.getvalue())


def _part(
    token: str | None, count: int | None, errors: bool | None, rows: bytes | None
) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "token": pa.array([token], pa.string()),
            "count": pa.array([count], pa.int64()),
            "errors": pa.array([errors], pa.bool_()),
            "rows": pa.array([rows], pa.binary()),
        }
    )


def _following(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Turn an input's id into the cause, and carry its correlation on."""
    made = dict(columns)
    ids = made.pop("id").to_pylist()
    metadata = made.get("metadata")
    texts = _texts(metadata, len(ids))
    followed = [_follow(one, text) for one, text in zip(ids, texts, strict=True)]
    made["metadata"] = pa.array(followed, pa.string())
    return made


def _texts(metadata: Any, count: int) -> list[str | None]:
    if metadata is None or pa.types.is_null(metadata.type):
        return [None] * count
    if pa.types.is_string(metadata.type) or pa.types.is_large_string(metadata.type):
        return list(metadata.to_pylist())
    return list(json_texts(metadata, "metadata").to_pylist())


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
