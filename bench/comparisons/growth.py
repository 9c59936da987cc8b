"""What a write costs when the log is small, and when it is large: promise 6, no growth."""

from __future__ import annotations

from functools import partial
from typing import Any

import psycopg

from bench.measuring import Contender, Effort, measure, tell
from bench.results import Comparison, ratio
from bench.server import DATA, METADATA, Server, busy_seconds

SMALL = 10_000
LARGE = 1_000_000
LARGE_WHEN_QUICK = 100_000
WRITES = 100  # a slice: so few that the small log stays small
NOTES = [
    "The time that the server's processor is busy with one write, to a random stream that exists "
    "already; one writer. Waiting for the disk is left out (synchronous_commit = off): it would "
    "hide what the write itself costs.",
]

_WRITE = """
select message_store.write_message(
  uuidv7()::varchar, 'account-' || floor(random() * %s)::int, 'Deposited', %s, %s, null)
"""


def compare(server: Server, effort: Effort) -> list[Comparison]:
    """Measure a write into a small log and into a large one."""
    sizes = (SMALL, LARGE_WHEN_QUICK if effort.quick else LARGE)
    contenders = []
    for messages in sizes:
        tell(f"growth: making a log of {messages:,} messages")
        url = server.ours(f"log_{messages}", messages)
        connection = psycopg.connect(url, autocommit=True)
        connection.execute("set synchronous_commit = off")
        write = partial(_microseconds, connection, messages // 10)
        contenders.append(Contender(f"at {messages:,} messages", write))
    figures = measure("growth", "µs/write", contenders, effort.rounds * 4)
    server.drop(*(f"log_{messages}" for messages in sizes))
    small, large = figures.values()
    ratios = [ratio(large, small, at_most=1.15)]
    return [Comparison("The cost of a write as the log grows", [small, large], ratios, NOTES)]


def _microseconds(connection: psycopg.Connection[Any], streams: int) -> float:
    began = busy_seconds(connection)
    for _ in range(WRITES):
        connection.execute(_WRITE, (streams, DATA, METADATA), prepare=True)
    return (busy_seconds(connection) - began) / WRITES * 1_000_000
