"""Operators' calls, as `store.admin`: list, move and remove readers, remove old messages."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from penstock.admin import backlogs, readers
from penstock.admin.backlogs import START, ConsumerStatus, SessionStatus
from penstock.admin.readers import HealthFigure
from penstock.consumers.parked import ParkedMessage, parked_stream
from penstock.consumers.parked_stream_async import read_parked, write_entries
from penstock.consumers.positions import StreamPositions
from penstock.errors import ValidationError, WriterNotFound
from penstock.log import archive as log_archive
from penstock.log import decision, overview
from penstock.log.archive import MAX_LOAD, Archived
from penstock.log.context import check_position
from penstock.log.decision import SnapshotStatus
from penstock.log.overview import OpenWriter
from penstock.log.retain_async import retain
from penstock.log.retention import Keep, Retained
from penstock.log.runs_async import AsyncRuns
from penstock.loops.concurrency_async import run_in_thread
from penstock.loops.durations import YEAR, Duration, seconds
from penstock.message import Message


class AsyncAdmin:
    """Operators' calls: list, move and remove readers; remove old messages; retry parked ones."""

    def __init__(self, runs: AsyncRuns) -> None:
        self._runs = runs

    async def health(self) -> list[HealthFigure]:
        """Return the store's figures: lags of readers, parked and failed work, ages of claims.

        The cost does not grow with the log, so you can call it every few seconds.
        """
        return await self._runs.run(readers.health(self._runs.context))

    async def release_writer(self, pid: int) -> OpenWriter:
        """End the open writer with this server process, which holds readers back; return it.

        Its transaction is rolled back, and its client gets an error. The role needs the privileges
        of `pg_signal_backend`, unless it is the writer's own.

        Raises `WriterNotFound` if no open transaction of that process has written to the log.
        """
        self._runs.context.require_penstock("release_writer")
        overview.check_pid(pid)
        status = await self._runs.run(overview.status(self._runs.context))
        found = next((one for one in status.open_writers if one.pid == pid), None)
        if found is None or not await self._runs.run(overview.terminate(pid)):
            raise WriterNotFound(pid)
        return found

    async def consumers(
        self, count_up_to: int = 10_000, *, after: tuple[str, str] = START, limit: int = 1_000
    ) -> list[ConsumerStatus]:
        """Return consumers that have stored a position, with their backlogs and parked messages.

        They are sorted by category and id, at most `limit` after those of `after`. A backlog is
        counted up to `count_up_to` messages, which limits the cost.
        """
        return await self._runs.run(
            backlogs.consumers(self._runs.context, count_up_to, after, limit)
        )

    async def consumer(
        self, category: str, consumer_id: str, count_up_to: int = 10_000
    ) -> ConsumerStatus | None:
        """Return one consumer with its backlog, None if it has stored no position."""
        return await self._runs.run(
            backlogs.consumer(self._runs.context, category, consumer_id, count_up_to)
        )

    async def sessions(
        self, count_up_to: int = 10_000, *, after: tuple[str, str] = START, limit: int = 1_000
    ) -> list[SessionStatus]:
        """Return consumers of queues, with their backlogs, counted up to `count_up_to`.

        They are sorted by queue and id, at most `limit` after those of `after`.
        """
        return await self._runs.run(
            backlogs.sessions(self._runs.context, count_up_to, after, limit)
        )

    async def session(
        self, queue: str, consumer_id: str, count_up_to: int = 10_000
    ) -> SessionStatus | None:
        """Return one consumer of a queue with its backlog, None if there is none."""
        return await self._runs.run(
            backlogs.session(self._runs.context, queue, consumer_id, count_up_to)
        )

    async def seek_session(self, queue: str, consumer_id: str, next_offset: int) -> int:
        """Move a queue's consumer to an offset, forwards or back, and return its previous offset.

        An open session is fenced; the next one resumes at the offset. An offset beyond the tail is
        refused.
        """
        return await self._runs.run(
            readers.move_session(self._runs.context, queue, consumer_id, next_offset)
        )

    async def remove_session(self, queue: str, consumer_id: str) -> None:
        """Remove a queue's consumer: retention no longer keeps what it has not read.

        An open session is fenced. A session that is opened later begins at offset 0.
        """
        await self._runs.run(readers.remove_session(self._runs.context, queue, consumer_id))

    async def offset_since(self, queue: str, moment: datetime) -> int:
        """Return the offset of a queue's first record written since `moment`, or its tail."""
        return await self._runs.run(readers.offset_since(self._runs.context, queue, moment))

    async def seek(
        self, category: str, consumer_id: str, position: int, kept_in: str = "stream"
    ) -> None:
        """Move a consumer to just after a global position, forwards or back; 0 is the beginning.

        A position beyond the end of the log is refused, since it would skip future messages.
        `kept_in` is where the consumer stores its position: "stream", "table" or "hybrid". A
        running consumer stops at its next save.
        """
        move = readers.move_consumer(self._runs.context, category, consumer_id, position, kept_in)
        end = await self._runs.run(readers.end_of_log())
        if position > end:
            raise ValidationError("position", position, f"at most {end}, the end of the log")
        await self._runs.run(move)

    async def remove_consumer(self, category: str, consumer_id: str) -> None:
        """Remove a consumer: retention no longer keeps what it has not read.

        Its position is deleted from the table and from its stream, with its parked messages. A
        running consumer stops at its next save. One that is started later is a new one, and begins
        at its `start`. Requires the owner's privileges.
        """
        removal = readers.remove_consumer(self._runs.context, category, consumer_id)
        positions = StreamPositions(category, consumer_id).stream_name
        for stream_name in (positions, parked_stream(category, consumer_id)):
            # a long stream in short transactions, up to its last message
            await retain(self._runs, stream_name, Keep(count=1), ignore_consumers=True)
        await self._runs.run(removal)

    async def replay(
        self, category: str, consumer_id: str, *, position: int = 1, since: datetime | None = None
    ) -> int:
        """Let a consumer handle messages again, and return the position that it resumes after.

        It begins with the message at `position`, or with the first one written at or after `since`.
        If the consumer has not reached that message, this is refused, since it would skip messages.
        """
        check_position("position", position, 1)
        target = position - 1
        if since is not None:
            target = await self.position_before(category, since)
        one = await self.consumer(category, consumer_id, count_up_to=1)
        if one is None:
            known = f"a consumer of {category} that has stored a position, as `consumers()` lists"
            raise ValidationError("consumer_id", consumer_id, known)
        if one.position is not None and target > one.position:
            expected = f"at most {one.position}, the position of {consumer_id}"
            raise ValidationError("position", target, expected)
        await self.seek(category, consumer_id, target, one.kept_in)
        return target

    async def position_before(self, category: str, moment: datetime) -> int:
        """Return the global position right before the first message written since `moment`."""
        return await self._runs.run(readers.position_before(self._runs.context, category, moment))

    async def retain(
        self,
        target: str,
        *,
        keep_count: int | None = None,
        keep_for: timedelta | None = None,
        keep_from: int | None = None,
        ignore_consumers: bool = False,
        archive: bool = False,
        progress: Callable[[int], None] = lambda removed: None,
    ) -> Retained:
        """Remove the oldest messages of a stream, category or queue, and return how many.

        Pass one of: the number of messages to keep, their age, or the first position to keep.
        Messages that a reader (a consumer, session, group or processor) has not read stay, unless
        `ignore_consumers` is true; the result names the reader. The last message of each stream
        stays, except of a stream that is named after its only message, as `append` makes them: that
        is removed whole. The last message of a category always stays. Requires the owner's
        privileges.

        With `archive`, the messages of a category are moved to the archive instead: see `archive`.
        """
        keep = Keep(keep_count, keep_for, keep_from)
        if archive:
            archived = await self._archive(
                target, keep, ignore_consumers=ignore_consumers, progress=progress
            )
            return Retained(archived.moved, None)
        return await retain(
            self._runs, target, keep, ignore_consumers=ignore_consumers, progress=progress
        )

    async def snapshots(self) -> list[SnapshotStatus]:
        """Return the deciders that have snapshots: how many each of their versions has."""
        return await self._runs.run(decision.list_snapshots(self._runs.context))

    async def remove_snapshots(
        self,
        decider: str,
        version: int | str | None = None,
        *,
        not_saved_for: Duration | None = None,
    ) -> int:
        """Remove the snapshots of a decider, and return how many.

        Pass a `version` to remove those of one version only, and `not_saved_for` (seconds or a
        timedelta) to keep those that were saved since. A decision without a snapshot reads its
        whole boundary.
        """
        age = not_saved_for
        if age is not None:
            age = timedelta(seconds=seconds("not_saved_for", age, most=1000 * YEAR))
        return await self._runs.run(
            decision.remove_snapshots(self._runs.context, decider, version, age)
        )

    async def parked(
        self, category: str, consumer_id: str, limit: int | None = 1_000
    ) -> list[ParkedMessage]:
        """Return the parked messages of a consumer that were neither handled nor dropped.

        They are in the order of parking, at most the last `limit`; None is for all.
        """
        if limit is not None:
            check_position("limit", limit, 1)
        stream_name = parked_stream(category, consumer_id)
        return list((await read_parked(self._runs, stream_name, limit)).messages)

    async def retry_parked(self, category: str, consumer_id: str, global_position: int) -> bool:
        """Request that the consumer handles a parked message again, when it is idle.

        Returns False if that was requested already.
        """
        retry = Message("RetryRequested", {"global_position": global_position})
        return await write_entries(
            *(self._runs, category, consumer_id, global_position),
            lambda one: [] if one.retry_requested else [retry],
        )

    async def drop_parked(self, category: str, consumer_id: str, global_position: int) -> None:
        """Drop a parked message. It will not be handled."""
        drop = Message("Dropped", {"global_position": global_position})
        await write_entries(
            *(self._runs, category, consumer_id, global_position), lambda one: [drop]
        )

    async def archive(
        self,
        category: str,
        older_than: Duration,
        *,
        ignore_consumers: bool = False,
        max_load: float = MAX_LOAD,
        reindex: bool = True,
        progress: Callable[[int], None] = lambda moved: None,
        reindexing: Callable[[str], None] = lambda index: None,
    ) -> Archived:
        """Move the messages of a category that are older than an age (seconds, timedelta) to files.

        The archive is an Iceberg table in the store's `warehouse`. Every read goes on there, so
        nothing changes for readers but the time that old messages take. As with `retain`, the last
        message of each stream stays in the database, except of a stream that is named after its
        only message. `progress` is called with the number of messages moved so far. `max_load` is
        the share of the time that it works: between batches it pauses, for the sake of writers.
        At the end, indexes of the log that are mostly empty by now are rebuilt while others write,
        unless `reindex` is false; `reindexing` is called with the name of each.

        If a consumer, group or processor has not read some of them, `UnreadMessages` is raised and
        nothing is moved, unless `ignore_consumers` is true. Requires the owner's privileges.
        """
        age = timedelta(seconds=seconds("older_than", older_than, most=1000 * YEAR))
        return await self._archive(
            category,
            Keep(age=age),
            ignore_consumers=ignore_consumers,
            max_load=max_load,
            reindex=reindex,
            progress=progress,
            reindexing=reindexing,
        )

    async def _archive(self, category: str, keep: Keep, **how: Any) -> Archived:
        return await run_in_thread(
            partial(log_archive.archive, self._runs.context, category, keep, **how)
        )
