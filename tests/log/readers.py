"""Readers for the stress test: each tails the log in a way of its own, by pages of any size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, LiteralString

import psycopg

import penstock
from penstock.store import Store

Stop = Callable[[], bool]


@dataclass(frozen=True)
class Reader:
    """One way to tail the log, and which of its messages that should show."""

    name: str
    #: yields global positions; asks before each look whether to stop
    read: Callable[[str, Random, Stop], Iterator[int]]
    category: str
    member: int = 0
    size: int = 1

    def expected(self, connection: psycopg.Connection[Any]) -> list[int]:
        """Return what there is for it to see, now that nobody writes any more."""
        return positions(
            connection.execute(
                "select global_position from message_store.messages"
                " where %s in ('$all', message_store.category(stream_name))"
                " and abs(message_store.hash_64(message_store.id(stream_name))) %% %s = %s"
                " order by global_position",
                (self.category, self.size, self.member),
            )
        )


def paging(category: str, **options: Any) -> Reader:
    """Read page after page, each from the position after the last."""

    def read(url: str, random: Random, stop: Stop) -> Iterator[int]:
        with _store(url, **options) as store:
            position = 1
            while not stop():
                for message in store.get_category_messages(category, position, _size(random)):
                    yield message.global_position
                    position = message.global_position + 1

    return Reader(f"paging {category}", read, category)


def paging_in_snapshots(category: str) -> Reader:
    """Read each page in a transaction that keeps its snapshot."""

    def read(url: str, random: Random, stop: Stop) -> Iterator[int]:
        with _store(url) as store:
            position = 1
            while not stop():
                isolation = random.choice(["repeatable read", "serializable"])
                with store.transaction(isolation, read_only=True) as tx:
                    page = tx.get_category_messages(category, position, _size(random))
                for message in page:
                    yield message.global_position
                    position = message.global_position + 1

    return Reader(f"paging {category} in snapshots", read, category)


def following(category: str, member: int, size: int, **options: Any) -> Reader:
    """Follow the category as a member of a group, which passes over what is not its own.

    The follower asks whether to stop while it sleeps, so it may stop without another look. What it
    has left is read afterwards, from the position after the last.
    """

    def read(url: str, random: Random, stop: Stop) -> Iterator[int]:
        own: dict[str, Any] = {"consumer_group_member": member, "consumer_group_size": size}
        position = 1
        with _store(url, **options) as store:
            for message in store.follow_category(
                category,
                batch_size=random.choice([7, 50, 1000]),
                polling_interval_ms=1,
                stop=stop,
                **own,
            ):
                yield message.global_position
                position = message.global_position + 1
            for message in store.read_category(category, position, **own):
                yield message.global_position

    return Reader(f"following {category} as {member} of {size}", read, category, member, size)


def bypassing(category: str) -> Reader:
    """Tail the table itself by global position, as one does who knows nothing of a watermark."""

    def read(url: str, random: Random, stop: Stop) -> Iterator[int]:
        with psycopg.connect(url, autocommit=True) as connection:
            position = 1
            while not stop():
                page = connection.execute(_UNBOUNDED, (position, category, _size(random)))
                for one in positions(page):
                    yield one
                    position = one + 1

    return Reader(f"bypassing {category}", read, category)


_UNBOUNDED: LiteralString = (
    "select global_position from message_store.messages where global_position >= %s"
    " and %s in ('$all', message_store.category(stream_name)) order by global_position limit %s"
)


def positions(rows: Iterable[Any]) -> list[int]:
    """Return the only column of the rows."""
    return [position for (position,) in rows]


def _size(random: Random) -> int:
    return random.choice([1, 2, 7, 50, 1000])


def _store(url: str, **options: Any) -> Store:
    return penstock.connect(url, pool_min_size=1, pool_max_size=1, **options)
