"""`penstock seek` and `penstock replay`: move a category consumer or a queue's consumer."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import typer

from penstock import Store
from penstock.admin.readers import ConsumerStatus, SessionStatus
from penstock.cli.printing import note
from penstock.cli.target import Folder, Url, open_existing, settings_for
from penstock.queues.operations import queue_of


class KeptIn(StrEnum):
    """Where a consumer stores its position."""

    STREAM = "stream"
    TABLE = "table"
    HYBRID = "hybrid"


Category = Annotated[
    str,
    typer.Argument(
        help="The consumer's category, '$all', or a queue's stream (queue-mail).",
        show_default=False,
    ),
]
ConsumerId = Annotated[str, typer.Argument(help="The consumer's id.", show_default=False)]
Kept = Annotated[
    KeptIn | None,
    typer.Option(
        "--kept-in",
        help="Where a consumer without a stored position will store it.",
        show_default=False,
    ),
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
            show_default=False,
        ),
    ],
    kept_in: Kept = None,
    url: Url = None,
    folder: Folder = None,
) -> None:
    """Move a consumer to a global position, or a queue's consumer to an offset.

    0 is the beginning. A running consumer stops when it next saves its position; a session fails at
    its next call.
    """
    with open_existing(settings_for(url, folder)) as store:
        if queue := _queue(category, kept_in):
            session = _session(store, queue, consumer_id)
            offset = session.tail if position == "end" else _position(position)
            _move_session(store, session, offset)
            return
        found = _found(store, category, consumer_id, kept_in)
        target = store.category_head(category) if position == "end" else _position(position)
        _move(store, category, consumer_id, target, found, kept_in)


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
    url: Url = None,
    folder: Folder = None,
) -> None:
    """Move a consumer, or a queue's consumer, back, so that it handles messages again.

    Never moves forward, so that no message is skipped.
    """
    if [position is not None, since is not None, beginning].count(True) != 1:
        raise typer.BadParameter("give one of --position, --since and --beginning")
    moment = None if since is None else _moment(since)
    queue = _queue(category, kept_in)
    if position == 0 and not queue:
        raise typer.BadParameter("--position 0: global positions start at 1")
    with open_existing(settings_for(url, folder)) as store:
        if queue:
            _replay_session(store, _session(store, queue, consumer_id), position or 0, moment)
            return
        found = _found(store, category, consumer_id, kept_in)
        target = 0
        if position is not None:
            target = position - 1
        elif moment is not None:
            target = store.admin.position_before(category, moment)
        if found is not None and found.position is not None and target > found.position:
            raise typer.BadParameter(
                f"{consumer_id} is at {found.position}, before this point: nothing to replay"
            )
        _move(store, category, consumer_id, target, found, kept_in)


def _replay_session(
    store: Store, session: SessionStatus, offset: int, moment: datetime | None
) -> None:
    if moment is not None:
        offset = store.admin.offset_since(session.queue, moment)
    if offset > session.next_offset:
        raise typer.BadParameter(
            f"{session.consumer_id} is at offset {session.next_offset}, before this point: "
            "nothing to replay"
        )
    _move_session(store, session, offset)


def _move_session(store: Store, session: SessionStatus, offset: int) -> None:
    before = store.admin.seek_session(session.queue, session.consumer_id, offset)
    note(f"{session.consumer_id} of queue {session.queue}: moved from offset {before} to {offset}")


def _queue(target: str, kept_in: KeptIn | None) -> str | None:
    """Return the queue's name if the target is a queue's stream, else None."""
    if not target.startswith("queue-"):
        return None
    if kept_in is not None:
        raise typer.BadParameter("--kept-in is for consumers of categories, not of queues")
    return queue_of(target)


def _session(store: Store, queue: str, consumer_id: str) -> SessionStatus:
    """Return the queue's consumer; refuse an unknown one."""
    for one in store.admin.sessions(count_up_to=1):
        if (one.queue, one.consumer_id) == (queue, consumer_id):
            return one
    raise typer.BadParameter(
        f"no session of {consumer_id} was opened on queue {queue}: see `penstock consumers`"
    )


def _move(
    store: Store,
    category: str,
    consumer_id: str,
    target: int,
    found: ConsumerStatus | None,
    kept_in: KeptIn | None,
) -> None:
    kept = kept_in.value if kept_in else found.kept_in if found else KeptIn.STREAM.value
    store.admin.seek(category, consumer_id, target, kept)
    before = "no position" if found is None or found.position is None else str(found.position)
    note(f"{consumer_id} of {category}: moved from {before} to {target}")


def _found(
    store: Store, category: str, consumer_id: str, kept_in: KeptIn | None
) -> ConsumerStatus | None:
    """Return the consumer; refuse an unknown one unless `kept_in` is given."""
    if not store.context.edition.has_watermark:
        return None  # a genuine Message DB has no list of consumers
    for one in store.admin.consumers(count_up_to=1):
        if (one.category, one.consumer_id) == (category, consumer_id):
            return one
    if kept_in is None:
        sessions = store.admin.sessions(count_up_to=1)
        known = any((one.queue, one.consumer_id) == (category, consumer_id) for one in sessions)
        hint = f"; for the queue of this name, give queue-{category}" if known else ""
        raise typer.BadParameter(
            f"no consumer {consumer_id} of {category} has stored a position: "
            f"see `penstock consumers`, or give --kept-in for a new consumer{hint}"
        )
    return None


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
