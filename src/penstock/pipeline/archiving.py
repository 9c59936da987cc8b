"""The step of an archive: it moves old messages of a category, and records how many.

It needs no Snapshot: each batch moves in a transaction of its own, and what was moved is not found
again. While a consumer has not read what is old enough, nothing is moved, and the processor's
status says who it is; that is no failure, since time will tell.
"""

from __future__ import annotations

import logging
import time

from penstock.errors import ArchiveRunning, CategoryWritten, PenstockError, UnreadMessages
from penstock.log.archive import archive
from penstock.log.retention import Keep
from penstock.pipeline import state
from penstock.pipeline.attempt import StepContext
from penstock.pipeline.step import StepReport

log = logging.getLogger(__name__)
#: reasons to try again later
_NOT_YET = (UnreadMessages, CategoryWritten, ArchiveRunning)


class _Stopped(Exception):
    """The run is to end; the batches so far are moved."""


def run_archive(context: StepContext) -> StepReport | None:
    """Move what is old enough; None if that is nothing."""
    one, pipeline, run = context.processor, context.pipeline.name, context.connection.run
    started, moved = time.monotonic(), 0

    def note(count: int) -> None:
        nonlocal moved
        moved = count
        go_on()

    def go_on(index: str = "") -> None:
        if context.is_over():
            raise _Stopped

    assert one.archives is not None
    assert context.log is not None
    run(state.open_processor(pipeline, one.name, one.kind))
    error: PenstockError | None = None
    try:
        keep = Keep(age=one.archives.older_than)
        archive(context.log, one.archives.category, keep, progress=note, reindexing=go_on)
    except _Stopped:
        pass
    except _NOT_YET as found:
        log.warning("%s waits: %s", one.name, found)
        error = found
    seconds = time.monotonic() - started
    if moved:
        run(state.record_archived(pipeline, one.name, moved, seconds))
    if error is not None:
        run(state.record_error(pipeline, one.name, str(error)))
    return StepReport(one.name, moved, moved, seconds) if moved else None
