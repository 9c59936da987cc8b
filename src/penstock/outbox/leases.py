"""Claimed messages as their holder passes them back: one, or several, under one token or more."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from penstock.errors import StaleLease, ValidationError
from penstock.outbox.checks import listed
from penstock.outbox.messages import ClaimedMessage

Held = ClaimedMessage | Iterable[ClaimedMessage]


def by_token(held: Held) -> list[tuple[UUID, list[UUID]]]:
    """Return the ids of the messages, by the token of their claim."""
    several = [held] if isinstance(held, ClaimedMessage) else listed("messages", held)
    tokens: dict[UUID, list[UUID]] = {}
    for one in several:
        if not isinstance(one, ClaimedMessage):
            raise ValidationError("message", one, "a message that claim() returned")
        tokens.setdefault(one.token, []).append(one.id)
    return list(tokens.items())


def refuse_stale(stale: list[UUID]) -> None:
    """Raise if some of the messages were not held any more."""
    if stale:
        raise StaleLease(tuple(str(one) for one in stale))
