"""What a write costs when the log is small, and when it is large: promise 6, no growth."""

from __future__ import annotations

from functools import partial

from bench import pgbench
from bench.measuring import Contender, Effort, measure, tell
from bench.results import Comparison, ratio
from bench.server import DATA, METADATA, Server

SMALL = 10_000
LARGE = 1_000_000
WRITES = 300  # a slice: so few that the small log stays small
NOTES = [
    "One writer, to random streams that exist already. Commits do not wait for the disk here "
    "(synchronous_commit = off), since that wait would hide what the write itself costs.",
]


def compare(server: Server, effort: Effort) -> list[Comparison]:
    """Measure a write at 10,000 and at 1,000,000 messages."""
    contenders = []
    for messages in (SMALL, LARGE):
        tell(f"growth: making a log of {messages:,} messages")
        url = server.ours(f"log_{messages}", messages)
        name = f"at {messages:,} messages"
        contenders.append(Contender(name, partial(_microseconds, url, messages // 10)))
    figures = measure("growth", "µs/write", contenders, effort.rounds * 4)
    server.drop(*(f"log_{messages}" for messages in (SMALL, LARGE)))
    small, large = figures.values()
    ratios = [ratio(large, small, at_most=1.15)]
    return [Comparison("The cost of a write as the log grows", [small, large], ratios, NOTES)]


def _microseconds(url: str, streams: int) -> float:
    per_second = pgbench.transactions_per_second(
        url,
        f"""\\set stream random(0, {streams - 1})
        select message_store.write_message(
          uuidv7()::varchar, 'account-' || :stream, 'Deposited', '{DATA}', '{METADATA}', null);""",
        transactions=WRITES,
        options="-c synchronous_commit=off",
    )
    return 1_000_000 / per_second
