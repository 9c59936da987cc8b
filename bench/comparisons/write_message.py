"""Single writes from 1, 8 and 32 writers into one category: ours, the genuine one, the limit.

The limit is a bare INSERT of the same row into a table with the same columns and indexes: no
function, no lock, no version, no trigger. Nobody who has to keep this table can be faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench.measuring import Contender, Effort, measure
from bench.pgbench import INSERT, WRITE_MESSAGE, transactions_per_second
from bench.results import Comparison, Ratio, ratio
from bench.server import Server
from bench.writers import writers

PYTHON_WRITERS = 8
UNIT = "messages/s"
NOTES = [
    "pgbench is the load driver, with prepared statements; the message is the same for all, and "
    "every commit waits for the disk.",
    "Each writer writes ten messages to a stream of its own, then goes on to a fresh one, so that "
    "all write into one category and no two into one stream.",
]


def compare(server: Server, effort: Effort) -> Iterator[Comparison]:
    """Measure each number of writers; at 8, also writers in Python through `Store`."""
    contenders = {
        "ours": (server.ours("ours"), WRITE_MESSAGE),
        "genuine Message DB": (server.genuine("genuine"), WRITE_MESSAGE),
        "bare INSERT": (server.bare("bare"), INSERT),
    }
    counts = (PYTHON_WRITERS,) if effort.quick else (1, PYTHON_WRITERS, 32)
    for clients in counts:
        yield _compare(clients, contenders, effort)
    server.drop("ours", "genuine", "bare")


def _compare(clients: int, contenders: dict[str, tuple[str, str]], effort: Effort) -> Comparison:
    driven = [
        Contender(name, partial(transactions_per_second, url, script, clients, effort.seconds))
        for name, (url, script) in contenders.items()
    ]
    title = f"write_message, {clients} writer{'s' if clients > 1 else ''}"
    if clients != PYTHON_WRITERS:
        figures = measure(title, UNIT, driven, effort.rounds)
    else:
        with writers(contenders["ours"][0], clients) as python:
            through_store = Contender(
                "ours, Store in Python", partial(python.messages_per_second, effort.seconds)
            )
            figures = measure(title, UNIT, [*driven, through_store], effort.rounds)
    ours, genuine, bare, *rest = figures.values()
    aimed = clients >= 8
    ratios: list[Ratio] = [
        ratio(ours, genuine, at_least=2.5 if aimed else None),
        ratio(ours, bare, at_least=0.7 if aimed else None),
        *(ratio(one, genuine) for one in rest),
    ]
    return Comparison(title, list(figures.values()), ratios, NOTES)
