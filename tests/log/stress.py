"""Many writers and several readers at once, and an account of what each reader missed.

A message is passed over when its transaction draws a position, lingers, and commits after its
neighbours. So the writers' transactions have any length, some of what they do is undone, and the
readers read whenever one has ended. The writers are threads, each with a connection, and so with a
process of the server, to itself: there is where they interleave.

    findings = run(url, Load(seed=1), [paging("$all"), paging("order")])
    assert findings.complaints() == []

What counts is what stands in the table when all is over. Each reader must have seen exactly
that, once and in order; and it must be exactly what was committed as far as the writers saw.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Self
from uuid import UUID

import psycopg

from tests.log.readers import Reader
from tests.log.writers import EVERY_WAY, Write, Writer
from tests.racing import wait_until


@dataclass(frozen=True)
class Load:
    """How much is written: so many messages, for so many seconds, through so many losses, at least.

    A run goes on until all three are reached.
    """

    seed: int
    writers: int = 8
    messages: int = 6_000
    seconds: float = 0
    ways: Sequence[Write] = EVERY_WAY
    #: if given, some writer's connection is killed every so many seconds
    kill_every: float | None = None
    #: how many connections have to be lost that way
    losses: int = 0


@dataclass(frozen=True)
class Account:
    """What a reader has seen, beside what there was to see."""

    reader: str
    seen: list[int]
    expected: list[int]

    @property
    def missed(self) -> set[int]:
        return set(self.expected) - set(self.seen)

    def complaints(self) -> Iterator[str]:
        if self.missed:
            yield f"{self.reader} missed {len(self.missed)} of {len(self.expected)}"
        if invented := set(self.seen) - set(self.expected):
            yield f"{self.reader} saw {len(invented)} that were never committed"
        if repeated := len(self.seen) - len(set(self.seen)):
            yield f"{self.reader} saw {repeated} twice"
        if any(later < earlier for earlier, later in pairwise(self.seen)):
            yield f"{self.reader} saw some out of order"


@dataclass(frozen=True)
class Findings:
    """What came of a run."""

    accounts: list[Account]
    there: set[UUID]
    promised: set[UUID]
    possible: set[UUID]
    #: how often a writer lost its connection
    losses: int

    def complaints(self) -> list[str]:
        """Say all that is wrong; nothing if every reader saw everything once and in order."""
        found = [complaint for account in self.accounts for complaint in account.complaints()]
        if lost := self.promised - self.there:
            found.append(f"{len(lost)} messages were committed and are not there")
        if revived := self.there - self.possible:
            found.append(f"{len(revived)} messages were rolled back and are there")
        return found


def run(url: str, load: Load, readers: Sequence[Reader]) -> Findings:
    """Let the writers write and the readers read until all is written and read."""
    writers = [Writer(url, number, load.seed, load.ways) for number in range(load.writers)]
    with ThreadPoolExecutor(len(readers)) as threads, Progress() as progress:
        watching = [Watch(reader, progress) for reader in readers]
        reading = [threads.submit(watch.run, url, load.seed) for watch in watching]
        with _killing(url, load.kill_every):
            _write(writers, load, progress)
        wait_until(url, "select not exists (select from penstock.open_writers())")
        progress.end()
        for future in reading:
            future.result()
    return _findings(url, writers, watching)


class Progress:
    """How many transactions have ended, for readers to wait on, and whether that was all."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.count = 0
        self.ended = False

    def step(self) -> None:
        with self._changed:
            self.count += 1
            self._changed.notify_all()

    def end(self) -> None:
        self.ended = True
        self.step()

    def wait_beyond(self, count: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self.count > count or self.ended)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


class Watch:
    """Runs a reader until a look that was begun after the last commit has shown it nothing."""

    def __init__(self, reader: Reader, progress: Progress) -> None:
        self.reader = reader
        self.seen: list[int] = []
        self._progress = progress
        self._seen_before = -1
        self._count_before = 0
        self._ended_before = False

    def run(self, url: str, seed: int) -> None:
        random = Random(f"{seed} {self.reader.name}")
        for position in self.reader.read(url, random, self._stop):
            self._saw(position)

    def _saw(self, position: int) -> None:
        self.seen.append(position)

    def _stop(self) -> bool:
        """Asked before each look: it may be in vain to look again."""
        if len(self.seen) == self._seen_before:
            if self._ended_before:
                return True
            self._progress.wait_beyond(self._count_before)
        self._seen_before = len(self.seen)
        self._ended_before = self._progress.ended
        self._count_before = self._progress.count
        return False


def _write(writers: list[Writer], load: Load, progress: Progress) -> None:
    deadline = time.monotonic() + load.seconds
    running: list[Future[None]] = []

    def stop() -> bool:
        written = sum(len(writer.promised) for writer in writers)
        losses = sum(writer.losses for writer in writers)
        failed = any(future.done() for future in running)
        enough = written >= load.messages and losses >= load.losses
        return failed or (enough and time.monotonic() >= deadline)

    with ThreadPoolExecutor(load.writers) as threads:
        running += [threads.submit(writer.run, stop, progress.step) for writer in writers]
    for future in running:
        future.result()


@contextmanager
def _killing(url: str, kill_every: float | None) -> Iterator[None]:
    """Meanwhile end the connection of some open writer every so often."""
    ended = threading.Event()

    def kill() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            while not ended.wait(kill_every):
                connection.execute(
                    "select pg_terminate_backend(pid) from penstock.open_writers()"
                    " order by random() limit 1"
                )

    with ThreadPoolExecutor(1) as threads:
        killing = threads.submit(kill) if kill_every else None
        try:
            yield
        finally:
            ended.set()
    if killing:
        killing.result()


def _findings(url: str, writers: list[Writer], watching: list[Watch]) -> Findings:
    with psycopg.connect(url, autocommit=True) as connection:
        return Findings(
            [
                Account(watch.reader.name, watch.seen, watch.reader.expected(connection))
                for watch in watching
            ],
            {id for (id,) in connection.execute("select id from message_store.messages")},
            set[UUID]().union(*(writer.promised for writer in writers)),
            set[UUID]().union(*(writer.possible for writer in writers)),
            sum(writer.losses for writer in writers),
        )
