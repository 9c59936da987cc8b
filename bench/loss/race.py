"""Writers and tailing readers at once, each a process: what was committed, and what was missed.

`python -m bench.loss.race SIDE URL SECONDS` prints it as JSON. It runs with the packages of either
side, so it imports nothing of Penstock. Every transaction writes a random number of messages to one
stream of a random category. Once all writers are done, the readers read on until nothing is left;
then what they have got is compared with what is there.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass
from multiprocessing.synchronize import Barrier, Event, Lock
from typing import Protocol

WRITERS = 8
READERS = 2
LONGEST = 20  # messages in a transaction
CATEGORIES = [f"account{number}" for number in range(WRITERS)]
PAGE = 1000
PATIENCE = 120.0  # seconds until all are ready: if one fails, none waits for ever

#: writes so many messages to a stream of this category in one transaction
Write = Callable[[str, int], object]


@dataclass(frozen=True, slots=True)
class Raced:
    """How a race ended: how many messages are there, and how many each reader missed."""

    written: int
    missed: list[int]


class Side(Protocol):
    """What is raced: a module that writes, tails and tells what is there."""

    def writer(self, url: str) -> AbstractContextManager[Write]:
        """Connect, to write."""

    def tail(self, url: str) -> Iterator[Iterable[int]]:
        """Yield the positions that are new since the last look, for ever."""

    def everything(self, url: str) -> set[int]:
        """Return all positions that hold a message."""


def race(side: str, url: str, seconds: float) -> Raced:
    """Write from all sides while others read, and return how much was written and missed."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([f"bench.loss.{side}"])
    shared = context.Barrier(WRITERS + READERS), context.Event(), context.Lock()
    with ProcessPoolExecutor(
        WRITERS + READERS, mp_context=context, initializer=_share, initargs=shared
    ) as processes:
        readers = [processes.submit(_read, side, url) for _ in range(READERS)]
        writers = [processes.submit(_write, side, url, seconds) for _ in range(WRITERS)]
        for writer in writers:
            writer.result()
        shared[1].set()
        seen = [reader.result() for reader in readers]
    there = _module(side).everything(url)
    return Raced(len(there), [len(there - one) for one in seen])


def _write(side: str, url: str, seconds: float) -> None:
    with ExitStack() as stack:
        with _turn:  # the first may have to make the tables
            write = stack.enter_context(_module(side).writer(url))
        _begin.wait(PATIENCE)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            write(random.choice(CATEGORIES), random.randint(1, LONGEST))


def _read(side: str, url: str) -> set[int]:
    pages = _module(side).tail(url)
    with _turn:
        seen = set(next(pages))
    _begin.wait(PATIENCE)
    last_look = False
    while True:
        page = set(next(pages))
        seen |= page
        if last_look and not page:
            return seen
        last_look = _over.is_set()


def _module(side: str) -> Side:
    return importlib.import_module(f"bench.loss.{side}")


def _share(begin: Barrier, over: Event, turn: Lock) -> None:
    global _begin, _over, _turn
    _begin, _over, _turn = begin, over, turn


_begin: Barrier
_over: Event
_turn: Lock

if __name__ == "__main__":
    print(json.dumps(asdict(race(sys.argv[1], sys.argv[2], float(sys.argv[3])))))
