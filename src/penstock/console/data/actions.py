"""What the console changes. Each action is safe against a second person who does the same.

`expected` is what a preview has returned: the action is refused with `StateChanged` if it differs
by now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from penstock.console.data.log import MessageRow
from penstock.console.data.overview import HoldingBack
from penstock.store_async import AsyncStore

#: the stream of what was done on the console
AUDIT_STREAM = "penstock:console-actions"


@dataclass(frozen=True, slots=True)
class Retried:
    """How many messages of a filter were retried, and whether there may be more."""

    count: int
    more: bool


async def record_action(store: AsyncStore, who: str, what: str, facts: Mapping[str, Any]) -> int:
    """Write what somebody did to the stream of actions; return the message's global position."""
    raise NotImplementedError


async def recorded_actions(store: AsyncStore, limit: int = 50) -> tuple[MessageRow, ...]:
    """Return what was done last, newest first."""
    raise NotImplementedError


async def end_writer(store: AsyncStore, pid: int, bound: int | None = None) -> HoldingBack:
    """End an open writer, and return it. With `bound`, only if it still holds that back."""
    raise NotImplementedError


async def seek(
    store: AsyncStore, category: str, consumer_id: str, position: int, expected: int | None
) -> None:
    """Move a consumer from where it is expected to just after a global position."""
    raise NotImplementedError


async def replay(
    store: AsyncStore, category: str, consumer_id: str, position: int, expected: int | None
) -> int:
    """Let a consumer handle messages again from `position` on."""
    raise NotImplementedError


async def seek_queue(
    store: AsyncStore, queue: str, consumer_id: str, next_offset: int, expected: int
) -> int:
    """Move a queue's consumer from where it is expected to an offset."""
    raise NotImplementedError


async def reset_group(store: AsyncStore, group_id: str, expected: int) -> None:
    """Reset a group whose `routed_to` is as expected: every partition starts again."""
    raise NotImplementedError


async def stop_group(store: AsyncStore, group_id: str) -> None:
    """Give out no more claims of a group."""
    raise NotImplementedError


async def start_group(store: AsyncStore, group_id: str) -> None:
    """Give out claims of a group again."""
    raise NotImplementedError


async def resume_partition(store: AsyncStore, group_id: str, partition_key: str) -> None:
    """Resume a parked partition."""
    raise NotImplementedError


async def resume_partitions(store: AsyncStore, group_id: str) -> int:
    """Resume all parked partitions of a group, and return how many."""
    raise NotImplementedError


async def release_partition(
    store: AsyncStore, group_id: str, partition_key: str, claimed_at: datetime | None = None
) -> str:
    """Take a claimed partition from its worker, and return who that was.

    With `claimed_at`, only if it is still that claim.
    """
    raise NotImplementedError


async def retry_outbox(store: AsyncStore, id: str | UUID) -> None:
    """Make a failed message ready again."""
    raise NotImplementedError


async def cancel_outbox(store: AsyncStore, id: str | UUID, who: str) -> None:
    """Fail a message that is ready, so that it is not handled. Joins count it as failed."""
    raise NotImplementedError


async def retry_matching(
    store: AsyncStore,
    topic: str | None = None,
    error_contains: str | None = None,
    failed_since: datetime | None = None,
    limit: int = 1_000,
) -> Retried:
    """Retry failed messages that match, at most `limit`; call it again while there are more."""
    raise NotImplementedError


async def cancel_join(store: AsyncStore, join_id: str | UUID) -> None:
    """Cancel a join: no message follows."""
    raise NotImplementedError


async def retire_processor(store: AsyncStore, pipeline: str, processor: str) -> None:
    """Retire a processor that does not run: retention and alarms ignore it."""
    raise NotImplementedError


def from_scratch_command(pipeline: str) -> str:
    """Return the command that runs a pipeline from scratch.

    A running runner cannot be asked to begin again, and only the declaration says what to begin.
    """
    return f"penstock run FILE:{pipeline} --from-scratch"


_ = Iterable
