"""What the database knows of a processor: where it stands, and what it was about to do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from penstock.pipeline.snapshot import Snapshot

Connection = psycopg.Connection[Any]


@dataclass(frozen=True)
class State:
    """Where a processor stands."""

    generation: int
    #: where queues that this pipeline makes anew begin, since it was started from scratch
    floors: Mapping[str, int]
    cursor: Any
    rebuilding: bool
    tailers: Mapping[str, int]
    #: the snapshot that was begun and not committed
    pending: Snapshot | None
    #: how many steps of a source were begun: it runs once unless it has a cursor
    begun: int | None
    #: where the files of the last step are and where they belong, if it wrote any
    files: Sequence[Mapping[str, str]] = ()


def open_processor(connection: Connection, pipeline: str, processor: str, kind: str) -> State:
    """Return where a processor stands, having made sure that the database knows it."""
    row = connection.execute(
        "select * from penstock.open_processor(%s, %s, %s)", (pipeline, processor, kind)
    ).fetchone()
    assert row is not None
    generation, floors, cursor, rebuilding, tailers, records = row
    return State(
        generation,
        floors,
        cursor,
        rebuilding,
        tailers,
        _pending(records),
        _begun(records, generation),
        records[0]["data"].get("files", ()) if records else (),
    )


def folders(connection: Connection, pipeline: str, processor: str) -> list[str]:
    """Return the folders that steps of a processor have written files to."""
    row = connection.execute(
        "select folders from penstock.processors where pipeline = %s and processor = %s",
        (pipeline, processor),
    ).fetchone()
    return list(row[0]) if row else []


def backing_stream(pipeline: str, processor: str) -> str:
    """Return the stream of a processor's snapshots and attempts."""
    return f"{pipeline}:try-{processor}"


def write_snapshot(connection: Connection, pipeline: str, snapshot: Snapshot) -> None:
    """Write down what a step is about to read."""
    connection.execute(
        "select message_store.write_message(gen_random_uuid()::varchar, %s, 'Snapshot', %s)",
        (backing_stream(pipeline, snapshot.processor), Jsonb(snapshot.as_data())),
    )


def place_tailers(
    connection: Connection, pipeline: str, processor: str, tailers: Mapping[str, int]
) -> None:
    """Take note of where a processor begins to read, so that others know what waits for it."""
    connection.execute(
        "select penstock.place_tailers(%s, %s, %s)", (pipeline, processor, Jsonb(dict(tailers)))
    )


def messages_to_read(
    connection: Connection, readers: Mapping[str, Mapping[str, int]], ends: Mapping[str, int]
) -> Mapping[str, set[str]]:
    """Return the queues in which processors have messages to read, up to where the queues end.

    `readers` has for each processor its position in each queue that it reads.
    """
    asked = [(name, *at) for name, tailers in readers.items() for at in tailers.items()]
    rows = connection.execute(
        "select * from penstock.messages_to_read("
        "%s::text[], %s::text[], %s::bigint[], %s::bigint[])",
        (
            [name for name, _, _ in asked],
            [queue for _, queue, _ in asked],
            [position for _, _, position in asked],
            [ends.get(queue) for _, queue, _ in asked],
        ),
    ).fetchall()
    found = defaultdict[str, set[str]](set)
    for processor, queue in rows:
        found[processor].add(queue)
    return found


def write_seconds(connection: Connection, pipeline: str, processor: str, seconds: float) -> None:
    """Write down how long a step took, at the end of its transaction."""
    connection.execute(
        "update penstock.processor_progress p set last_step_seconds = %s"
        " from penstock.latest_processor_progress(%s, %s) s"
        " where (p.pipeline, p.processor, p.version) = (s.pipeline, s.processor, s.version)",
        (round(seconds, 3), pipeline, processor),
    )


def fail_step(connection: Connection, pipeline: str, snapshot: Snapshot, error: str) -> None:
    """Remember what stopped a processor."""
    connection.execute(
        "select penstock.fail_step(%s, %s, %s, %s)",
        (pipeline, snapshot.processor, snapshot.hash, error),
    )


def end_rebuilding(connection: Connection, pipeline: str, processor: str, generation: int) -> bool:
    """Take note that a table is rebuilt. Return whether it was not known, nor begun again."""
    done = connection.execute(
        "update penstock.processors set rebuilding = false"
        " where pipeline = %s and processor = %s and generation = %s and rebuilding",
        (pipeline, processor, generation),
    )
    return done.rowcount == 1


def _pending(records: list[dict[str, Any]]) -> Snapshot | None:
    """Return the last snapshot unless an attempt with its hash stands behind it."""
    if records and records[0]["type"] == "Snapshot":
        return Snapshot.from_data(records[0]["data"])
    return None


def _begun(records: list[dict[str, Any]], generation: int) -> int | None:
    if len(records) == 1 and records[0]["type"] != "Snapshot":
        return int(records[0]["data"].get("number") or 0)  # retention left only the attempt
    for one in records:
        if one["type"] == "Snapshot" and one["data"]["generation"] == generation:
            number = one["data"].get("number")
            return None if number is None else int(number)
    return None
