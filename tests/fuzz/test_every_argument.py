"""Hostile text in every text argument of every public operation: a result, or a typed error."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given

from penstock import Decider, Message, NewMessage, PenstockError, QueryCondition, Store
from tests.fuzz.arguments import PLACED, Moved, text_arguments, unknown_annotations
from tests.fuzz.hostile import few, surely, texts

#: good values for what has to be given, by name or by operation and name
GOOD: dict[str, Callable[[Store], Any]] = {
    "stream_name": lambda _: "account-1",
    "category": lambda _: "account",
    "category_name": lambda _: "account",
    "target": lambda _: "account-1",
    "type": lambda _: "Opened",
    "messages": lambda _: [Message("Opened")],
    "conditions": lambda _: [QueryCondition("fuzz.moved", "device", "1")],
    "attributes": lambda _: {"device": "1"},
    "group_id": lambda _: "devices",
    "partition_by": lambda _: "device",
    "handled_types": lambda _: [Moved],
    "claim": lambda store: claimed(store),
    "decider": lambda _: Decider(0, lambda state, event: state, lambda state, command: []),
    "command": lambda _: None,
    "consumer_id": lambda _: "reader",
    "global_position": lambda _: 1,
    "position": lambda _: 0,
    "moment": lambda _: datetime.now(UTC),
    "older_than": lambda _: 0,
    "keep_count": lambda _: 1,
    "work": lambda _: lambda transaction: None,
    "name": lambda _: "orders",
    "queue": lambda _: "orders",
    "next_offset": lambda _: 0,
    "value": lambda _: 1,
    "values": lambda _: [1],
    "topic": lambda _: "mail",
    "on_complete_topic": lambda _: "mail",
    "enqueue_many.messages": lambda _: [NewMessage("mail")],
    "owner": lambda _: "worker",
    "error": lambda _: "broken",
    "ack.messages": lambda store: claimed_from_outbox(store),
    "fail.messages": lambda store: claimed_from_outbox(store),
    "abandon.messages": lambda store: claimed_from_outbox(store),
    "extend.messages": lambda store: claimed_from_outbox(store),
    "join_id": lambda store: store.joins.start(None, 1),
    "outbox_message_id": lambda store: store.outbox.enqueue("mail"),
    "grouping_key": lambda _: None,
    "expected_steps": lambda _: 1,
    "id": lambda store: store.outbox.enqueue("mail"),
    "stop": lambda _: lambda: True,
}

#: arguments with a default, but without which the call is refused or does not end
ALWAYS = {"keep_count", "on_complete_topic", "stop"}


def claimed(store: Store) -> Any:
    store.groups.register("devices")
    store.append(Moved(device=str(Message("Moved").id)))
    return store.groups.claim_next("devices", partition_by="device", handled_types=[Moved])


def claimed_from_outbox(store: Store) -> Any:
    store.outbox.enqueue("mail")
    return store.outbox.claim("worker")


def call(store: Store, subject: str, name: str, attacked: inspect.Parameter, text: str) -> None:
    """Call an operation with good values, and with this text in the place of one of them."""
    with store.transaction() as transaction:
        on = {
            "store": store,
            "transaction": transaction,
            "admin": store.admin,
            "groups": store.groups,
            "outbox": store.outbox,
            "joins": store.joins,
            "queue": store.queue("orders"),
        }[subject]
        method = getattr(on, name)
        given = {
            one.name: GOOD.get(f"{name}.{one.name}", GOOD[one.name])(store)
            for one in inspect.signature(method).parameters.values()
            if one.name in GOOD and (one.default is one.empty or one.name in ALWAYS)
            if one.name != attacked.name
        }
        placed = PLACED[attacked.annotation](text)
        if name in ("release_savepoint", "rollback_to_savepoint"):
            transaction.savepoint(text)  # there has to be one
        if attacked.kind is attacked.VAR_POSITIONAL:
            result = method(placed, **given)
        else:
            result = method(**given, **{attacked.name: placed})
        if inspect.isgenerator(result):
            list(result)


def test_all_kinds_of_arguments_are_known() -> None:
    assert unknown_annotations() == set()


@pytest.mark.parametrize(
    ("subject", "name", "attacked"),
    [pytest.param(*one, id=f"{one[0]}.{one[1]}-{one[2].name}") for one in text_arguments()],
)
@few
@given(text=texts)
@surely
def test_hostile_text_is_taken_or_refused(
    store: Store, subject: str, name: str, attacked: inspect.Parameter, text: str
) -> None:
    with suppress(PenstockError):
        call(store, subject, name, attacked, text)

    assert store.stream_version("witness-1") == 0
