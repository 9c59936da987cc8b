"""Single writes from 1, 8 and 32 writers into one category: ours, the genuine one, the limit.

The limit is a bare INSERT of the same row into a table with the same columns and indexes: no
function, no lock, no version, no trigger. Nobody who has to keep this table can be faster.
"""

from __future__ import annotations

from functools import partial

from bench import pgbench
from bench.measuring import Contender, Effort, measure
from bench.results import Comparison, ratio
from bench.server import Server
from bench.writers import writers

UNIT = "messages/s"


def compare(server: Server, effort: Effort) -> list[Comparison]:
    """Measure each number of writers; at 8, also writers in Python through `Store`."""
    contenders = [
        _contender("ours", server.ours("ours"), pgbench.WRITE_MESSAGE),
        _contender("genuine Message DB", server.genuine("genuine"), pgbench.WRITE_MESSAGE),
        _contender("bare INSERT", server.bare("bare"), pgbench.INSERT),
    ]
    compared = [
        _compare(clients, contenders, server, effort) for clients in (1, 8, 32)
    ]
    server.drop("ours", "genuine", "bare")
    return compared
