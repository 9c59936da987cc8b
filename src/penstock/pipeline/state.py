"""The operations on a pipeline's state: the processors' rows, their backing streams, their steps.

The rules are in `52_pipelines.sql`. Each function here is pure: it returns the operation, and the
run's connection executes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, LiteralString, TypeVar

from psycopg.types.json import Jsonb

from penstock.database.operation import Operation, Row, call, only_value
from penstock.pipeline.snapshot import Snapshot, State
from penstock.spark.write.staging import Published, Staged, tokens_and_counts

Result = TypeVar("Result")


def backing_stream(pipeline: str, processor: str) -> str:
    """Return the stream of a processor's snapshots and attempts."""
    return f"{pipeline}:try-{processor}"


def open_processor(pipeline: str, processor: str, kind: str) -> Operation[State]:
    """Return the state of a processor, and create its row if it has none."""
    sql = "select * from penstock.open_processor(%s, %s, %s)"
    return _on_processor("open_processor", sql, _state, pipeline, processor, kind)


def place_tailers(pipeline: str, processor: str, tailers: Mapping[str, int]) -> Operation[None]:
    """Record where a processor begins to read, so that lag and retention count from there."""
    sql, positions = "select penstock.place_tailers(%s, %s, %s)", Jsonb(dict(tailers))
    return _on_processor("place_tailers", sql, _nothing, pipeline, processor, positions)


def write_snapshot(pipeline: str, snapshot: Snapshot) -> Operation[None]:
    """Record what a step reads."""
    sql = "select message_store.write_message(gen_random_uuid()::varchar, %s, 'Snapshot', %s)"
    stream = backing_stream(pipeline, snapshot.processor)
    facts: dict[str, Any] = {"pipeline": pipeline, "processor": snapshot.processor}
    return call("write_snapshot", sql, (stream, Jsonb(snapshot.as_data())), _nothing, **facts)


def commit_step(
    pipeline: str,
    snapshot: Snapshot,
    staged: Sequence[Staged],
    report: Mapping[str, Any],
    *,
    whole_categories: bool,
) -> Operation[Published]:
    """Publish what a step has staged, write its Attempt and move its tailers; or raise."""
    return _on_processor(
        "commit_step", "select * from penstock.commit_step(%s, %s, %s, %s, %s, %s, %s)",
        lambda rows: Published(*rows[0]), pipeline, snapshot.processor,
        Jsonb(snapshot.as_data()), *tokens_and_counts(staged), Jsonb(report), whole_categories,
    )  # fmt: skip


def publish_staged(staged: Sequence[Staged], *, whole_categories: bool) -> Operation[None]:
    """Publish what was staged, with no step: for an attempt that is rolled back."""
    arguments = (*tokens_and_counts(staged), whole_categories)
    sql = "select penstock.publish_staged(%s, %s, null, %s)"
    return call("publish_staged", sql, arguments, _nothing)


def write_seconds(pipeline: str, processor: str, seconds: float) -> Operation[None]:
    """Record how long a step took, at the end of its transaction."""
    sql = (
        "update penstock.processor_progress p set last_step_seconds = %s"
        " from penstock.latest_processor_progress(%s, %s) s"
        " where (p.pipeline, p.processor, p.version) = (s.pipeline, s.processor, s.version)"
        " returning true"
    )
    return call("write_seconds", sql, (round(seconds, 3), pipeline, processor), _nothing)


def fail_step(pipeline: str, snapshot: Snapshot, error: str) -> Operation[None]:
    """Record what stopped a processor."""
    sql, hash = "select penstock.fail_step(%s, %s, %s, %s)", snapshot.hash
    return _on_processor("fail_step", sql, _nothing, pipeline, snapshot.processor, hash, error)


def record_archived(pipeline: str, processor: str, moved: int, seconds: float) -> Operation[None]:
    """Record how many messages an archive has moved."""
    sql = "select penstock.record_archived(%s, %s, %s, %s)"
    took = round(seconds, 3)
    return _on_processor("record_archived", sql, _nothing, pipeline, processor, moved, took)


