"""Decide the messages of a claim, and settle as many as can be appended together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from penstock.errors import (
    ConcurrencyError,
    DatabaseUnreachable,
    DeclarationBlocked,
    IndexingUnfinished,
    PoolExhausted,
    StaleClaim,
    UnavailableError,
)
from penstock.groups.claims import Claim
from penstock.groups.deciding import PartitionDecider
from penstock.log.decider import Event
from penstock.log.decisions_async import current_state, save_if_due
from penstock.log.guard import Guard
from penstock.log.runs_async import AsyncRunsTransactions

#: not caused by the handler: the partition is given back, and no attempt is used up
NOT_THE_HANDLER = (DatabaseUnreachable, PoolExhausted, DeclarationBlocked, IndexingUnfinished)

#: appends an outcome and acknowledges the claim up to a position, in one transaction
Settle = Callable[[Claim, list[Event], Guard, int], Awaitable[None]]


async def decide_claim(
    store: AsyncRunsTransactions, decider: PartitionDecider, settle: Settle, claim: Claim
) -> None:
    """Decide the messages of a claim one after the other, and append all outcomes at once.

    If an outcome cannot be appended, those before it are, and the rest is claimed again.
    """
    begin = await current_state(store, decider.decider, decider.guard(claim), keep=True)
    decided = decider.decide(store.context, begin, claim.messages)
    count = len(decided.outcomes)
    if count == 0 and decided.error is not None:
        raise decided.error
    while True:
        last = claim.messages[count - 1].global_position
        try:
            await settle(claim, decided.first(count), begin.guard, last)
            break
        except (ConcurrencyError, StaleClaim, UnavailableError, *NOT_THE_HANDLER):
            raise
        except Exception:  # an outcome cannot be appended: settle those before it
            if count == 1:
                raise
            count //= 2
    await save_if_due(store, decider.decider, begin)
