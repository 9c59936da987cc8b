"""Writes in transactions of any length, undoes parts of them, and sometimes all.

Each transaction also puts a note into the outbox. It is planned beforehand and noted, so that it is
known which messages belong together, and which must never be seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from uuid import UUID, uuid4

from penstock import Message, Store, Transaction
from penstock.errors import TransactionAborted, TransactionConflict, UnavailableError
from tests.chaos.actors.actor import Actor, play
from tests.chaos.names import BEGUN, COMMITTED, NOTE, ROLLED_BACK, TRANSFER

STREAMS = 8
ISOLATION = [None] * 8 + ["repeatable read", "serializable"]


class ChangedMind(Exception):
    """The transaction is rolled back on purpose."""


@dataclass(frozen=True)
class Part:
    """Messages that are written to one stream in one call, and perhaps undone."""

    stream_name: str
    keys: list[str]
    undone: bool


def transact(actor: Actor) -> None:
    with actor.store() as store:
        while actor.goes_on(0.1):
            _transact_once(actor, store)


def _transact_once(actor: Actor, store: Store) -> None:
    name = str(uuid4())
    parts = [_part(actor.random) for _ in range(actor.random.choice([1, 1, 2, 3, 5, 8]))]
    kept = [key for part in parts if not part.undone for key in part.keys]
    undone = [key for part in parts if part.undone for key in part.keys]
    actor.note(BEGUN, transaction=name, kept=kept, undone=undone)
    try:
        with store.transaction(actor.random.choice(ISOLATION)) as transaction:
            _write(actor, transaction, name, parts)
        actor.note(COMMITTED, transaction=name)
    except (ChangedMind, TransactionConflict, TransactionAborted):
        actor.note(ROLLED_BACK, transaction=name)
    except UnavailableError:
        pass  # whether it was committed is unknown


def _part(random: Random) -> Part:
    keys = [str(uuid4()) for _ in range(random.choice([1, 1, 1, 2, 10]))]
    return Part(f"{TRANSFER}-{random.randrange(STREAMS)}", keys, random.random() < 0.2)


def _write(actor: Actor, transaction: Transaction, name: str, parts: list[Part]) -> None:
    transaction.outbox.enqueue(NOTE, {"transaction": name})
    for part in parts:
        messages = [Message("Moved", {"key": key}, id=UUID(key)) for key in part.keys]
        transaction.savepoint("before")
        transaction.write_messages(part.stream_name, messages)
        if part.undone:
            transaction.rollback_to_savepoint("before")
        actor.goes_on(0.02)  # it takes its time, while others commit
    if actor.random.random() < 0.1:
        raise ChangedMind


main = play(transact)
