"""How many messages the worst readers are behind: each is counted, up to a limit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.console.data import consumers, groups, pipelines, topics
from penstock.console.data.overview import ReaderLag
from penstock.console.data.pages import Count
from penstock.errors import ConsoleError, GroupNotFound, ReaderNotFound
from penstock.queues.operations import queue_of
from penstock.store_async import AsyncStore

#: readers whose messages are counted: each costs the database a few look-ups and a count
MOST = 10


async def backlogs(store: AsyncStore, lags: Iterable[ReaderLag]) -> Mapping[str, Count]:
    """Return how many messages readers are behind, by kind and name; only of the worst ones."""
    found: dict[str, Count] = {}
    for one in sorted(lags, key=lambda one: -one.seconds)[:MOST]:
        try:
            found[f"{one.kind} {one.name}"] = await _backlog(store, one)
        except (ConsoleError, GroupNotFound, ReaderNotFound):
            continue  # removed meanwhile
    return found


async def _backlog(store: AsyncStore, one: ReaderLag) -> Count:
    names = one.subject
    match one.kind:
        case "consumer":
            return (await consumers.consumer(store, names["category"], names["consumer_id"])).behind
        case "session":
            queue, consumer_id = queue_of(names["stream_name"]), names["consumer_id"]
            return (await consumers.queue_consumer(store, queue, consumer_id)).behind
        case "group":
            return (await groups.group(store, names["group_id"])).pending
        case "processor":
            listed = await pipelines.processors(store, names["pipeline"])
            return next(p.lag for p in listed if p.processor == names["processor"])
        case _:
            return (await topics.topics(store)).ready
