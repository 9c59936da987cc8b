"""Steps of a pipeline, committed as a runner commits them, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import msgspec

from penstock import AsyncStore
from penstock.message import new_id

OPEN = "select penstock.open_processor(%s, %s, %s)"
PLACE = "select penstock.place_tailers(%s, %s, %s::jsonb)"
STAGE = """
    insert into penstock.staged (token, ordinal, id, stream_name, category, type, data, metadata)
    values (%s, %s, %s, %s, message_store.category(%s::varchar), %s, %s::jsonb, %s::jsonb)"""
COMMIT = (
    "select penstock.commit_step(%s, %s, %s::jsonb, array[%s]::uuid[], array[%s]::bigint[], %s)"
)


async def begin_step(
    store: AsyncStore,
    processor: str,
    ranges: Mapping[str, tuple[int, int]],
    delivery: str,
    *,
    kind: str = "stream",
) -> dict[str, Any]:
    """Open a processor of the pipeline `shop`, and record a Snapshot."""
    snapshot = {
        "processor": processor,
        "generation": 0,
        "ranges": {queue: list(one) for queue, one in ranges.items()},
        "tables": {},
        "hash": delivery,
    }
    starts = {queue: low for queue, (low, _) in ranges.items()}
    async with store.transaction() as transaction:
        execute = transaction.connection.execute
        await execute(OPEN, ("shop", processor, kind))
        await execute(PLACE, ("shop", processor, _json(starts)))
        await transaction.write_message(f"shop:try-{processor}", "Snapshot", snapshot)
    return snapshot


async def commit_step(
    store: AsyncStore,
    snapshot: Mapping[str, Any],
    *outputs: tuple[str, str, Mapping[str, Any], Mapping[str, Any]],
) -> None:
    """Publish outputs (stream, type, data, metadata), and move the tailers."""
    token = uuid4()
    async with store.transaction() as transaction:
        execute = transaction.connection.execute
        await execute("insert into penstock.stagings (token) values (%s)", (token,))
        for ordinal, (stream, type, data, metadata) in enumerate(outputs):
            await execute(
                STAGE,
                (token, ordinal, new_id(), stream, stream, type, _json(data), _json(metadata)),
            )
        report = _json({"messages_in": 1})
        arguments = ("shop", snapshot["processor"], _json(snapshot), token, len(outputs), report)
        await execute(COMMIT, arguments)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
