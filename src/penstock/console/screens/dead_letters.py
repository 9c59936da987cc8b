"""Dead letters: everything that could not be handled, in one list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from penstock.console.data import dead_letter_detail
from penstock.console.data import dead_letters as data
from penstock.console.screen import Ask, Screen


async def dead_letters(ask: Ask) -> Mapping[str, Any]:
    """Return a page of dead letters, of one kind or of all."""
    kind, queues = ask.text("kind"), tuple(_errors_queues(ask.pipelines))
    after, limit = ask.text("after"), ask.limit()
    found = await data.dead_letters(ask.store, kind, after, limit, errors_queues=queues)
    letters = list(found.items)
    while found.next is not None and len(letters) < limit:  # a page ends with its kind
        left = limit - len(letters)
        found = await data.dead_letters(ask.store, kind, found.next, left, errors_queues=queues)
        letters += found.items
    return {"kind": kind, "letters": replace(found, items=tuple(letters)), "kinds": data.KINDS}


async def dead_letter(ask: Ask) -> Mapping[str, Any]:
    """Return one dead letter with its data."""
    return {"detail": await dead_letter_detail.dead_letter(ask.store, ask.need("key"))}


def _errors_queues(pipelines: Iterable[Any]) -> Iterable[str]:
    for pipeline in pipelines:
        for processor in pipeline.processors.values():
            if processor.errors:
                yield processor.errors


SCREENS = (
    Screen(
        *("/dead-letters", "dead letters", "Dead letters", "dead_letters.html", dead_letters),
        "Failed outbox messages, parked messages, parked partitions, and errors queues.",
        {
            "kind": f"one of {', '.join(data.KINDS)}",
            "after": "the `next` of the page before",
            "limit": "rows of a page, at most 200",
        },
    ),
    Screen(
        *("/dead-letters/letter", "dead letters", "Dead letter", "dead_letter.html", dead_letter),
        "One dead letter with its data.",
        {"key": "its key, as the list has it"},
        live=False,
    ),
)
