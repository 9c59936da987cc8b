"""`penstock seek` and `penstock replay`: put a consumer somewhere else."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import typer

from penstock import Store
from penstock.cli.printing import note
from penstock.cli.target import Folder, Url, open_existing, settings_for
from penstock.consumers.overview import ConsumerStatus


class KeptIn(StrEnum):
    """Where a consumer keeps its position."""

    STREAM = "stream"
    TABLE = "table"
    HYBRID = "hybrid"


Category = Annotated[
    str, typer.Argument(help="The category it reads, or '$all'.", show_default=False)
]
ConsumerId = Annotated[str, typer.Argument(help="The consumer's id.", show_default=False)]
Kept = Annotated[
    KeptIn | None,
    typer.Option(
        "--kept-in",
        help="For a consumer that has stored no position yet: where it will look for one.",
        show_default=False,
    ),
]
Since = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help="From the first message written then: 2026-05-01T12:00, UTC or +02:00."
    ),
]


def seek(
    category: Category,
    consumer_id: ConsumerId,
    position: Annotated[
        str,
        typer.Argument(
            metavar="N|end", help="It goes on right after this global position.", show_default=False
        ),
    ],
    kept_in: Kept = None,
    url: Url = None,
    folder: Folder = None,
) -> None:
    """Put a consumer right after a global position, forwards or back.

    0 is the beginning. A consumer that is running notices at its next save, and stops.
    """
    with open_existing(settings_for(url, folder)) as store:
        found = _found(store, category, consumer_id, kept_in)
        target = store.category_head(category) if position == "end" else _whole(position)
        _move(store, category, consumer_id, target, found, kept_in)


def replay(
    category: Category,
    consumer_id: ConsumerId,
    position: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="From the message at this global position."),
    ] = None,
    since: Since = None,
    beginning: Annotated[bool, typer.Option("--beginning", help="From the first message.")] = False,
    kept_in: Kept = None,
    url: Url = None,
    folder: Folder = None,
) -> None:
    """Have a consumer handle messages again, from some point on.

    It never moves a consumer forwards: what it has not handled yet is not left out.
    """
    if [position is not None, since is not None, beginning].count(True) != 1:
        raise typer.BadParameter("give one of --position, --since and --beginning")
    moment = None if since is None else _moment(since)
    with open_existing(settings_for(url, folder)) as store:
        found = _found(store, category, consumer_id, kept_in)
        target = 0
        if position is not None:
            target = position - 1
        elif moment is not None:
            target = store.position_before(category, moment)
        if found is not None and found.position is not None and target > found.position:
            raise typer.BadParameter(
                f"{consumer_id} is at {found.position} and has not come so far: nothing to replay"
            )
        _move(store, category, consumer_id, target, found, kept_in)


def _move(
    store: Store,
    category: str,
    consumer_id: str,
    target: int,
    found: ConsumerStatus | None,
    kept_in: KeptIn | None,
) -> None:
    kept = kept_in.value if kept_in else found.kept_in if found else KeptIn.STREAM.value
    store.move_consumer(category, consumer_id, target, kept)
    before = "nowhere" if found is None or found.position is None else str(found.position)
    note(f"{consumer_id} of {category}: from {before} to {target}; it goes on after that")


def _found(
    store: Store, category: str, consumer_id: str, kept_in: KeptIn | None
) -> ConsumerStatus | None:
    """Return the consumer; refuse one that nobody knows, which may be a slip of the pen."""
    if not store.context.edition.has_watermark:
        return None  # a genuine Message DB, which knows only streams
    for one in store.consumers(count_up_to=1):
        if (one.category, one.consumer_id) == (category, consumer_id):
            return one
    if kept_in is None:
        raise typer.BadParameter(
            f"no consumer {consumer_id} of {category} has stored a position: "
            "see `penstock consumers`, or give --kept-in for one that is to come"
        )
    return None


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise typer.BadParameter(f"{text}: a global position, or end")
    return int(text)


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text}: a time such as 2026-05-01T12:00:00Z") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
