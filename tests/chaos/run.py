"""One run: the actors play, the storm blows, all comes to rest, and the checker decides.

outcome = run(server, ledgers, seed=1, seconds=600, tell=print)
assert outcome.complaints == []
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import psycopg

import penstock
from tests.chaos.actors.school import SCHOOL
from tests.chaos.checker import Verdict, gather, judge
from tests.chaos.drain import drain
from tests.chaos.names import WORK
from tests.chaos.processes import SOURCES, Troupe
from tests.chaos.server import Server
from tests.chaos.storm import Storm

CAST = (
    "writer-0", "writer-1", "transactor-0", "transactor-1", "consumer-table", "consumer-stream",
    "member-0", "member-1", "sender-0", "reader-manual", "reader-ahead", "reader-auto",
    "applicant-0", "intruder-0", "registrar-0", "registrar-1", "greeter-0",
    "planner-0", "dispatcher-0", "dispatcher-1",
)  # fmt: skip
TELL_EVERY = 30.0  # seconds
PATIENCE = 120.0  # seconds, for all work to be done
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """How a run went."""

    verdict: Verdict
    faults: Counter[str]
    #: of actors that ended by themselves, and of work that was never done
    unrest: list[str]

    @property
    def complaints(self) -> list[str]:
        idle = [f"nothing to judge: {name}" for name in self.verdict.idle]
        found = [f"{one.kind}: {one.text}" for one in self.verdict.complaints]
        return [*self.unrest, *idle, *found]

    def table(self) -> str:
        faults = [f"  {fault:<42}{count:>9,}" for fault, count in self.faults.items()]
        return "\n".join([*faults, self.verdict.table(), *self.unrest])


def run(
    server: Server, ledgers: Path, *, seed: int, seconds: float, cast: Iterable[str], tell: Tell
) -> Outcome:
    """Let the cast play through a storm of so many seconds, and judge what came of it."""
    _prepare(server.url)
    troupe = Troupe(cast, server.url, ledgers, seed)
    storm = Storm(server, troupe, ledgers / "storm-0.0000.facts", seed)
    try:
        troupe.start()
        _blow(storm, troupe, seconds, tell)
        storm.calm()
        unrest = _come_to_rest(server.url, troupe)
    finally:
        storm.calm()
        troupe.abandon()
    return Outcome(judge(gather(server.url, ledgers)), storm.counts, unrest)


def _prepare(url: str) -> None:
    penstock.install(url)
    with penstock.connect(url) as store:
        store.declare(*SCHOOL)


def _blow(storm: Storm, troupe: Troupe, seconds: float, tell: Tell) -> None:
    """Blow for so many seconds, and until each fault and each kind of work was there once."""
    end = time.monotonic() + seconds
    next_word = time.monotonic() + TELL_EVERY
    while (
        time.monotonic() < end
        or not all(storm.counts.values())
        or (time.monotonic() < end + PATIENCE and _is_idle(storm.url))
    ):
        pause = storm.blow()
        troupe.tend()
        time.sleep(pause)  # the storm's own rhythm: nobody waits for it
        if time.monotonic() > next_word:
            next_word += TELL_EVERY
            left = max(0.0, end - time.monotonic())
            tell(f"{left:5.0f} s to go, {storm.counts.total()} faults so far")


def _is_idle(url: str) -> bool:
    """Whether there is a kind of work of which nothing has been done, as far as one can see."""
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            done = connection.execute(
                "select bool_and(exists (select from message_store.messages m"
                " where message_store.category(m.stream_name) = kind))"
                " from unnest(%s::text[]) as kind",
                (list(WORK),),
            ).fetchone()
    except psycopg.OperationalError:  # the storm has just taken the server away
        return True
    return done != (True,)


def _come_to_rest(url: str, troupe: Troupe) -> list[str]:
    """Let no new work come, have all of it done, and let everybody go."""
    troupe.tend()
    troupe.end(SOURCES)
    troupe.wait_until_all_have_begun()
    unfinished = drain(url, troupe.names, PATIENCE)
    troupe.end()
    return [*troupe.complaints, *(f"not true in the end: {one}" for one in unfinished)]
