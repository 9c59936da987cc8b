"""Reads a queue through a session, and notes each record that it got.

Its name says how: `reader-auto` commits with each poll; `reader-manual` commits by hand and goes
back now and then; `reader-ahead` does so too, and polls several records before a commit.
"""

from __future__ import annotations

from penstock import CommitMode, ConsumedRecord, ConsumerSession, Store
from penstock.errors import SessionFenced
from tests.chaos.actors.actor import Actor, play
from tests.chaos.names import MAIL, POLLED


def read(actor: Actor) -> None:
    with actor.store() as store:
        while actor.goes_on():
            with actor.patiently(lambda: _open(actor, store)) as session:
                try:
                    _read_on(actor, session)
                except SessionFenced:
                    continue  # an opening was sent twice, since the first answer was lost


def _open(actor: Actor, store: Store) -> ConsumerSession:
    mode = CommitMode.AUTO_COMMIT if actor.variant == "auto" else CommitMode.MANUAL_COMMIT
    return store.queue(MAIL).create_consumer(actor.name, mode, read_ahead=actor.variant == "ahead")


def _read_on(actor: Actor, session: ConsumerSession) -> None:
    uncommitted = False
    while actor.goes_on():
        record = actor.patiently(lambda: session.poll(timeout=0.2))
        if record is not None:
            actor.note(POLLED, offset=record.offset, key=record.value["key"])
        if session.mode is CommitMode.MANUAL_COMMIT:
            uncommitted = _commit_or_not(actor, session, record, uncommitted)


def _commit_or_not(
    actor: Actor, session: ConsumerSession, record: ConsumedRecord | None, uncommitted: bool
) -> bool:
    """Return whether something is left to commit."""
    if record is None:
        commit = uncommitted
    else:
        commit = actor.random.random() < 0.7
        if actor.random.random() < 0.02:
            back = max(0, record.offset - actor.random.randrange(20))
            actor.patiently(lambda: session.seek(back))
    if commit:
        actor.patiently(session.commit)
    return (uncommitted or record is not None) and not commit


main = play(read)
