"""`penstock seek` and `penstock replay`: move a category consumer or a queue's consumer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import Annotated

import typer

from penstock import Store
from penstock.admin import ConsumerStatus, SessionStatus
from penstock.cli.consumers import Category, ConsumerId
from penstock.cli.printing import note
from penstock.cli.target import open_existing
from penstock.queues.operations import queue_of

#: where a consumer stores its position
KeptIn = StrEnum("KeptIn", ["stream", "table", "hybrid"])
Kept = Annotated[
    KeptIn | None,
    typer.Option("--kept-in", help="Where a consumer without a stored position will store it."),
]
Since = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="From the first message at or after this time: 2026-05-01T12:00, UTC or +02:00.",
    ),
]


def seek(
    category: Category,
    consumer_id: ConsumerId,
    position: Annotated[
        str,
        typer.Argument(
            metavar="N|end",
            help="The global position to continue after; for a queue, the next offset.",
        ),
    ],
    kept_in: Kept = None,
) -> None:
    """Move a consumer to a global position, or a queue's consumer to an offset.

    0 is the beginning. A running consumer stops when it next saves its position; a session fails at
    its next call.
    """
    with open_existing() as store:
        reader = _reader(store, category, consumer_id, kept_in)
        reader.move(reader.end() if position == "end" else _position(position))


def replay(
    category: Category,
    consumer_id: ConsumerId,
    position: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="From the message at this global position; for a queue, from this offset.",
        ),
    ] = None,
    since: Since = None,
    beginning: Annotated[bool, typer.Option("--beginning", help="From the first message.")] = False,
    kept_in: Kept = None,
) -> None:
    """Move a consumer, or a queue's consumer, back, so that it handles messages again.

    Never moves forward, so that no message is skipped.
    """
    if [position is not None, since is not None, beginning].count(True) != 1:
        raise typer.BadParameter("give one of --position, --since and --beginning")
    moment = None if since is None else _moment(since)
    if position is not None and not category.startswith("queue-"):
        if position == 0:
            raise typer.BadParameter("--position 0: global positions start at 1")
        position -= 1  # a consumer continues after its position
    with open_existing() as store:
        reader = _reader(store, category, consumer_id, kept_in)
        target = (position or 0) if moment is None else reader.before(moment)
        if reader.position is not None and target > reader.position:
            raise typer.BadParameter(
                f"{consumer_id} is at {reader.unit}{reader.position}, before this point: "
                "nothing to replay"
            )
        reader.move(target)


@dataclass(frozen=True)
class _Reader:
    """A consumer of a category with its global position, or of a queue with its next offset."""

    name: str
    position: int | None
    unit: str
    end: Callable[[], int]
    #: where to continue so that messages since a moment are handled again
    before: Callable[[datetime], int]
    seek: Callable[[int], object]

    def move(self, target: int) -> None:
        self.seek(target)
        before = "no position" if self.position is None else f"{self.unit}{self.position}"
        note(f"{self.name}: moved from {before} to {target}")


def _reader(store: Store, target: str, consumer_id: str, kept_in: KeptIn | None) -> _Reader:
    if not target.startswith("queue-"):
        found = _consumer(store, target, consumer_id, kept_in)
        kept = kept_in or (found.kept_in if found else "stream")
        return _Reader(
            f"{consumer_id} of {target}",
            found.position if found else None,
            unit="",
            end=partial(store.category_head, target),
            before=partial(store.admin.position_before, target),
            seek=lambda position: store.admin.seek(target, consumer_id, position, str(kept)),
        )
    if kept_in is not None:
        raise typer.BadParameter("--kept-in is for consumers of categories, not of queues")
    queue = queue_of(target)
    session = _session(store, queue, consumer_id)
    if session is None:
        raise typer.BadParameter(
            f"no session of {consumer_id} was opened on queue {queue}: see `penstock consumers`"
        )
    return _Reader(
        f"{consumer_id} of queue {queue}",
        session.next_offset,
        unit="offset ",
        end=lambda: session.tail,
        before=partial(store.admin.offset_since, queue),
        seek=partial(store.admin.seek_session, queue, consumer_id),
    )


def _consumer(
    store: Store, category: str, consumer_id: str, kept_in: KeptIn | None
) -> ConsumerStatus | None:
    """Return the consumer; refuse an unknown one unless `kept_in` is given."""
    if not store.context.edition.has_watermark:
        return None  # a genuine Message DB has no list of consumers
    one = store.admin.consumer(category, consumer_id, count_up_to=1)
    if one is None and kept_in is None:
        known = _session(store, category, consumer_id)
        hint = f"; for the queue of this name, give queue-{category}" if known else ""
        raise typer.BadParameter(
            f"no consumer {consumer_id} of {category} has stored a position: "
            f"see `penstock consumers`, or give --kept-in for a new consumer{hint}"
        )
    return one


def _session(store: Store, queue: str, consumer_id: str) -> SessionStatus | None:
    return store.admin.session(queue, consumer_id, count_up_to=1)


def _position(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise typer.BadParameter(f"{text}: expected a position, or end")
    return int(text)


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text}: expected a time such as 2026-05-01T12:00:00Z") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
