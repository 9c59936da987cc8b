"""The state of pipelines, from the database alone: positions, lag, last step, errors."""

from __future__ import annotations

from penstock.admin import processors as operations
from penstock.admin.processors import ProcessorStatus, TailerStatus
from penstock.errors import ValidationError
from penstock.message import check_text
from penstock.store import Store

__all__ = ["ProcessorStatus", "TailerStatus", "processors", "retire"]


def processors(store: Store) -> list[ProcessorStatus]:
    """Return the state of every processor that has run on this database."""
    return store.run(operations.processors())


def retire(store: Store, pipeline: str, processor: str) -> None:
    """Retire a processor that was removed from its pipeline: retention and alarms ignore it.

    If it comes back, it goes on from where it was. A processor that runs is refused.
    """
    check_text("pipeline", pipeline)
    check_text("processor", processor)
    expected = None
    with store.transaction() as transaction:
        if not transaction.run(operations.hold_off(pipeline, processor)):
            expected = "one that does not run: remove it from its pipeline, and start that again"
        elif not transaction.run(operations.retire(pipeline, processor)):
            expected = "a pipeline and a processor that `penstock pipelines` lists"
    if expected:
        raise ValidationError("processor", f"{pipeline}.{processor}", expected)
