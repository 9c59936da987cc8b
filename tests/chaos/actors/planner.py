"""Starts joins: with all their steps in one transaction, or step by step.

One step in eight is to fail for good, one in eight at its first attempt.
"""

from __future__ import annotations

from uuid import UUID, uuid4

from penstock import JoinId, Store, Transaction
from penstock.errors import TransactionAborted, TransactionConflict, UnavailableError
from tests.chaos.actors.actor import Actor, play
from tests.chaos.names import ADDED, BEGUN, BROKEN, COMMITTED, FINISHED, JOINED, ROLLED_BACK, STEP


def plan(actor: Actor) -> None:
    with actor.store() as store:
        while actor.goes_on(0.3):
            if actor.random.random() < 0.5:
                _start_whole(actor, store)
            else:
                _start_step_by_step(actor, store)


def _start_whole(actor: Actor, store: Store) -> None:
    steps = [str(uuid4()) for _ in range(actor.random.randint(1, 6))]
    transaction = str(uuid4())
    actor.note(BEGUN, transaction=transaction, steps=steps)
    try:
        with store.transaction() as tx:
            join = _start(tx, len(steps))
            actor.note(JOINED, transaction=transaction, join=str(join))
            for step in steps:
                tx.outbox.enqueue(STEP, _payload(actor), id=step, joins=[join])
        actor.note(COMMITTED, transaction=transaction)
    except (TransactionConflict, TransactionAborted):
        actor.note(ROLLED_BACK, transaction=transaction)
    except UnavailableError:
        pass  # whether it was committed is unknown


def _start_step_by_step(actor: Actor, store: Store) -> None:
    count = actor.random.randint(1, 4)
    join = actor.patiently(lambda: store.with_transaction(lambda tx: _start(tx, count)))
    for _ in range(count):
        _add(actor, store, join, uuid4())


def _add(actor: Actor, store: Store, join: JoinId, step: UUID) -> None:
    payload = _payload(actor)
    actor.patiently(lambda: store.outbox.enqueue(STEP, payload, id=step, joins=[join]))
    actor.note(ADDED, join=str(join), step=str(step))


def _start(transaction: Transaction, count: int) -> JoinId:
    join = transaction.joins.start(None, count)
    payload = {"join": str(join)}
    transaction.joins.enqueue_wait(join, True, FINISHED, payload, BROKEN, payload)
    return join


def _payload(actor: Actor) -> dict[str, str]:
    return {"do": actor.random.choice(["fail", "stumble", *["succeed"] * 6])}


main = play(plan)
