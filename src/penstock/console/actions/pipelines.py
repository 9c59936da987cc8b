"""What is done to pipelines and their processors."""

from __future__ import annotations

from penstock.console.actions.action import Action, Done, number
from penstock.console.data import pipeline_actions, pipelines
from penstock.console.data.previews import Preview
from penstock.console.screen import Ask


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
    await pipeline_actions.retire_processor(ask.store, pipeline, name)
    return Done(f"{name} of {pipeline} was retired.")


async def _preview_restart(ask: Ask) -> Preview:
    return await pipeline_actions.preview_restart(ask.store, ask.need("pipeline"))


async def _restart(ask: Ask, who: str) -> Done:
    name = ask.need("pipeline")
    await pipeline_actions.request_restart(ask.store, name, who, number(ask, "expected"))
    return Done(f"It is requested: a run of {name} begins from scratch.")


async def _preview_withdraw(ask: Ask) -> Preview:
    name = ask.need("pipeline")
    last = await pipeline_actions.restart_request(ask.store, name)
    is_open = last is not None and last.state == "open"
    refused = None if is_open else f"No start of {name} from scratch is requested."
    details = () if last is None else (f"{last.requested_by} has requested it.",)
    return Preview(f"Lets {name} go on where it is.", details, None, refused)


async def _withdraw(ask: Ask, who: str) -> Done:
    name = ask.need("pipeline")
    await pipeline_actions.withdraw_restart(ask.store, name, who)
    return Done(f"{name} does not begin from scratch.")


ACTIONS = (
    Action("retire-processor", "Retire a processor", _preview_retire, _retire, danger=True),
    Action("restart-pipeline", "Run from scratch", _preview_restart, _restart, danger=True),
    Action("withdraw-restart", "Withdraw a restart", _preview_withdraw, _withdraw),
)
