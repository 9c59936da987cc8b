"""What is done to readers and writers: consumers, queues' consumers, groups, open writers."""

from __future__ import annotations

from penstock.console.actions.action import Action, Done, number
from penstock.console.data import consumers, groups, partitions, previews, reader_actions
from penstock.console.data.previews import Preview
from penstock.console.screen import Ask
from penstock.errors import WriterNotFound


async def _preview_end_writer(ask: Ask) -> Preview:
    pid = number(ask, "pid")
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
    pid, bound = number(ask, "pid"), ask.whole("expected")
    await reader_actions.end_writer(ask.store, pid, bound)
    return Done(f"The server process {pid} was ended.")


# readers


async def _preview_seek(ask: Ask) -> Preview:
    return await previews.preview_seek(
        ask.store, ask.need("category"), ask.need("consumer_id"), number(ask, "position")
    )


async def _seek(ask: Ask, who: str) -> Done:
    category, consumer_id = ask.need("category"), ask.need("consumer_id")
    position = number(ask, "position")
    await reader_actions.seek(ask.store, category, consumer_id, position, ask.whole("expected"))
    return Done(f"{consumer_id} of {category} resumes after position {position:,}.")


async def _preview_replay(ask: Ask) -> Preview:
    return await previews.preview_replay(
        ask.store, ask.need("category"), ask.need("consumer_id"), await _replay_from(ask)
    )


async def _replay(ask: Ask, who: str) -> Done:
    category, consumer_id = ask.need("category"), ask.need("consumer_id")
    position = await _replay_from(ask)
    await reader_actions.replay(ask.store, category, consumer_id, position, ask.whole("expected"))
    return Done(f"{consumer_id} of {category} handles messages again, from {position:,} on.")


async def _replay_from(ask: Ask) -> int:
    since = ask.moment("since")
    if since is None:
        return number(ask, "position", 1)
    return await ask.store.admin.position_before(ask.need("category"), since) + 1


async def _preview_retry_parked(ask: Ask) -> Preview:
    one = await consumers.consumer(ask.store, ask.need("category"), ask.need("consumer_id"))
    refused = None if one.parked.value else "The consumer has parked nothing."
    details = (
        *((f"The last was parked with: {one.last_error}",) if one.last_error else ()),
        "The consumer handles them again when it is idle, and parks again what fails.",
    )
    summary = f"Retries the {one.parked} parked messages of {one.consumer_id}."
    return Preview(summary, details, None, refused)


async def _retry_parked(ask: Ask, who: str) -> Done:
    category, consumer_id = ask.need("category"), ask.need("consumer_id")
    count, more = await reader_actions.retry_parked(ask.store, category, consumer_id)
    left = "; there may be more: repeat it when these are handled" if more else ""
    return Done(f"{count:,} messages are retried as soon as {consumer_id} is idle{left}.")


async def _preview_seek_queue(ask: Ask) -> Preview:
    return await previews.preview_seek_queue(
        ask.store, ask.need("queue"), ask.need("consumer_id"), number(ask, "next_offset")
    )


async def _seek_queue(ask: Ask, who: str) -> Done:
    queue, consumer_id = ask.need("queue"), ask.need("consumer_id")
    offset, expected = number(ask, "next_offset"), ask.whole("expected", 0) or 0
    await reader_actions.seek_queue(ask.store, queue, consumer_id, offset, expected)
    return Done(f"{consumer_id} of the queue {queue} reads on from offset {offset:,}.")


# groups


async def _preview_reset(ask: Ask) -> Preview:
    return await previews.preview_reset(ask.store, ask.need("group_id"))


async def _reset(ask: Ask, who: str) -> Done:
    group_id = ask.need("group_id")
    await reader_actions.reset_group(ask.store, group_id, ask.whole("expected", 0) or 0)
    return Done(f"Every partition of {group_id} starts again.")


async def _preview_stop(ask: Ask) -> Preview:
    group = await groups.group(ask.store, ask.need("group_id"))
    refused = None if group.status == "active" else f"{group.group_id} is {group.status} already."
    details = ("Claims that are out go on until they are settled.", "`Start` undoes it.")
    return Preview(f"Gives out no more claims of {group.group_id}.", details, None, refused)


async def _stop(ask: Ask, who: str) -> Done:
    await reader_actions.stop_group(ask.store, ask.need("group_id"))
    return Done(f"{ask.need('group_id')} gives out no more claims.")


async def _preview_start(ask: Ask) -> Preview:
    group = await groups.group(ask.store, ask.need("group_id"))
    refused = None if group.status != "active" else f"{group.group_id} is active already."
    return Preview(f"Gives out claims of {group.group_id} again.", (), None, refused)


async def _start(ask: Ask, who: str) -> Done:
    await reader_actions.start_group(ask.store, ask.need("group_id"))
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
    await reader_actions.resume_partition(ask.store, ask.need("group_id"), key)
    return Done(f"The partition {key} was resumed.")


async def _preview_resume_all(ask: Ask) -> Preview:
    group = await groups.group(ask.store, ask.need("group_id"))
    refused = None if group.parked.value else "No partition of the group is parked."
    details = ("The next message of each is handled again.",)
    return Preview(f"Resumes {group.parked} parked partitions.", details, None, refused)


async def _resume_all(ask: Ask, who: str) -> Done:
    count = await reader_actions.resume_partitions(ask.store, ask.need("group_id"))
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
    worker = await reader_actions.release_partition(
        ask.store, ask.need("group_id"), key, ask.moment("expected")
    )
    return Done(f"The partition {key} was taken from {worker}.")


ACTIONS = (
    Action("end-writer", "End a writer", _preview_end_writer, _end_writer, danger=True),
    Action("seek-consumer", "Seek a consumer", _preview_seek, _seek),
    Action("replay-consumer", "Replay messages", _preview_replay, _replay),
    Action("retry-parked", "Retry parked messages", _preview_retry_parked, _retry_parked),
    Action("seek-queue", "Seek a queue's consumer", _preview_seek_queue, _seek_queue),
    Action("reset-group", "Reset a group", _preview_reset, _reset, danger=True),
    Action("stop-group", "Stop a group", _preview_stop, _stop),
    Action("start-group", "Start a group", _preview_start, _start),
    Action("resume-partition", "Resume a partition", _preview_resume, _resume),
    Action("resume-partitions", "Resume partitions", _preview_resume_all, _resume_all),
    Action("release-partition", "Release a partition", _preview_release, _release),
)
