"""A projection to try: accounts, which are opened, changed and closed by their events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock import RecordedMessage, Store
from penstock.pipeline import Pipeline
from tests.pipeline.steps.running import Harness

Event = tuple[int, str, int]  # account, type, amount
State = dict[str, Any]


def fold(state: State | None, message: RecordedMessage) -> State | None:
    """Return the account after an event; None when it is closed."""
    if message.type == "Closed":
        return None
    state = state or {"balance": 0, "history": [], "owner": None}
    return {
        "balance": state["balance"] + message.data["amount"],
        "history": [*state["history"], message.data["amount"]],
        "owner": message.data.get("owner") or state["owner"],
    }


def accounts(name: str, category: str, table: str, *, limit: int = 100) -> Pipeline:
    """Return a pipeline that keeps the accounts of a category in a table."""
    pipe = Pipeline(name)
    pipe.schema(category)
    pipe.project(
        category,
        into=table,
        columns="balance bigint, history array<int>, owner string",
        limit=limit,
    )(fold)
    return pipe


def write_events(store: Store, category: str, events: Sequence[Event]) -> None:
    """Write events, in their order."""
    for account, type, amount in events:
        data = {"amount": amount, "owner": f"owner {amount}" if amount % 2 else None}
        store.write_message(f"{category}-{account}", type, data)


def folded(store: Store, category: str) -> dict[str, tuple[Any, ...]]:
    """Return all accounts, folded from the beginning, with the position of their last event."""
    states: dict[str, State | None] = {}
    positions: dict[str, int] = {}
    for message in store.read_category(category):
        states[message.stream_name] = fold(states.get(message.stream_name), message)
        positions[message.stream_name] = message.position
    return {
        name: (state["balance"], state["history"], state["owner"], positions[name])
        for name, state in states.items()
        if state is not None
    }


def balances(harness: Harness) -> list[tuple[str, int]]:
    return harness.rows("select stream_name, balance from accounts order by 1")


def counting(limit: int = 100, *, types: tuple[str, ...] = (), into: str = "accounts") -> Pipeline:
    """Return a pipeline that counts the events of each account."""
    pipe = Pipeline("shop")
    pipe.schema("account")

    @pipe.project("account", into=into, columns="balance int", types=types, limit=limit)
    def count(state: State | None, message: RecordedMessage) -> State:
        return {"balance": (state["balance"] if state else 0) + 1}

    return pipe
