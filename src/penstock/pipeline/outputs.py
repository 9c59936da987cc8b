"""What a function returned, staged: messages for each output, and rows that are errors.

A row that still has its input's `global_position` follows from that input: it gets an id of its
own, its input's id as its cause, and the correlation is carried on. If such a row also has an
`error`, its input goes to the errors queue instead: once, with the first of its errors,
however many of its rows have one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid4

import msgspec
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from penstock import names
from penstock.errors import WrongColumns, WrongValue
from penstock.pipeline.connections import Place, connect
from penstock.pipeline.json_texts import json_texts
from penstock.pipeline.outgoing import Outgoing, outgoing
from penstock.pipeline.staging import Staged, stage

_INPUT = ("position", "global_position", "time")
Connection = psycopg.Connection[Any]


@dataclass(frozen=True)
class StagedErrors(Staged):
    """What was staged for the errors queue."""


@dataclass(frozen=True)
class Output:
    """How the rows of a frame become messages of a queue."""

    queue: str
    outgoing: Outgoing
    follows: bool
    errors: str | None

    def stage(
        self, connection: Connection, batches: Iterable[pa.RecordBatch], where: str
    ) -> list[Staged]:
        """Stage the rows, and the errors among them."""
        failed: dict[int, str] = {}
        good = (self._messages(batch, failed) for batch in batches)
        staged = [stage(connection, self.outgoing, good, where)]
        if failed and self.errors:
            staged.append(stage_errors(connection, self.errors, list(failed.items())))
        return staged

    def _messages(self, batch: pa.RecordBatch, failed: dict[int, str]) -> pa.RecordBatch:
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
            columns = _following(columns, names.category(self.queue))
        if not names.is_category(self.queue):
            columns["stream_name"] = pa.array([self.queue] * batch.num_rows, pa.string())
        for name in (*_INPUT, "error", "causation_id", "correlation_id"):
            columns.pop(name, None)
        return pa.RecordBatch.from_pydict(columns)


def output(queue: str, schema: StructType, errors: str | None) -> Output:
    """Return how frames of this schema become messages of a queue, or what is wrong with it."""
    found = {one.name for one in schema.fields}
    follows = "global_position" in found and "id" in found
    if "error" in found and (errors is None or "global_position" not in found):
        raise WrongColumns(
            "a column error needs an errors queue, and its input's global_position",
            "keep global_position in the frame, and give errors= to the processor",
        )
    kept = [
        one for one in schema.fields if one.name not in ("error", "correlation_id", "causation_id")
    ]
    if follows:
        kept = [one for one in kept if one.name != "id"]
    columns = outgoing(StructType(kept), category=names.category(queue))
    columns = replace(columns, names=tuple(one for one in columns.names if one not in _INPUT))
    return Output(queue, columns, follows, errors)


def stage_frame(place: Place, frame: DataFrame, made: Output, *, on_driver: bool) -> list[Staged]:
    """Evaluate a frame and stage it: from here if it is small, else from the executors."""
    if on_driver:
        batches = frame.toArrow().to_batches()
        with connect(place) as connection:
            return made.stage(connection, batches, place.where)
    parts = frame.mapInArrow(_Stager(place, made), "token string, count long, errors boolean")
    return [
        (StagedErrors if one["errors"] else Staged)(UUID(one["token"]), one["count"])
        for one in parts.collect()
    ]


def stage_errors(
    connection: Connection, queue: str, failed: Sequence[tuple[int, str]]
) -> StagedErrors:
    """Stage messages for an errors queue, by their global positions, with what is wrong."""
    token = uuid4()
    positions, errors = zip(*failed, strict=True)
    row = connection.execute(
        "select penstock.stage_errors(%s, %s, %s::bigint[], %s::text[])",
        (token, queue, list(positions), [one[:2000] for one in errors]),
    ).fetchone()
    assert row is not None
    return StagedErrors(token, row[0])


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
    """Stages what one task makes. Each attempt has tokens of its own."""

    def __init__(self, place: Place, made: Output) -> None:
        self.place = place
        self.made = made

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with connect(self.place) as connection:
            staged = self.made.stage(connection, batches, self.place.where)
        yield pa.RecordBatch.from_pydict(
            {
                "token": pa.array([str(one.token) for one in staged], pa.string()),
                "count": pa.array([one.count for one in staged], pa.int64()),
                "errors": pa.array([isinstance(one, StagedErrors) for one in staged], pa.bool_()),
            }
        )


def _following(columns: Mapping[str, Any], category: str) -> dict[str, Any]:
    """Turn an input's id into the cause, and carry its correlation on."""
    made = dict(columns)
    ids = made.pop("id").to_pylist()
    metadata = made.get("metadata")
    texts = _texts(metadata, len(ids))
    followed = [_follow(one, text) for one, text in zip(ids, texts, strict=True)]
    made["metadata"] = pa.array(followed, pa.string())
    if "stream_name" in made:  # an input's own stream is none of the output's
        here = pc.starts_with(made["stream_name"], f"{category}-")
        made["stream_name"] = pc.if_else(here, made["stream_name"], None)
    return made


def _texts(metadata: Any, count: int) -> list[str | None]:
    if metadata is None or pa.types.is_null(metadata.type):
        return [None] * count
    if pa.types.is_string(metadata.type) or pa.types.is_large_string(metadata.type):
        return list(metadata.to_pylist())
    return list(json_texts(metadata).to_pylist())


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
