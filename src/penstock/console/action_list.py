"""The actions: what each would do, and how it is done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.console.data import (
    actions,
    dead_letters,
    joins,
    outbox,
    partitions,
    pipelines,
    readers,
)
from penstock.console.data.dead_letters import Outcome
from penstock.console.data.readers import Preview
from penstock.console.screen import Ask, as_whole
from penstock.errors import ValidationError, WriterNotFound

#: dead letters that one action takes
_MOST = 200
#: batches of 1,000 messages that one action looks at
_BATCHES = 100


@dataclass(frozen=True)
class Done:
    """What an action has done."""

    summary: str
    #: of several things, what became of each
    outcomes: tuple[Outcome, ...] = ()


@dataclass(frozen=True)
class Action:
    """One action: its name in the address, and what it does."""

    name: str
    title: str
    preview: Callable[[Ask], Awaitable[Preview]]
    run: Callable[[Ask, str], Awaitable[Done]]
    #: whether it cannot be undone
    danger: bool = False
    #: fields that are not recorded
    private: tuple[str, ...] = ()


# writers


async def _preview_end_writer(ask: Ask) -> Preview:
    pid = _number(ask, "pid")
    status = await ask.store.status()
    found = next((one for one in status.open_writers if one.pid == pid), None)
    if found is None:
        raise WriterNotFound(pid)
    details = (
        str(found),
        f"What it has written from position {found.bound} on is rolled back.",
        "Its client gets an error, and may try again.",
    )
    return Preview(
        f"Ends the server process {pid}, which holds readers back.", details, found.bound
    )


async def _end_writer(ask: Ask, who: str) -> Done:
    pid, bound = _number(ask, "pid"), ask.whole("expected")
    await actions.end_writer(ask.store, pid, bound)
    return Done(f"The server process {pid} was ended.")


# readers


async def _preview_seek(ask: Ask) -> Preview:
    return await readers.preview_seek(
        ask.store, ask.need("category"), ask.need("consumer_id"), _number(ask, "position")
    )


async def _seek(ask: Ask, who: str) -> Done:
    category, consumer_id = ask.need("category"), ask.need("consumer_id")
    position = _number(ask, "position")
    await actions.seek(ask.store, category, consumer_id, position, ask.whole("expected"))
    return Done(f"{consumer_id} of {category} resumes after position {position:,}.")


async def _preview_replay(ask: Ask) -> Preview:
    return await readers.preview_replay(
        ask.store, ask.need("category"), ask.need("consumer_id"), await _replay_from(ask)
    )


async def _replay(ask: Ask, who: str) -> Done:
    category, consumer_id = ask.need("category"), ask.need("consumer_id")
    position = await _replay_from(ask)
    await actions.replay(ask.store, category, consumer_id, position, ask.whole("expected"))
    return Done(f"{consumer_id} of {category} handles messages again, from {position:,} on.")


async def _replay_from(ask: Ask) -> int:
    since = ask.moment("since")
    if since is None:
        return _number(ask, "position", 1)
    return await ask.store.admin.position_before(ask.need("category"), since) + 1


async def _preview_seek_queue(ask: Ask) -> Preview:
    return await readers.preview_seek_queue(
        ask.store, ask.need("queue"), ask.need("consumer_id"), _number(ask, "next_offset")
    )


async def _seek_queue(ask: Ask, who: str) -> Done:
    queue, consumer_id = ask.need("queue"), ask.need("consumer_id")
    offset, expected = _number(ask, "next_offset"), ask.whole("expected", 0) or 0
    await actions.seek_queue(ask.store, queue, consumer_id, offset, expected)
    return Done(f"{consumer_id} of the queue {queue} reads on from offset {offset:,}.")


# groups


async def _preview_reset(ask: Ask) -> Preview:
    return await readers.preview_reset(ask.store, ask.need("group_id"))


async def _reset(ask: Ask, who: str) -> Done:
    group_id = ask.need("group_id")
    await actions.reset_group(ask.store, group_id, ask.whole("expected", 0) or 0)
    return Done(f"Every partition of {group_id} starts again.")


async def _preview_stop(ask: Ask) -> Preview:
    group = await readers.group(ask.store, ask.need("group_id"))
    refused = None if group.status == "active" else f"{group.group_id} is {group.status} already."
    details = ("Claims that are out go on until they are settled.", "`Start` undoes it.")
    return Preview(f"Gives out no more claims of {group.group_id}.", details, None, refused)


async def _stop(ask: Ask, who: str) -> Done:
    await actions.stop_group(ask.store, ask.need("group_id"))
    return Done(f"{ask.need('group_id')} gives out no more claims.")


async def _preview_start(ask: Ask) -> Preview:
    group = await readers.group(ask.store, ask.need("group_id"))
    refused = None if group.status != "active" else f"{group.group_id} is active already."
    return Preview(f"Gives out claims of {group.group_id} again.", (), None, refused)


async def _start(ask: Ask, who: str) -> Done:
    await actions.start_group(ask.store, ask.need("group_id"))
    return Done(f"{ask.need('group_id')} gives out claims again.")


async def _preview_resume(ask: Ask) -> Preview:
    one = await partitions.partition(ask.store, ask.need("group_id"), ask.need("partition_key"))
    details = () if one.error is None else (f"It was parked with: {one.error}",)
    refused = None if one.state == "parked" else f"The partition is {one.state}, not parked."
    return Preview(
        "Resumes the partition: its next message is handled again.", details, None, refused
    )


async def _resume(ask: Ask, who: str) -> Done:
    key = ask.need("partition_key")
    await actions.resume_partition(ask.store, ask.need("group_id"), key)
    return Done(f"The partition {key} was resumed.")


async def _preview_resume_all(ask: Ask) -> Preview:
    group = await readers.group(ask.store, ask.need("group_id"))
    refused = None if group.parked.value else "No partition of the group is parked."
    details = ("The next message of each is handled again.",)
    return Preview(f"Resumes {group.parked} parked partitions.", details, None, refused)


async def _resume_all(ask: Ask, who: str) -> Done:
    count = await actions.resume_partitions(ask.store, ask.need("group_id"))
    return Done(f"{count:,} partitions were resumed.")


async def _preview_release(ask: Ask) -> Preview:
    one = await partitions.partition(ask.store, ask.need("group_id"), ask.need("partition_key"))
    refused = None if one.state == "claimed" else f"The partition is {one.state}, not claimed."
    details = (
        f"{one.claimed_by} has it since {one.claimed_at:%Y-%m-%d %H:%M:%S} UTC."
        if one.claimed_at is not None
        else "Nobody has it.",
        "Its worker cannot settle what it is doing; another one handles the message again.",
    )
    expected = None if one.claimed_at is None else one.claimed_at.isoformat()
    return Preview("Takes the partition from its worker.", details, expected, refused)


async def _release(ask: Ask, who: str) -> Done:
    key = ask.need("partition_key")
    worker = await actions.release_partition(
        ask.store, ask.need("group_id"), key, ask.moment("expected")
    )
    return Done(f"The partition {key} was taken from {worker}.")


# outbox and joins


async def _preview_retry_outbox(ask: Ask) -> Preview:
    row = (await outbox.outbox_message(ask.store, ask.uuid("id"))).row
    refused = None if row.state == "failed" else f"The message is {row.state}, not failed."
    details = () if row.last_error is None else (f"It failed with: {row.last_error}",)
    summary = f"Makes the message of {row.topic} ready again, with all its attempts."
    return Preview(summary, details, None, refused)


async def _retry_outbox(ask: Ask, who: str) -> Done:
    await actions.retry_outbox(ask.store, ask.uuid("id"))
    return Done("The message is ready again.")


async def _preview_cancel_outbox(ask: Ask) -> Preview:
    row = (await outbox.outbox_message(ask.store, ask.uuid("id"))).row
    waiting = row.state in ("ready", "asleep")
    refused = None if waiting else f"The message is {row.state}, not ready."
    details = ("Joins count it as failed.", "`Retry` makes it ready again.")
    summary = f"Fails the message of {row.topic}, so that it is not handled."
    return Preview(summary, details, None, refused)


async def _cancel_outbox(ask: Ask, who: str) -> Done:
    await actions.cancel_outbox(ask.store, ask.uuid("id"), who)
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
        found = await actions.retry_matching(ask.store, *which, after)
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
    await actions.cancel_join(ask.store, ask.uuid("id"))
    return Done("The join was cancelled.")


# dead letters


async def _preview_retry_letters(ask: Ask) -> Preview:
    return await _preview_letters(ask, "Retries", "retry")


async def _preview_drop_letters(ask: Ask) -> Preview:
    return await _preview_letters(ask, "Drops", "drop")


async def _preview_letters(ask: Ask, verb: str, what: str) -> Preview:
    keys = _keys(ask)
    if len(keys) == 1:
        detail = await dead_letters.dead_letter(ask.store, keys[0])
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
    return _counted("retried", await dead_letters.retry(ask.store, _keys(ask), who))


async def _drop_letters(ask: Ask, who: str) -> Done:
    return _counted("dropped", await dead_letters.drop(ask.store, _keys(ask), who))


async def _preview_edit(ask: Ask) -> Preview:
    detail = await dead_letters.dead_letter(ask.store, ask.need("key"))
    _edited(ask)
    can = "edit" in detail.letter.actions
    refused = None if can else "A copy of it cannot be edited."
    sentence = (detail.edit,) if detail.edit else ()
    return Preview("Retries an edited copy in its place.", sentence, None, refused)


async def _edit(ask: Ask, who: str) -> Done:
    done = await dead_letters.retry_edited(ask.store, ask.need("key"), _edited(ask), who)
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


# pipelines


async def _preview_retire(ask: Ask) -> Preview:
    pipeline, name = ask.need("pipeline"), ask.need("processor")
    found = (await pipelines.processor(ask.store, pipeline, name)).processor
    details = (
        "Use it for a processor that was removed from its pipeline.",
        "If it comes back, it goes on from where it was.",
    )
    refused = "It is retired already." if found.retired_at is not None else None
    if found.running is not None:
        refused = f"It is running ({found.running}): stop its pipeline first."
    summary = f"Retires {name} of {pipeline}: retention and alarms ignore it."
    return Preview(summary, details, None, refused)


async def _retire(ask: Ask, who: str) -> Done:
    pipeline, name = ask.need("pipeline"), ask.need("processor")
    await actions.retire_processor(ask.store, pipeline, name)
    return Done(f"{name} of {pipeline} was retired.")


def _number(ask: Ask, name: str, default: int | None = None) -> int:
    found = ask.text(name)
    if found is None:
        if default is None:
            raise ValidationError(name, None, "a whole number")
        return default
    return as_whole(name, found)


ACTIONS = {
    one.name: one
    for one in (
        Action("end-writer", "End a writer", _preview_end_writer, _end_writer, danger=True),
        Action("seek-consumer", "Seek a consumer", _preview_seek, _seek),
        Action("replay-consumer", "Replay messages", _preview_replay, _replay),
        Action("seek-queue", "Seek a queue's consumer", _preview_seek_queue, _seek_queue),
        Action("reset-group", "Reset a group", _preview_reset, _reset, danger=True),
        Action("stop-group", "Stop a group", _preview_stop, _stop),
        Action("start-group", "Start a group", _preview_start, _start),
        Action("resume-partition", "Resume a partition", _preview_resume, _resume),
        Action("resume-partitions", "Resume partitions", _preview_resume_all, _resume_all),
        Action("release-partition", "Release a partition", _preview_release, _release),
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
        Action("retire-processor", "Retire a processor", _preview_retire, _retire, danger=True),
    )
}
