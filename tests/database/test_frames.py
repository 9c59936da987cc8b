"""From a public call to psycopg it takes at most four frames of ours, so it can be followed."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import CodeType
from typing import Any

import psycopg
import pytest

import penstock
from penstock import AsyncStore, Store, TypedMessage


class Joined(TypedMessage, type="frames.joined"):
    course: str


OURS = str(Path(penstock.__file__).parent)
MOST = 4

#: each public call, given a store: what it returns is awaited for an async one
CALLS: dict[str, Callable[[Any], Any]] = {
    "write_message": lambda store: store.write_message("account-1", "Opened"),
    "append": lambda store: store.append(Joined(course="Algebra")),
    "claim_next": lambda store: store.groups.claim_next(
        "billing", partition_by="course", handled_types=[Joined]
    ),
    "enqueue": lambda store: store.outbox.enqueue("mail", {"to": "Ada"}),
}


class Frames:
    """Records which of our functions lie above psycopg when it sends a statement."""

    def __init__(self) -> None:
        self.seen: list[list[str]] = []

    def __call__(self, frame: Any, event: str, argument: object) -> None:
        if event == "call" and frame.f_code in _EXECUTE:
            self.seen.append([])
            above = frame.f_back
            while above is not None:
                if above.f_code.co_filename.startswith(OURS):
                    self.seen[-1].append(f"{above.f_code.co_filename}:{above.f_code.co_qualname}")
                above = above.f_back


_EXECUTE: tuple[CodeType, ...] = (
    psycopg.Cursor.execute.__code__,
    psycopg.AsyncCursor.execute.__code__,
)


@pytest.mark.parametrize("name", CALLS)
def test_a_blocking_call_takes_four_frames(store: Store, name: str) -> None:
    store.groups.register("billing")
    store.append(Joined(course="History"))
    store.read(Joined.to_conditions(course="History"))  # which declares the class
    frames = Frames()

    sys.setprofile(frames)
    try:
        CALLS[name](store)
    finally:
        sys.setprofile(None)

    assert frames.seen, "nothing was sent"
    assert [one for one in frames.seen if len(one) > MOST] == []


@pytest.mark.parametrize("name", CALLS)
async def test_an_async_call_takes_four_frames(async_store: AsyncStore, name: str) -> None:
    await async_store.groups.register("billing")
    await async_store.append(Joined(course="History"))
    await async_store.read(Joined.to_conditions(course="History"))
    frames = Frames()
    awaitable: Awaitable[Any] = CALLS[name](async_store)

    sys.setprofile(frames)
    try:
        await awaitable
    finally:
        sys.setprofile(None)

    assert frames.seen, "nothing was sent"
    assert [one for one in frames.seen if len(one) > MOST] == []
