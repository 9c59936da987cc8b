"""`penstock outbox`: count, show and retry messages of the outbox."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from typing import Annotated

import msgspec
import typer

from penstock import OutboxMessage, TopicState
from penstock.cli.printing import (
    console,
    facts,
    note,
    print_json,
    printable,
    shown_time,
    table,
)
from penstock.cli.target import Folder, Json, Url, open_existing, settings_for
from penstock.outbox.messages import STATES

outbox = typer.Typer(name="outbox", help="Count, show and retry messages of the outbox.")

Failures = Annotated[
    int, typer.Option(metavar="N", min=1, help="The number of failed messages to show.")
]

MessageId = Annotated[
    str, typer.Argument(metavar="ID", help="The message's id.", show_default=False)
]


@outbox.callback(invoke_without_command=True)
def overview(
    context: typer.Context,
    failures: Failures = 20,
    json: Json = False,
    url: Url = None,
    folder: Folder = None,
) -> None:
    """Count the messages of the outbox by topic and state, and list failed ones.

    `oldest ready` is when the first message that waits for a handler became due. `last error` is
    the error of that message, for instance that no dispatcher has a handler for its topic.
    """
    if context.invoked_subcommand:
        return
    with open_existing(settings_for(url, folder)) as store:
        topics = by_topic(store.outbox.summary())
        failed = store.outbox.list(state="failed", limit=failures)
    if json:
        print_json({"topics": topics, "failed": failed})
        return
    _print_topics(topics)
    if failed:
        _print_failures(failed, sum(int(str(row["failed"])) for row in topics))


@outbox.command()
def show(id: MessageId, json: Json = False, url: Url = None, folder: Folder = None) -> None:
    """Show one message, in any state."""
    with open_existing(settings_for(url, folder)) as store:
        message = store.outbox.get(id)
    if json:
        print_json(message)
        return
    shown = {
        field.name.replace("_", " "): _shown(getattr(message, field.name))
        for field in fields(message)
        if getattr(message, field.name) is not None or field.name == "payload"
    }
    console().print(facts(shown))


@outbox.command()
def retry(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID...", help="Failed messages.", show_default=False),
    ] = None,
    topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="All failed messages of this topic.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All failed messages.")] = False,
    url: Url = None,
    folder: Folder = None,
) -> None:
    """Retry failed messages."""
    if bool(ids) + (topic is not None) + every != 1:
        raise typer.BadParameter("give message ids, --topic or --all")
    with open_existing(settings_for(url, folder)) as store:
        retried = store.outbox.retry_failed(ids or None, topic=topic)
    note(f"{retried} {'message' if retried == 1 else 'messages'} will be retried")
    if ids and retried < len(set(ids)):
        raise typer.Exit(1)


def by_topic(summary: Sequence[TopicState]) -> list[dict[str, object]]:
    """Return one row per topic: the number of messages in each state, and the oldest ready."""
    rows: dict[str, dict[str, object]] = {}
    for one in summary:
        row = rows.setdefault(one.topic, {"topic": one.topic, **dict.fromkeys(STATES, 0)})
        row[one.state] = one.count
        if one.state == "ready":
            row["oldest_ready"], row["last_error"] = one.oldest, one.last_error
    return [{"oldest_ready": None, "last_error": None, **row} for row in rows.values()]


def _print_topics(topics: list[dict[str, object]]) -> None:
    listed = table(
        topic="left",
        ready="right",
        in_progress="right",
        done="right",
        failed="right",
        oldest_ready="left",
        last_error="left",
    )
    for row in topics:
        counts = [str(row[state]) for state in STATES]
        oldest = row["oldest_ready"]
        since = shown_time(oldest) if isinstance(oldest, datetime) else ""
        error = printable(str(row["last_error"] or ""))
        listed.add_row(printable(str(row["topic"])), *counts, since, error)
    console().print(listed)


def _print_failures(failed: Sequence[OutboxMessage], in_all: int) -> None:
    listed = table(failed="left", topic="left", attempts="right", error="left")
    for one in failed:
        listed.add_row(
            str(one.id), printable(one.topic), str(one.attempts), printable(one.last_error or "")
        )
    out = console()
    out.print()
    out.print(listed)
    if len(failed) < in_all:
        note(f"the oldest {len(failed)} of {in_all} failed messages: --failures N shows more")


def _shown(value: object) -> str:
    if isinstance(value, datetime):
        return shown_time(value)
    if isinstance(value, dict | list | bool) or value is None:
        return printable(msgspec.json.encode(value).decode())
    return printable(str(value))
