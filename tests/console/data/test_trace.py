"""Traces: from a command to what it led to, through the outbox, a join and a pipeline."""

from __future__ import annotations

from uuid import uuid4

import msgspec
import pytest

from penstock import AsyncStore, Message
from penstock.console.data.trace import trace
from penstock.console.data.trace_nodes import TraceNode
from penstock.errors import MessageNotFound, ValidationError
from tests.console.data.steps import begin_step, commit_step


def drawn(node: TraceNode, depth: int = 0) -> list[str]:
    mark = "*" if node.asked_for else ""
    link = f" ({node.link}{'' if node.certain else '?'})" if node.link else ""
    line = f"{'  ' * depth}{node.kind} {node.title}{link}{mark}"
    return [line, *(line for one in node.children for line in drawn(one, depth + 1))]


async def test_a_chain_of_messages_from_its_middle(async_store: AsyncStore) -> None:
    command = Message("Place", {})
    placed = command.follow("Placed", {})
    billed, shipped = placed.follow("Billed", {}), placed.follow("Shipped", {})
    for stream, message in (
        ("order:command-1", command),
        ("noise-1", Message("Noise", {})),
        ("order-1", placed),
        ("bill-1", billed),
        ("parcel-1", shipped),
    ):
        await async_store.write_messages(stream, [message])

    found = await trace(async_store, placed.id)

    assert drawn(found.root) == [
        "message Place",
        "  message Placed (causation)*",
        "    message Billed (causation)",
        "    message Shipped (causation)",
    ]
    assert drawn((await trace(async_store, "5")).root)[-1] == "    message Shipped (causation)*"
    assert msgspec.json.encode(found)


async def test_an_outbox_message_a_join_and_its_follow_up(async_store: AsyncStore) -> None:
    placed = Message("Placed", {})
    await async_store.write_messages("order-1", [placed])
    join_id = await async_store.joins.start("order-1", 1)
    mail = await async_store.outbox.enqueue("mail", correlation_id=str(placed.id), joins=[join_id])
    await async_store.joins.enqueue_wait(join_id, on_complete_topic="ship")
    [claimed] = await async_store.outbox.claim("worker", topics=["mail"])
    await async_store.outbox.ack(claimed)
    await async_store.write_message(
        "sent-1", "Sent", {}, metadata={"causation_id": str(mail), "correlation_id": str(placed.id)}
    )

    of_message = drawn((await trace(async_store, placed.id)).root)
    of_join = drawn((await trace(async_store, join_id)).root)
    of_sent = drawn((await trace(async_store, 2)).root)

    assert of_message == [
        "message Placed*",
        "  outbox mail (correlation)",
        "    message Sent (causation)",
        "    join order-1 (joined)",
    ]
    assert of_join[:2] == ["join order-1*", "  outbox mail (step)"]
    assert of_sent[0] == "message Placed"
    assert "    message Sent (causation)*" in of_sent


async def test_a_pipelines_step_is_between_its_input_and_its_output(
    async_store: AsyncStore,
) -> None:
    placed = Message("Placed", {})
    await async_store.write_messages("order-1", [placed])
    await async_store.write_message("order-2", "Placed")
    snapshot = await begin_step(async_store, "bill", {"order": (0, 2)}, "d1")
    follows = {"causation_id": str(placed.id), "correlation_id": str(placed.id)}
    await commit_step(
        async_store,
        snapshot,
        ("invoice-1", "Billed", {}, follows),
        ("total-1", "Summed", {}, {}),
    )

    downwards = drawn((await trace(async_store, placed.id)).root)
    upwards = await trace(async_store, 5)

    assert downwards == [
        "message Placed*",
        "  step shop.bill (read by)",
        "    message Billed (causation)",
        "    message Summed (same step?)",
    ]
    assert drawn(upwards.root)[0] == "step shop.bill"
    assert "  message Summed (same step?)*" in drawn(upwards.root)
    assert upwards.root.subtitle == "read order after 0 to 2"


async def test_a_message_that_was_not_read_yet(async_store: AsyncStore) -> None:
    await async_store.write_message("order-1", "Placed")
    await begin_step(async_store, "bill", {"order": (0, 1)}, "d1")

    found = await trace(async_store, 1)

    assert drawn(found.root) == ["message Placed*"]
    assert "shop.bill has not read 1 yet" in found.not_looked_at


async def test_causes_that_run_in_a_circle_end(async_store: AsyncStore) -> None:
    first, second = Message("A", {}), Message("B", {})
    await async_store.write_messages("a-1", [first.with_metadata(causation_id=str(second.id))])
    await async_store.write_messages("b-1", [second.with_metadata(causation_id=str(first.id))])

    found = await trace(async_store, first.id)

    assert sorted(line.split()[1] for line in drawn(found.root)) == ["A", "B"]


async def test_what_has_no_trace_is_named(async_store: AsyncStore) -> None:
    with pytest.raises(MessageNotFound, match="neither a message, nor an outbox message"):
        await trace(async_store, uuid4())
    with pytest.raises(MessageNotFound):
        await trace(async_store, "7")
    with pytest.raises(ValidationError):
        await trace(async_store, "x")