def record_error(pipeline: str, processor: str, error: str) -> Operation[None]:
    """Record what keeps a processor from its work, outside a step."""
    sql = "select penstock.fail_step(%s, %s, null, %s)"
    return _on_processor("record_error", sql, _nothing, pipeline, processor, error)


def messages_to_read(
    readers: Mapping[str, Mapping[str, int]], ends: Mapping[str, int]
) -> Operation[Mapping[str, set[str]]]:
    """Return the queues in which processors have messages to read, up to where the queues end.

    `readers` has for each processor its position in each queue that it reads.
    """
    asked = [
        (name, queue, position, ends.get(queue))
        for name, tailers in readers.items()
        for queue, position in tailers.items()
    ]
    columns = tuple([one[number] for one in asked] for number in range(4))
    sql = "select * from penstock.messages_to_read(%s::text[], %s::text[], %s::int8[], %s::int8[])"

    def decode(rows: list[Row]) -> Mapping[str, set[str]]:
        found: dict[str, set[str]] = {name: set() for name in readers}
        for name, queue in rows:
            found[name].add(queue)
        return found

    return call("messages_to_read", sql, columns, decode)


def folders(pipeline: str, processor: str) -> Operation[list[str]]:
    """Return the folders that steps of a processor have written files to."""
    sql = "select unnest(folders) from penstock.processors where pipeline = %s and processor = %s"
    return _on_processor("folders", sql, _column, pipeline, processor)


def upserted_tables(pipeline: str, processor: str) -> Operation[list[str]]:
    """Return the tables that steps of a processor have upserted into."""
    sql = "select unnest(tables) from penstock.processors where pipeline = %s and processor = %s"
    return _on_processor("upserted_tables", sql, _column, pipeline, processor)


def database_id() -> Operation[str]:
    """Return what tells this database from all others: its server's identifier and its own."""
    sql = (
        "select to_hex(c.system_identifier) || to_hex(d.oid::bigint)"
        " from pg_control_system() c, pg_database d where d.datname = current_database()"
    )
    return call("database_id", sql, (), only_value)


def end_rebuilding(pipeline: str, processor: str, generation: int) -> Operation[bool]:
    """Record that a table is rebuilt. Return False if that was recorded, or it has begun again."""
    sql = (
        "update penstock.processors set rebuilding = false"
        " where pipeline = %s and processor = %s and generation = %s and rebuilding"
        " returning true"
    )
    return _on_processor("end_rebuilding", sql, bool, pipeline, processor, generation)


def restart_processor(
    pipeline: str, processor: str, starts: Mapping[str, int], *, rebuild: bool
) -> Operation[None]:
    """Let a processor begin again, in a new generation, with queues from these positions."""
    sql, at = "select penstock.restart_processor(%s, %s, %s, %s)", Jsonb(dict(starts))
    return _on_processor("restart_processor", sql, _nothing, pipeline, processor, at, rebuild)


def _on_processor(
    name: str,
    sql: LiteralString,
    decode: Callable[[list[Row]], Result],
    pipeline: str,
    processor: str,
    *arguments: Any,
) -> Operation[Result]:
    """Return an operation whose first arguments are a pipeline and a processor."""
    facts: dict[str, Any] = {"pipeline": pipeline, "processor": processor}
    return call(name, sql, (pipeline, processor, *arguments), decode, **facts)


def _state(rows: list[Row]) -> State:
    *facts, records = rows[0]
    last = records[0] if records else {"type": None, "data": {}}
    pending = Snapshot.from_data(last["data"]) if last["type"] == "Snapshot" else None
    begun = _begun(records, generation=facts[0])
    return State(*(*facts, pending, begun, last["data"].get("files", ())))


def _begun(records: list[dict[str, Any]], generation: int) -> int | None:
    if len(records) == 1 and records[0]["type"] != "Snapshot":
        return int(records[0]["data"].get("number") or 0)  # retention left only the attempt
    for one in records:
        if one["type"] == "Snapshot" and one["data"]["generation"] == generation:
            number = one["data"].get("number")
            return None if number is None else int(number)
    return None


def _column(rows: list[Row]) -> list[Any]:
    return [row[0] for row in rows]


def _nothing(rows: list[Row]) -> None:
    """Decode the answer of a function that returns nothing."""
