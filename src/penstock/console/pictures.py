"""Pictures of a pipeline and of a join, as templates draw them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from penstock.console.addresses import address
from penstock.console.drawing import Arrow, Box, graph

#: steps of a join that are drawn
_STEPS = 12
_DASHED = frozenset(("looks up", "errors"))


@pass_context
def pipeline_graph(context: Context, facts: Any, rates: Mapping[str, float | None]) -> Markup:
    """Return the graph of a pipeline: its processors with their state, queues and tables."""
    base = context["base"]
    boxes = [_node(base, node, rates.get(node["name"])) for node in facts["nodes"]]
    arrows = [
        Arrow(
            one["source"],
            one["target"],
            "" if one["what"] in ("reads", "publishes") else one["what"],
            one["what"] in _DASHED,
        )
        for one in facts["edges"]
    ]
    return graph(boxes, arrows, f"Graph of the pipeline {facts['pipeline']}")


def _node(base: str, node: Any, rate: float | None) -> Box:
    one = node["processor"]
    if one is None:
        href = None
        if node["kind"] == "queue":
            href = address(base, "/log/messages", {"target": node["name"]})
        elif node["kind"] == "lake":
            href = address(base, "/tables/table", {"table": node["name"]})
        return Box(node["id"], node["name"], (node["kind"],), f"node-{node['kind']}", href)
    query = {"pipeline": one["pipeline"], "processor": one["processor"]}
    failing = " failing" if one["error"] else ""
    return Box(
        node["id"],
        node["name"],
        _lines(one, rate),
        f"node-processor{failing}",
        address(base, "/pipelines/processor", query),
    )


def _lines(one: Any, rate: float | None) -> tuple[str, ...]:
    seconds = one["last_step_seconds"]
    step = "no step yet" if seconds is None else f"last step {seconds:.2f} s"
    lag = one["lag"]
    more = "+" if lag["at_least"] else ""
    flow = f"{one['messages_in']:,} in, {one['messages_out']:,} out"
    if rate:
        flow = f"{rate:,.0f}/s in, {one['messages_out']:,} out"
    if one["error"]:
        return (one["kind"], f"{lag['value']:,}{more} behind, {step}", one["error"])
    return (one["kind"], flow, f"{lag['value']:,}{more} behind, {step}")


@pass_context
def join_picture(context: Context, join: Any) -> Markup:
    """Return a join: its steps on the left, what they lead to on the right."""
    base, row, steps = context["base"], join["row"], join["steps"]
    boxes, arrows = [], []
    for number, step in enumerate(steps[:_STEPS], start=1):
        name = f"step {number}"
        href = address(base, "/outbox/message", {"id": step["message_id"]})
        lines = (step["status"], step["last_error"] or step["state"] or "cleaned up")
        boxes.append(Box(name, step["topic"] or name, lines, f"step-{step['status']}", href))
        arrows.append(Arrow(name, "join"))
    missing = row["expected_steps"] - row["attached_steps"]
    if len(steps) > _STEPS:
        boxes.append(Box("more", f"{len(steps) - _STEPS:,} more steps", ("listed below",)))
        arrows.append(Arrow("more", "join"))
    if missing > 0:
        note = ("expected, not attached yet",)
        boxes.append(Box("missing", f"{missing:,} missing", note, "step-missing"))
        arrows.append(Arrow("missing", "join", dashed=True))
    done = f"{row['completed_steps']:,} of {row['expected_steps']:,} completed"
    failed = f"{row['failed_steps']:,} failed" if row["failed_steps"] else ""
    boxes.append(Box("join", "Join", (row["status"], done, failed), f"join-{row['status']}"))
    for name, what in (("wait", "waits"), ("follow_up", "follow-up")):
        if message := join[name]:
            href = address(base, "/outbox/message", {"id": message["id"]})
            boxes.append(Box(name, message["topic"], (what, message["state"]), "node-queue", href))
            arrows.append(Arrow("join", name))
    return graph(boxes, arrows, f"Join of {row['expected_steps']} steps, {row['status']}")
