"""What an operation costs when the log is small, and when it is large: promise 6, no growth."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from bench.growing import PAGE, SLICE, Log
from bench.measuring import Contender, Effort, measure, tell
from bench.results import Comparison, ratio
from bench.server import Server

SIZES = (10_000, 100_000, 1_000_000)
SIZES_WHEN_QUICK = (10_000, 50_000)
NOTE = (
    "The time that the server's processor is busy with one operation, from one client. Waiting for "
    "the disk is left out (synchronous_commit = off): it would hide what the operation costs."
)

#: claims come first: the writes of the others would give them something to route
OPERATIONS: dict[str, tuple[Callable[[Log], float], str]] = {
    "Claim and acknowledge, as the log grows": (
        Log.claim_and_ack,
        "Each claim finds a partition with one message, routed beforehand; the log is of other "
        "types.",
    ),
    "A category read, as the log grows": (
        Log.read,
        f"{PAGE} messages from a random position on.",
    ),
    "A write, as the log grows": (
        Log.write,
        "To a random stream that exists already.",
    ),
    "A guarded append, as the log grows": (
        Log.append,
        "The guard watches an account id that every message of the log carries: the hottest "
        "boundary there can be.",
    ),
}


def compare(server: Server, effort: Effort) -> Iterator[Comparison]:
    """Measure each operation on logs of different sizes."""
    rounds = effort.rounds * 2
    logs = []
    for messages in SIZES_WHEN_QUICK if effort.quick else SIZES:
        tell(f"growth: making a log of {messages:,} messages")
        logs.append(Log(server, messages, claims=(rounds + 1) * SLICE))
    for title, (operation, note) in OPERATIONS.items():
        yield _compare(title, operation, [NOTE, note], logs, rounds)
    for log in logs:
        log.close()
        server.drop(log.name)


def _compare(
    title: str, operation: Callable[[Log], float], notes: list[str], logs: list[Log], rounds: int
) -> Comparison:
    contenders = [
        Contender(f"at {log.messages:,} messages", partial(operation, log)) for log in logs
    ]
    smallest, *larger = measure(title, "µs", contenders, rounds).values()
    ratios = [ratio(one, smallest, at_most=1.15) for one in larger]
    return Comparison(title, [smallest, *larger], ratios, notes)
