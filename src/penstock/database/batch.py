"""Concurrent writes of one process, as one call of `penstock.write_batch`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from penstock.database.arrays import text_array, uuid_array
from penstock.database.operation import BatchGuard, BatchItem, Operation, Row, Statement

MOST_MESSAGES = 100  # of a batch; one call has at most half of them
MOST_CHARACTERS = 1_000_000
MOST_CONDITIONS = 100

_WRITE_BATCH = (
    "select * from penstock.write_batch(%s::int[], %s::uuid[], %s::text[], %s::text[], %s::text[],"
    " %s::varchar[], %s::bigint[], %s::bigint[], %s::int8multirange[],"
    " %s::int[], %s::text[], %s::text[], %s::text[])"
)


class Refused(msgspec.Struct, frozen=True):
    """A call of a batch that was not accepted: the code of its error and the facts, or what to do.

    `unbatched` means that it is to be sent by itself, `again` that it belongs into the next batch.
    """

    code: str
    facts: Mapping[str, Any] = {}


#: the positions of its messages in the stream and in the log, or why they were not written
Outcome = tuple[list[int], list[int]] | Refused


def batch_item(
    messages: Sequence[tuple[UUID, str, str, str | None]],
    stream_name: str | None,
    expected_version: int | None,
    guard: BatchGuard | None,
    decode: Callable[[list[int], list[int]], Any],
) -> BatchItem | None:
    """Return what a batch needs of a call; None if it is so large that others would wait."""
    size = sum([len(data) + len(metadata or "") for _, _, data, metadata in messages])
    conditions = 0 if guard is None else len(guard.names)
    if (
        len(messages) > MOST_MESSAGES // 2
        or size > MOST_CHARACTERS // 10
        or conditions > MOST_CONDITIONS
    ):
        return None
    return BatchItem(messages, stream_name, expected_version, guard, decode, size)


def write_batch(calls: Sequence[Operation[Any]]) -> Operation[list[Outcome]]:
    """Write the messages of all calls; the result is the outcome of each."""
    items = [call.item for call in calls if call.item is not None]
    numbers, messages, guarded = [], [], []
    types: list[str] = []
    names: list[str] = []
    values: list[str] = []
    for number, item in enumerate(items, start=1):
        for message in item.messages:
            numbers.append(number)
            messages.append(message)
        if (guard := item.guard) is not None:
            guarded.extend([number] * len(guard.names))
            types.extend(guard.types)
            names.extend(guard.names)
            values.extend(guard.values)
    ids, message_types, data, metadata = zip(*messages, strict=True)
    guards = [item.guard for item in items]
    arguments = (
        _numbers(numbers),
        uuid_array(ids),
        text_array(message_types),
        text_array(data),
        text_array(metadata),
        text_array([item.stream_name for item in items]),
        _numbers([item.expected_version for item in items]),
        _numbers([None if guard is None else guard.low for guard in guards]),
        text_array([None if guard is None else guard.seen for guard in guards]),
        _numbers(guarded),
        text_array(types),
        text_array(names),
        text_array(values),
    )

    def decode(rows: list[Row]) -> list[Outcome]:
        positions, global_positions, refused = rows[0]
        outcomes: list[Outcome] = []
        start = 0
        for number, item in enumerate(items):
            end = start + len(item.messages)
            if refused is not None and (facts := refused[number]) is not None:
                outcomes.append(Refused(facts.pop("code"), facts))
            else:
                outcomes.append((positions[start:end], global_positions[start:end]))
            start = end
        return outcomes

    notifies = frozenset[str]().union(*[call.notifies for call in calls])
    return Operation("write_batch", (Statement(_WRITE_BATCH, arguments),), decode, {}, notifies)


def _numbers(numbers: Sequence[int | None]) -> str:
    return "{" + ",".join(["NULL" if one is None else str(one) for one in numbers]) + "}"
