"""Read what still waits in a parked stream, and write its entries.

The stream is read from its end, page by page, and no further than needed: it keeps the entries of
all messages that were ever parked.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from penstock.consumers.parked import ParkedMessage, Waiting, parked_stream
from penstock.errors import ParkedMessageNotFound, WrongExpectedVersion
from penstock.log import read, write
from penstock.log.runs_async import AsyncRuns
from penstock.message import Message, RecordedMessage


@dataclass(frozen=True, slots=True)
class WaitingMessages:
    """Messages that are still parked, in the order of parking."""

    messages: tuple[ParkedMessage, ...]
    #: False: others that were parked before may still wait
    complete: bool


async def read_parked(
    runs: AsyncRuns, stream_name: str, most: int | None = None, look_at: int | None = None
) -> WaitingMessages:
    """Return the last messages that are still parked: at most `most`, of the last entries."""
    waiting, looked_at = Waiting(), 0
    async for page in _from_the_end(runs, stream_name):
        for entry in page:
            if len(waiting.messages) == most or looked_at == look_at:
                return _found(waiting, complete=False)
            waiting.add(entry)
            looked_at += 1
    return _found(waiting, complete=True)


def _found(waiting: Waiting, complete: bool) -> WaitingMessages:
    return WaitingMessages(tuple(reversed(waiting.messages.values())), complete)


async def find_parked(
    runs: AsyncRuns, stream_name: str, global_position: int
) -> tuple[ParkedMessage | None, int]:
    """Return a message if it is still parked, and the version of the stream that tells so."""
    waiting, version = Waiting(), -1
    async for page in _from_the_end(runs, stream_name):
        for entry in page:
            version = max(version, entry.position)
            waiting.add(entry)
            if waiting.decides(global_position):
                return waiting.messages.get(global_position), version
    return None, version


async def write_entries(
    runs: AsyncRuns,
    category: str,
    consumer_id: str,
    global_position: int,
    entries: Callable[[ParkedMessage], Sequence[Message]],
) -> bool:
    """Write entries about a message that is still parked; return whether there were any.

    They are written with the version that was read, so that of two people who act on a message the
    second one's entries are made from what the first did.
    """
    stream_name = parked_stream(category, consumer_id)
    while True:
        one, version = await find_parked(runs, stream_name, global_position)
        if one is None:
            raise ParkedMessageNotFound(category, consumer_id, global_position)
        if not (made := entries(one)):
            return False
        try:
            await runs.run(write.write_messages(runs.context, stream_name, made, version))
        except WrongExpectedVersion:
            continue  # the consumer, or somebody else, has written an entry: look again
        return True


async def _from_the_end(
    runs: AsyncRuns, stream_name: str
) -> AsyncIterator[Sequence[RecordedMessage]]:
    """Yield the entries of a stream from the last one back, in pages."""
    end = await runs.run(read.stream_version(runs.context, stream_name))
    size = runs.context.batch_size(None)
    while end is not None and end >= 0:
        start = max(0, end + 1 - size)
        page = await runs.run(read.get_stream_messages(runs.context, stream_name, start, size))
        found = [entry for entry in reversed(page) if entry.position <= end]
        if not found:
            return  # retention has removed the rest
        yield found
        end = start - 1
