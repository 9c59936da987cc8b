"""Many callers in one process: coalesced, one by one, and eventsourcing's recorder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench import peers
from bench.measuring import Contender, Effort, measure, tell
from bench.results import Comparison, Figure, Ratio, ratio, significant
from bench.server import Server, settle

SCRIPT = Path(__file__).parent.parent / "callers.py"
UNIT = "calls/s"
OURS, SINGLE, THEIRS = "ours", "ours, coalesce=False", "eventsourcing"
CEILING, LONE = "full batches from one thread", "lone"
#: by who calls: at least so many times eventsourcing's, and ours without coalescing
AIMS: dict[tuple[str, int], tuple[float, float]] = {
    ("threads", 8): (5, 3),
    ("threads", 32): (8, 5),
    ("tasks", 100): (8, 5),
}
WRITE_AIM = 3
LONE_AIM = 0.98
LATENCY_CALLERS = 32
NOTES = [
    "One Python process with one store, and a pool of ten connections. Every append is a decision "
    "on a boundary of its own, with two attributes or tags; every commit waits for the disk.",
    "Their recorder blocks, so it is called from threads where ours is called from tasks.",
    "Full batches from one thread are what the server and this client allow at most with one batch "
    "under way: each has as many calls as there are callers, all from one thread, which waits for "
    "no other and wakes none.",
]
ALTERNATING = (
    "One caller with two stores makes each call on both, in random order; a round takes the median "
    "of each. So the disk and other processes are the same for both."
)
TITLES = {"append": "guarded append", "write": "write_message"}


@dataclass(frozen=True)
class Answer:
    """What the callers of one process achieved."""

    per_second: float
    median_ms: float
    slow_ms: float


class Callers:
    """A process with many callers, which call whenever they are told to."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, seconds: float, what: str, how: str, count: int, rate: float = 0) -> Answer:
        """Let so many threads or tasks call for some seconds."""
        return Answer(*map(float, self._ask(f"{seconds} {what} {how} {count} {rate}").split()))

    def per_second(self, seconds: float, what: str, how: str, count: int) -> float:
        """Let them call as fast as they can."""
        return self.run(seconds, what, how, count).per_second

    def medians(self, seconds: float, what: str) -> list[float]:
        """Let a lone caller call, and return the median of each side in milliseconds."""
        return [*map(float, self._ask(f"{seconds} {what} threads 1 0").split())]

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self.answer()

    def answer(self) -> str:
        """Return the next line that the process prints."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args!r} ended with {self._process.wait()}")
        return line


@contextmanager
def callers(interpreter: str | Path, side: str, url: str) -> Iterator[Callers]:
    """Start a process that is connected and ready to call."""
    command = [str(interpreter), str(SCRIPT), side, url]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        started = Callers(process)
        started.answer()
        yield started
    finally:
        process.communicate()


def compare(server: Server, effort: Effort) -> Iterator[Comparison]:
    """Measure guarded appends and writes from threads and tasks, then how long a call takes."""
    ours, theirs = server.ours("calling", 0), server.empty("recording_calls")
    with ExitStack() as stack:
        sides = {
            OURS: stack.enter_context(callers(sys.executable, "ours", ours)),
            SINGLE: stack.enter_context(callers(sys.executable, "single", ours)),
            THEIRS: stack.enter_context(callers(peers.python(), "theirs", theirs)),
            CEILING: stack.enter_context(callers(sys.executable, "ceiling", ours)),
        }
        for side, url in zip(sides.values(), (ours, ours, theirs, ours), strict=True):
            side.per_second(effort.seconds, "append", "threads", 8)
            settle(url)
        lone = stack.enter_context(callers(sys.executable, "lone", ours))
        yield from (_alone(lone, what, effort) for what in ("append", "write"))
        for (how, count), aims in AIMS.items():
            if not effort.quick or count == LATENCY_CALLERS:
                yield _appends(sides, how, count, aims, effort)
        for how, count in AIMS:
            if not effort.quick or count == LATENCY_CALLERS:
                yield _writes(sides, how, count, effort)
        yield _one_stream(sides, effort)
        yield _latency(sides, effort)
    server.drop("calling", "recording_calls")


def _alone(lone: Callers, what: str, effort: Effort) -> Comparison:
    """Measure calls of one caller, which alternate: so the machine is the same for both."""
    title = f"{TITLES[what]} in one process, 1 thread"
    answers = []
    for number in range(effort.rounds + 1):
        tell(f"{title}: {f'round {number} of {effort.rounds}' if number else 'warming up'}")
        answers.append(lone.medians(effort.seconds, what))
    ours, single = (
        Figure(name, UNIT, [significant(1000 / one) for one in medians])
        for name, medians in zip((OURS, SINGLE), zip(*answers[1:], strict=True), strict=True)
    )
    return Comparison(
        title, [ours, single], [ratio(ours, single, at_least=LONE_AIM)], [ALTERNATING]
    )


def _appends(
    sides: dict[str, Callers], how: str, count: int, aims: tuple[float, float], effort: Effort
) -> Comparison:
    title = f"{TITLES['append']} in one process, {count} {how}"
    ours, single, theirs, ceiling = _measured(title, sides, "append", how, count, effort)
    ratios = [
        ratio(ours, theirs, at_least=aims[0]),
        ratio(ours, single, at_least=aims[1]),
        ratio(ceiling, theirs),
        ratio(ceiling, single),
    ]
    return Comparison(title, [ours, single, theirs, ceiling], ratios, NOTES)


def _writes(sides: dict[str, Callers], how: str, count: int, effort: Effort) -> Comparison:
    title = f"{TITLES['write']} in one process, {count} {how}"
    three = {name: sides[name] for name in (OURS, SINGLE, CEILING)}
    ours, single, ceiling = _measured(title, three, "write", how, count, effort)
    ratios = [ratio(ours, single, at_least=WRITE_AIM), ratio(ceiling, single)]
    return Comparison(title, [ours, single, ceiling], ratios, [NOTES[0], NOTES[2]])


def _one_stream(sides: dict[str, Callers], effort: Effort) -> Comparison:
    title = "write_message to one stream in one process, 32 threads"
    two = {name: sides[name] for name in (OURS, SINGLE)}
    ours, single = _measured(title, two, "write_to_one", "threads", 32, effort)
    return Comparison(title, [ours, single], [ratio(ours, single)], NOTES[:1])


def _measured(
    title: str, sides: dict[str, Callers], what: str, how: str, count: int, effort: Effort
) -> list[Figure]:
    contenders = [
        Contender(name, partial(side.per_second, effort.seconds, what, how, count))
        for name, side in sides.items()
    ]
    return list(measure(title, UNIT, contenders, effort.rounds).values())


def _latency(sides: dict[str, Callers], effort: Effort) -> Comparison:
    """Measure how long a call takes at half of the rate that each side reaches."""
    title = f"guarded append in one process, {LATENCY_CALLERS} threads at half of their maximum"
    figures: list[Figure] = []
    for name in (OURS, SINGLE):
        most = sides[name].per_second(effort.seconds, "append", "threads", LATENCY_CALLERS)
        answers = [
            sides[name].run(effort.seconds, "append", "threads", LATENCY_CALLERS, most / 2)
            for _ in range(effort.rounds)
        ]
        figures += [
            Figure(f"{name}: median", "ms", [significant(one.median_ms) for one in answers]),
            Figure(f"{name}: 99th percentile", "ms", [significant(one.slow_ms) for one in answers]),
        ]
    ratios: list[Ratio] = [ratio(figures[0], figures[2]), ratio(figures[1], figures[3])]
    return Comparison(title, figures, ratios, NOTES[:1])
