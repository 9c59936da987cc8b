"""What is done to pipelines: a processor is retired, a start from scratch requested."""

from __future__ import annotations

from typing import LiteralString

from penstock.admin import processors as operations
from penstock.admin import restarts
from penstock.admin.restarts import RestartRequest
from penstock.console.data.pages import bounded, query
from penstock.console.data.pipelines import Processor, pipelines, processors
from penstock.console.data.previews import Preview
from penstock.database.operation import call
from penstock.errors import ProcessorNotFound, StateChanged, WrongExpectedVersion
from penstock.message import check_text
from penstock.store_async import AsyncStore


async def retire_processor(store: AsyncStore, pipeline: str, processor: str) -> None:
    """Retire a processor that does not run: retention and alarms ignore it."""
    check_text("pipeline", pipeline)
    check_text("processor", processor)
    name = f"{pipeline}.{processor}"
    retired: LiteralString = (
        "select p.processor from penstock.processors p"
        " where p.pipeline = %s and p.processor = %s and p.retired_at is not null"
    )
    async with store.transaction() as transaction:
        if not await transaction.run(operations.hold_off(pipeline, processor)):
            raise StateChanged(f"processor {name}", "stopped", "running")
        if await transaction.run(call("is_retired", retired, (pipeline, processor), bool)):
            raise StateChanged(f"processor {name}", "not retired", "retired already")
        if not await transaction.run(operations.retire(pipeline, processor)):
            raise ProcessorNotFound(name)


async def restart_request(store: AsyncStore, pipeline: str) -> RestartRequest | None:
    """Return the last request to start a pipeline from scratch, and what became of it."""
    check_text("pipeline", pipeline)
    return await store.run(bounded(restarts.last_request(pipeline)))


async def preview_restart(store: AsyncStore, pipeline: str) -> Preview:
    """Return what a start from scratch would do."""
    found = [one for one in await processors(store, pipeline) if one.retired_at is None]
    last = await restart_request(store, pipeline)
    refused = None
    if last is not None and last.state == "open":
        refused = f"{last.requested_by} has requested it already, and no run has done it yet."
    running = next(one.running for one in await pipelines(store) if one.pipeline == pipeline)
    begins = (
        f"It runs ({running}): that run finishes the steps under way and begins again."
        if running is not None
        else "It does not run: its next run begins with that."
    )
    details = (*_kinds(found), *await _emptied(store, pipeline), begins, _REFUSES)
    expected = 0 if last is None else last.version + 1
    return Preview(f"Lets {pipeline} begin from scratch.", details, expected, refused)


_REFUSES = (
    "The run refuses it if others write to the outputs of its streams: the page of the pipeline "
    "then shows why."
)
#: what becomes of the processors of a kind
_BECOMES = {
    ("source", "archive"): "Go on where they are: {}.",
    ("stream",): "Publish everything anew: {}. What they have published stays in the log, and "
    "readers outside of this pipeline see both.",
    ("projection", "table"): "Rebuild their tables: {}. Readers see the live ones until the new "
    "ones have caught up.",
    ("sink",): "Are called again with every message: {}.",
}


def _kinds(found: list[Processor]) -> list[str]:
    named = {
        sentence: ", ".join(one.processor for one in found if one.kind in kinds)
        for kinds, sentence in _BECOMES.items()
    }
    return [sentence.format(names) for sentence, names in named.items() if names]


async def _emptied(store: AsyncStore, pipeline: str) -> list[str]:
    sql: LiteralString = (
        "select distinct unnest(p.tables) from penstock.processors p"
        " where p.pipeline = %s and p.retired_at is null order by 1"
    )
    tables = await store.run(query("tables", sql, (pipeline,), list))
    names = ", ".join(table for (table,) in tables)
    return [f"These tables are emptied, and filled again: {names}."] if names else []


async def request_restart(store: AsyncStore, pipeline: str, who: str, expected: int) -> None:
    """Request a start from scratch, unless somebody has since the preview.

    `expected` is how many messages the stream of requests had then.
    """
    await processors(store, pipeline)  # or raise that there are none
    last = await restart_request(store, pipeline)
    if last is not None and last.state == "open":
        raise StateChanged(f"a start of {pipeline} from scratch", "unrequested", "requested")
    stream, data = restarts.request_stream(pipeline), {"requested_by": who}
    try:
        await store.write_message(stream, restarts.REQUESTED, data, expected_version=expected - 1)
    except WrongExpectedVersion:
        raise StateChanged(
            f"a start of {pipeline} from scratch", "unrequested", "requested by somebody else"
        ) from None


async def withdraw_restart(store: AsyncStore, pipeline: str, who: str) -> None:
    """Withdraw the request, unless a run has begun with it."""
    check_text("pipeline", pipeline)
    try:
        withdrawn = restarts.answer(pipeline, restarts.WITHDRAWN, withdrawn_by=who)
        if await store.run(withdrawn):
            return
    except WrongExpectedVersion:
        pass
    raise StateChanged(f"a start of {pipeline} from scratch", "requested", "done or withdrawn")
