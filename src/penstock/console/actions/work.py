"""What is done to work: outbox messages, joins, dead letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from penstock.console.actions.action import Action, Done
from penstock.console.data import (
    dead_letter_actions,
    dead_letter_detail,
    joins,
    outbox,
    outbox_actions,
)
from penstock.console.data.dead_letter_actions import Outcome
from penstock.console.data.previews import Preview
from penstock.console.screen import Ask
from penstock.errors import ValidationError

#: dead letters that one action takes
_MOST = 200
#: batches of 1,000 messages that one action looks at
_BATCHES = 100


async def _preview_retry_outbox(ask: Ask) -> Preview:
    row = (await outbox.outbox_message(ask.store, ask.uuid("id"))).row
    refused = None if row.state == "failed" else f"The message is {row.state}, not failed."
    details = () if row.last_error is None else (f"It failed with: {row.last_error}",)
    summary = f"Makes the message of {row.topic} ready again, with all its attempts."
    return Preview(summary, details, None, refused)


async def _retry_outbox(ask: Ask, who: str) -> Done:
    await outbox_actions.retry_outbox(ask.store, ask.uuid("id"))
    return Done("The message is ready again.")


async def _preview_cancel_outbox(ask: Ask) -> Preview:
    row = (await outbox.outbox_message(ask.store, ask.uuid("id"))).row
    waiting = row.state in ("ready", "asleep")
    refused = None if waiting else f"The message is {row.state}, not ready."
    details = ("Joins count it as failed.", "`Retry` makes it ready again.")
    summary = f"Fails the message of {row.topic}, so that it is not handled."
    return Preview(summary, details, None, refused)


async def _cancel_outbox(ask: Ask, who: str) -> Done:
    await outbox_actions.cancel_outbox(ask.store, ask.uuid("id"), who)
    return Done("The message was cancelled: it is failed now.")


async def _preview_retry_matching(ask: Ask) -> Preview:
    topic, text, since = ask.text("topic"), ask.text("error_contains"), ask.moment("failed_since")
    which = [
        f"of the topic {topic}" if topic else "of all topics",
        *([f"whose error contains “{text}”"] if text else []),
        *([f"that failed since {since:%Y-%m-%d %H:%M:%S} UTC"] if since else []),
    ]
    details = ("Each with all its attempts, and in batches: others can act meanwhile.",)
    return Preview(f"Retries every failed message {', '.join(which)}.", details, None)


async def _retry_matching(ask: Ask, who: str) -> Done:
    which = ask.text("topic"), ask.text("error_contains"), ask.moment("failed_since")
    count, after = 0, None
    for _ in range(_BATCHES):
        found = await outbox_actions.retry_matching(ask.store, *which, after)
        count, after = count + found.count, found.next
        if after is None:
            break
    more = "; there may be more: repeat it" if after is not None else ""
    return Done(f"{count:,} messages are ready again{more}.")


async def _preview_cancel_join(ask: Ask) -> Preview:
    found = await joins.join(ask.store, ask.uuid("id"))
    refused = None if found.row.status == "pending" else f"The join is {found.row.status}."
    summary = "Cancels the join: no message follows, and that is final."
    return Preview(summary, found.waits_for, None, refused)


async def _cancel_join(ask: Ask, who: str) -> Done:
    await outbox_actions.cancel_join(ask.store, ask.uuid("id"))
    return Done("The join was cancelled.")


# dead letters


async def _preview_retry_letters(ask: Ask) -> Preview:
    return await _preview_letters(ask, "Retries", "retry")


async def _preview_drop_letters(ask: Ask) -> Preview:
    return await _preview_letters(ask, "Drops", "drop")


async def _preview_letters(ask: Ask, verb: str, what: str) -> Preview:
    keys = _keys(ask)
    if len(keys) == 1:
        detail = await dead_letter_detail.dead_letter(ask.store, keys[0])
        sentence = detail.retry if what == "retry" else detail.drop
        summary = f"{verb} one dead letter of {detail.letter.where}."
        can = what in detail.letter.actions
        refused = None if can else f"It cannot be {'retried' if what == 'retry' else 'dropped'}."
        return Preview(summary, (sentence,) if sentence else (), None, refused)
    kinds = Counter(key.partition("/")[0] for key in keys)
    details = tuple(f"{count:,} of the kind {kind}" for kind, count in sorted(kinds.items()))
    each = "Each in a transaction of its own: what cannot be done is reported."
    return Preview(f"{verb} {len(keys):,} dead letters.", (*details, each), None)


async def _retry_letters(ask: Ask, who: str) -> Done:
    return _counted("retried", await dead_letter_actions.retry(ask.store, _keys(ask), who))


async def _drop_letters(ask: Ask, who: str) -> Done:
    return _counted("dropped", await dead_letter_actions.drop(ask.store, _keys(ask), who))


async def _preview_edit(ask: Ask) -> Preview:
    detail = await dead_letter_detail.dead_letter(ask.store, ask.need("key"))
    _edited(ask)
    can = "edit" in detail.letter.actions
    refused = None if can else "A copy of it cannot be edited."
    sentence = (detail.edit,) if detail.edit else ()
    return Preview("Retries an edited copy in its place.", sentence, None, refused)


async def _edit(ask: Ask, who: str) -> Done:
    done = await dead_letter_actions.retry_edited(ask.store, ask.need("key"), _edited(ask), who)
    return _counted("retried as an edited copy", (done,))


def _keys(ask: Ask) -> list[str]:
    keys = list(dict.fromkeys(ask.texts("key")))
    if not 1 <= len(keys) <= _MOST:
        raise ValidationError("key", len(keys), f"from 1 to {_MOST} dead letters")
    return keys


def _edited(ask: Ask) -> Any:
    if ask.plain.hidden:
        expected = "nothing: this console hides fields, which an edited copy would lose"
        raise ValidationError("data", "•••", expected)
    try:
        return msgspec.json.decode(ask.need("data"))
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValidationError("data", ask.need("data")[:200], f"JSON ({error})") from None


def _counted(verb: str, outcomes: Iterable[Outcome]) -> Done:
    listed = tuple(outcomes)
    done = sum(one.done for one in listed)
    if len(listed) == 1 and not done:
        return Done(f"Not {verb}: {listed[0].reason}", listed)
    left = f", {len(listed) - done:,} not" if done < len(listed) else ""
    return Done(f"{done:,} {verb}{left}.", listed)


ACTIONS = (
    Action("retry-outbox", "Retry a message", _preview_retry_outbox, _retry_outbox),
    Action(
        *("cancel-outbox", "Cancel a message", _preview_cancel_outbox, _cancel_outbox),
        danger=True,
    ),
    Action("retry-matching", "Retry messages", _preview_retry_matching, _retry_matching),
    Action("cancel-join", "Cancel a join", _preview_cancel_join, _cancel_join, danger=True),
    Action("retry-letters", "Retry dead letters", _preview_retry_letters, _retry_letters),
    Action(
        *("drop-letters", "Drop dead letters", _preview_drop_letters, _drop_letters),
        danger=True,
    ),
    Action("edit-letter", "Retry an edited copy", _preview_edit, _edit, private=("data",)),
)
