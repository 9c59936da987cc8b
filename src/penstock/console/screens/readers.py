"""Readers: consumers, queues and their consumers, groups and their partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.console.data import consumers as consumer_data
from penstock.console.data import groups as group_data
from penstock.console.data import partitions as partition_data
from penstock.console.screen import Ask, Screen

_PAGED = {"after": "the `next` of the page before", "limit": "rows of a page, at most 200"}
STATES = ("pending", "ready", "claimed", "delayed", "parked")


async def consumers(ask: Ask) -> Mapping[str, Any]:
    """Return the consumers of categories."""
    return {"consumers": await consumer_data.consumers(ask.store, ask.text("after"), ask.limit())}


async def consumer(ask: Ask) -> Mapping[str, Any]:
    """Return one consumer."""
    category, consumer_id = ask.need("category"), ask.need("consumer_id")
    return {"consumer": await consumer_data.consumer(ask.store, category, consumer_id)}


async def queues(ask: Ask) -> Mapping[str, Any]:
    """Return the consumers of queues, and the one that was chosen."""
    queue, consumer_id = ask.text("queue"), ask.text("consumer_id")
    found = await consumer_data.queue_consumers(ask.store, ask.text("after"), ask.limit())
    chosen = None
    if queue is not None and consumer_id is not None:
        chosen = await consumer_data.queue_consumer(ask.store, queue, consumer_id)
    return {"consumers": found, "chosen": chosen}


async def groups(ask: Ask) -> Mapping[str, Any]:
    """Return the groups."""
    return {"groups": await group_data.groups(ask.store, ask.text("after"), ask.limit())}


async def group(ask: Ask) -> Mapping[str, Any]:
    """Return one group and some of its partitions."""
    group_id, state, key = ask.need("group_id"), ask.text("state"), ask.text("partition_key")
    found = await group_data.group(ask.store, group_id)
    if key is not None:
        for one in found.partition_by:
            ask.plain.check_visible(one)
        page: Any = {
            "items": [await partition_data.partition(ask.store, group_id, key)],
            "next": None,
        }
    else:
        page = await partition_data.partitions(
            ask.store, group_id, state, ask.text("after"), ask.limit()
        )
    return {"group": found, "state": state, "asked_for": key, "partitions": page, "states": STATES}


SCREENS = (
    Screen(
        *("/consumers", "consumers", "Consumers", "consumers.html", consumers),
        "The consumers that have stored a position: lag, parked messages, last error.",
        _PAGED,
    ),
    Screen(
        *("/consumers/consumer", "consumers", "Consumer", "consumer.html", consumer),
        "One consumer.",
        {"category": "its category", "consumer_id": "its id"},
    ),
    Screen(
        *("/queues", "queues", "Queues", "queues.html", queues),
        "The consumers of queues: offset, lag.",
        {"queue": "with `consumer_id`: also this one, to seek", "consumer_id": "its id", **_PAGED},
    ),
    Screen(
        *("/groups", "groups", "Groups", "groups.html", groups),
        "The partitioned consumer groups: partitions, claims, parked partitions.",
        _PAGED,
    ),
    Screen(
        *("/groups/group", "groups", "Group", "group.html", group),
        "One group and its partitions: claimed by whom, parked with which error.",
        {
            "group_id": "the group",
            "state": f"one of {', '.join(STATES)}",
            "partition_key": "one partition by its key",
            **_PAGED,
        },
    ),
)
