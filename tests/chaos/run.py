"""One run: actors work while faults are injected, the work is finished, and the checker decides.

outcome = run(server, ledgers, seed=1, seconds=600, actors=ACTORS, log=print)
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
from tests.chaos.fault_injector import FaultInjector
from tests.chaos.names import WORK
from tests.chaos.processes import SOURCES, ActorProcesses
from tests.chaos.server import Server

ACTORS = (
    "writer-0", "writer-1", "transactor-0", "transactor-1", "consumer-table", "consumer-stream",
    "member-0", "member-1", "sender-0", "reader-manual", "reader-ahead", "reader-auto",
    "applicant-0", "intruder-0", "registrar-0", "registrar-1", "greeter-0",
    "planner-0", "dispatcher-0", "dispatcher-1",
)  # fmt: skip
LOG_EVERY = 30.0  # seconds
PATIENCE = 120.0  # seconds, for all work to be done
Log = Callable[[str], None]


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
    server: Server, ledgers: Path, *, seed: int, seconds: float, actors: Iterable[str], log: Log
) -> Outcome:
    """Let the actors work through so many seconds of faults, and check the result."""
    _prepare(server.url)
    processes = ActorProcesses(actors, server.url, ledgers, seed)
    faults = FaultInjector(server, processes, ledgers / "faults-0.0000.facts", seed)
    try:
        processes.start()
        _inject_faults(faults, processes, seconds, log)
        faults.end_all()
        unrest = _finish_work(server.url, processes)
    finally:
        faults.end_all()
        processes.kill_all()
    return Outcome(judge(gather(server.url, ledgers)), faults.counts, unrest)


def _prepare(url: str) -> None:
    penstock.install(url)
    with penstock.connect(url) as store:
        store.declare(*SCHOOL)


def _inject_faults(
    faults: FaultInjector, processes: ActorProcesses, seconds: float, log: Log
) -> None:
    """Inject faults for so many seconds, until each fault and each kind of work occurred once."""
    end = time.monotonic() + seconds
    next_line = time.monotonic() + LOG_EVERY
    while (
        time.monotonic() < end
        or not all(faults.counts.values())
        or (time.monotonic() < end + PATIENCE and _is_idle(faults.url))
    ):
        pause = faults.inject()
        processes.restart_ended()
        time.sleep(pause)  # between faults: nothing is waited for
        if time.monotonic() > next_line:
            next_line += LOG_EVERY
            left = max(0.0, end - time.monotonic())
            log(f"{left:5.0f} s to go, {faults.counts.total()} faults so far")


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
    except psycopg.OperationalError:  # a fault has just taken the server away
        return True
    return done != (True,)


def _finish_work(url: str, processes: ActorProcesses) -> list[str]:
    """Stop the sources of work, wait until all work is done, and end the other actors."""
    processes.restart_ended()
    processes.end(SOURCES)
    processes.wait_until_all_have_begun()
    unfinished = drain(url, processes.names, PATIENCE)
    processes.end()
    return [*processes.complaints, *(f"not true in the end: {one}" for one in unfinished)]
