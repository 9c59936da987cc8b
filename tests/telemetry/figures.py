"""What tests ask of a store's health."""

from __future__ import annotations

from typing import Any

from penstock import Store

HOUR = 3600.0


def figure(store: Store, name: str, **subject: str) -> float:
    """The one figure of this name, about this subject."""
    [found] = [one for one in store.admin.health() if (one.name, one.subject) == (name, subject)]
    return found.value


def details(store: Store, name: str) -> list[dict[str, Any]]:
    return [dict(one.detail) for one in store.admin.health() if one.name == name]
