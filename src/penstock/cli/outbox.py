"""`penstock outbox` and `penstock joins`: count, show, retry and cancel what is in the outbox."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

import typer

from penstock import AsyncStore
from penstock.cli.printing import (
    console,
    counted,
    note,
    print_facts,
    print_json,
    print_list,
    print_table,
)
from penstock.cli.target import Json, ask, command_group, first_items, open_existing
from penstock.console.data import joins as join_data
from penstock.console.data.joins import JoinRow
from penstock.console.data.outbox import (
    OutboxDetail,
    outbox_message,
    outbox_messages,
    whole_payload,
)
from penstock.console.data.outbox_rows import OutboxRow
from penstock.console.data.topics import Topic, Topics, topics
from penstock.log.overview import server_time
from penstock.outbox.messages import STATES, Payload, decode_payload

Failures = Annotated[
    int, typer.Option(metavar="N", min=1, help="The number of failed messages to show.")
]
MessageId = Annotated[str, typer.Argument(metavar="ID", help="The message's id.")]
JoinIdArgument = Annotated[str, typer.Argument(metavar="ID", help="The join's id.")]


def overview(failures: Failures = 20, json: Json = False) -> None:
    """Count the messages of the outbox by topic and state, and list failed ones.

    `oldest ready` is when the first message that waits for a handler became due. `last error` is
    the error of that message, for instance that no dispatcher has a handler for its topic. A number
    with a + was not counted further: beyond 1,000, and for `done` among the newest 1,000. Failed
    messages are listed by topic and the time of failure.
    """
    found, failed, now = ask(lambda store: _look(store, failures))
    rows = [_row(one, now) for one in found.items]
    if json:
        print_json({"topics": rows, "failed": failed})
        return
    columns = ("topic", *STATES, "oldest_ready", "last_error")
    print_table(
        "topic >ready >in_progress >done >failed oldest_ready last_error",
        ([row[name] for name in columns] for row in rows),
    )
    if failed:
        console().print()
        print_table(
            "failed topic >attempts error",
            ((one.id, one.topic, one.attempts, one.last_error) for one in failed),
        )
        if len(failed) < found.failed.value:
            shown = f"the first {len(failed)} of {found.failed} failed messages"
            note(f"{shown}: --failures N shows more")


async def _look(store: AsyncStore, failures: int) -> tuple[Topics, Sequence[OutboxRow], datetime]:
    """Return the topics, failed messages, and the server's time."""
    found = await topics(store)
    failed, _ = await first_items(
        failures,
        lambda after, size: outbox_messages(store, state="failed", after=after, limit=size),
    )
    return found, failed, await store.run(server_time())


def _row(topic: Topic, now: datetime) -> dict[str, Any]:
    """Return a topic: the number of its messages in each state, and the oldest that is ready."""
    counts = {state: getattr(topic, state) for state in STATES}
    is_due = topic.oldest_due is not None and topic.oldest_due <= now
    oldest = {
        "oldest_ready": topic.oldest_due if is_due else None,
        "last_error": topic.last_error if is_due else None,
    }
    return {"topic": topic.topic, **counts, **oldest}


def show_message(id: MessageId, json: Json = False) -> None:
    """Show one message, in any state, with what became of it and the joins that it belongs to."""
    found, payload = ask(lambda store: _message(store, id))
    facts = {**asdict(found.row), "dedupe_key": found.dedupe_key, "payload": payload}
    if json:
        print_json({**facts, "timeline": found.timeline, "joins": found.joins})
        return
    _print_fields({**facts, "payload": "null" if payload is None else payload})
    console().print()
    print_table("event time detail", ((one.what, one.time, one.detail) for one in found.timeline))
    if found.joins:
        console().print()
        print_table(_JOIN_COLUMNS, map(_join_row, found.joins))


async def _message(store: AsyncStore, id: str) -> tuple[OutboxDetail, Payload]:
    """Return a message, and its payload, which is not cut as on the console."""
    found = await outbox_message(store, id)
    return found, decode_payload(await whole_payload(store, id), found.encoding)


def retry(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID...", help="Failed messages.")
    ] = None,
    topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="All failed messages of this topic.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All failed messages.")] = False,
) -> None:
    """Retry failed messages."""
    if bool(ids) + (topic is not None) + every != 1:
        raise typer.BadParameter("give message ids, --topic or --all")
    with open_existing() as store:
        retried = store.outbox.retry_failed(ids or None, topic=topic)
    note(f"{counted(retried, 'message')} will be retried")
    if ids and retried < len(set(ids)):
        raise typer.Exit(1)


def list_joins(
    grouping_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Only joins with this grouping key.")
    ] = None,
    status: Annotated[
        str | None,
        typer.Option(
            metavar="STATUS", help="Only this status: pending, completed, failed or cancelled."
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, metavar="N", help="The maximum number of joins.")
    ] = 100,
    json: Json = False,
) -> None:
    """List joins, newest first, with their completed, failed and expected steps.

    A join that has timed out is listed with the pending ones until a dispatcher has resolved its
    wait, and shown as failed.
    """
    found, more = ask(
        lambda store: first_items(
            limit,
            lambda after, size: join_data.joins(
                store, status, after, size, grouping_key=grouping_key
            ),
        )
    )
    print_list(found, json, _JOIN_COLUMNS, _join_row)
    if more and not json:
        note("there are more: raise --limit")


_JOIN_COLUMNS = "join grouping_key status >completed >failed >expected"


def _join_row(one: JoinRow) -> tuple[object, ...]:
    steps = one.completed_steps, one.failed_steps, one.expected_steps
    return one.join_id, one.grouping_key, one.status, *steps


def show_join(id: JoinIdArgument, json: Json = False) -> None:
    """Show a join, its members, and what it still waits for. The first 200 members are listed."""
    found = ask(lambda store: join_data.join(store, id))
    if json:
        members = {"members": found.steps, "more_members": found.more_steps}
        facts = {"metadata": found.metadata, "waits_for": found.waits_for}
        print_json({**asdict(found.row), **facts, **members})
        return
    _print_fields(asdict(found.row))
    if found.waits_for:
        print_facts({"waits for": "; ".join(found.waits_for)})
    if found.steps:
        console().print()
        print_table(
            "member status topic error",
            (
                (one.message_id, one.status, one.topic or "(cleaned up)", one.last_error)
                for one in found.steps
            ),
        )
    if found.more_steps:
        note(f"the first {len(found.steps)} members")


def cancel(id: JoinIdArgument) -> None:
    """Cancel a join, so that it has no follow-up. Its steps continue."""
    with open_existing() as store:
        store.joins.cancel(id)
    note(f"join {id} cancelled")


def _print_fields(values: Mapping[str, object]) -> None:
    """Print the fields that have a value."""
    print_facts({k.replace("_", " "): v for k, v in values.items() if v is not None})


outbox = command_group(
    "outbox",
    "Count, show and retry messages of the outbox.",
    {"show": show_message, "retry": retry},
    overview,
)
joins = command_group(
    "joins",
    "List, show and cancel joins of the outbox.",
    {"show": show_join, "cancel": cancel},
    list_joins,
)
