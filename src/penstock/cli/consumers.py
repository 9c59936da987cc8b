"""`penstock consumers` and `penstock parked`: list and remove readers, and messages set aside."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import msgspec
import typer

from penstock import Store
from penstock.admin import ConsumerStatus, SessionStatus
from penstock.cli.printing import (
    console,
    counted,
    note,
    print_json,
    print_list,
    print_table,
)
from penstock.cli.target import Json, Yes, command_group, confirm, open_existing
from penstock.loops.durations import shown_age
from penstock.queues.operations import queue_of

Category = Annotated[
    str, typer.Argument(help="The consumer's category, '$all', or a queue's stream (queue-mail).")
]
ConsumerId = Annotated[str, typer.Argument(help="The consumer's id.")]
Positions = Annotated[
    list[int] | None,
    typer.Argument(metavar="POSITION...", help="Global positions of parked messages."),
]
All = Annotated[bool, typer.Option("--all", help="All parked messages.")]
Limit = Annotated[int, typer.Option(min=1, metavar="N", help="The maximum number to list.")]


def overview(
    count_up_to: Annotated[
        int, typer.Option(min=1, metavar="N", help="Stop counting waiting messages at this number.")
    ] = 10_000,
    limit: Limit = 1_000,
    json: Json = False,
) -> None:
    """List consumers with a stored position, and sessions of queues.

    `behind` is the number of messages of the category after the position, or of records of the
    queue from the next offset. `for` is how long the first of them has been waiting. `parked` is
    the number of parked messages, and `last error` the error of the newest.
    """
    with open_existing() as store:
        found = store.admin.consumers(count_up_to, limit=limit)
        sessions = store.admin.sessions(count_up_to, limit=limit)
    if json:
        readers: list[ConsumerStatus | SessionStatus] = [*found, *sessions]
        for one in readers:
            print_json(msgspec.to_builtins(one) | {"seconds_behind": one.seconds_behind})
        return
    print_table(
        "category consumer kept_in >position >head >behind >for >parked >updated last_error",
        (
            (
                one.category,
                one.consumer_id,
                one.kept_in,
                "?" if one.position is None else one.position,
                one.head,
                *_backlog(one, count_up_to),
                f"{one.parked}{'+' * (one.parked_at_least and one.parked > 0)}",
                _updated(one),
                one.last_error,
            )
            for one in found
        ),
    )
    if any(one.position is None for one in found):
        note("? is an invalid position: that consumer cannot start; set one with `penstock seek`")
    if sessions:
        console().print()
        print_table(
            "queue consumer >next_offset >tail >behind >for >updated",
            (
                (
                    one.queue,
                    one.consumer_id,
                    one.next_offset,
                    one.tail,
                    *_backlog(one, count_up_to),
                    _updated(one),
                )
                for one in sessions
            ),
        )
    if limit in (len(found), len(sessions)):
        note("there may be more: raise --limit")


def _backlog(one: ConsumerStatus | SessionStatus, count_up_to: int) -> tuple[str, object]:
    return (
        f"{one.behind}+" if one.behind == count_up_to else str(one.behind),
        timedelta(seconds=one.seconds_behind) if one.behind else "-",
    )


def _updated(one: ConsumerStatus | SessionStatus) -> str:
    return f"{shown_age(one.as_of - one.updated_at)} ago"


def remove(category: Category, consumer_id: ConsumerId, yes: Yes = False) -> None:
    """Remove a consumer, or a queue's consumer, that is gone for good.

    Retention no longer keeps what it has not read. Deletes its position, wherever it is kept, and
    its parked messages; this requires the role that owns the schema, unless it is a queue's
    consumer. A running consumer stops when it next saves its position; a session fails at its next
    call.
    """
    with open_existing() as store:
        if category.startswith("queue-"):
            _remove_session(store, queue_of(category), consumer_id, yes)
        else:
            _remove_consumer(store, category, consumer_id, yes)
    note(f"{consumer_id} of {category} removed")


def _remove_session(store: Store, queue: str, consumer_id: str, yes: bool) -> None:
    one = store.admin.session(queue, consumer_id, count_up_to=1)
    if one is not None:
        confirm(f"remove {consumer_id} of queue {queue}, at offset {one.next_offset}?", yes)
    store.admin.remove_session(queue, consumer_id)


def _remove_consumer(store: Store, category: str, consumer_id: str, yes: bool) -> None:
    one = store.admin.consumer(category, consumer_id, count_up_to=1)
    if one is not None:
        parked = counted(len(store.admin.parked(category, consumer_id, None)), "parked message")
        place = f"at position {one.position}, with {parked}"
        confirm(f"remove {consumer_id} of {category}, {place}?", yes)
    store.admin.remove_consumer(category, consumer_id)


def list_parked(
    category: Category, consumer_id: ConsumerId, limit: Limit = 1_000, json: Json = False
) -> None:
    """List the last parked messages with their errors, in the order of parking."""
    with open_existing() as store:
        found = store.admin.parked(category, consumer_id, limit)
    print_list(
        found,
        json,
        ">position type stream >attempts error parked",
        lambda one: (
            one.message.global_position,
            one.message.type,
            one.message.stream_name,
            f"{one.attempts}{', retry requested' if one.retry_requested else ''}",
            one.error,
            one.parked_at,
        ),
    )
    if len(found) == limit and not json:
        note("there may be more, parked before: raise --limit")


def retry_parked(
    category: Category, consumer_id: ConsumerId, positions: Positions = None, every: All = False
) -> None:
    """Retry parked messages, as soon as the consumer runs and is idle."""
    with open_existing() as store:
        chosen = _chosen(store, category, consumer_id, positions, every)
        for position in chosen:
            store.admin.retry_parked(category, consumer_id, position)
    note(f"{counted(len(chosen), 'message')} will be retried")


def drop_parked(
    category: Category, consumer_id: ConsumerId, positions: Positions = None, every: All = False
) -> None:
    """Drop parked messages, so that the consumer never handles them."""
    with open_existing() as store:
        chosen = _chosen(store, category, consumer_id, positions, every)
        for position in chosen:
            store.admin.drop_parked(category, consumer_id, position)
    note(f"{counted(len(chosen), 'message')} dropped")


def _chosen(
    store: Store, category: str, consumer_id: str, positions: list[int] | None, every: bool
) -> list[int]:
    if bool(positions) == every:
        raise typer.BadParameter("give global positions or --all")
    parked = store.admin.parked(category, consumer_id, None) if every else []
    return positions or [one.message.global_position for one in parked]


consumers = command_group(
    "consumers", "List and remove consumers and sessions.", {"remove": remove}, overview
)
parked = command_group(
    "parked",
    "List, retry and drop messages that a consumer has parked.",
    {"list": list_parked, "retry": retry_parked, "drop": drop_parked},
)
