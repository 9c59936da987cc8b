"""Who sends which calls: a sender that is interrupted, and two batches under way at once."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any
from uuid import uuid4

import pytest

from penstock.database import coalescer as module
from penstock.database.batch import Outcome, batch_item
from penstock.database.coalescer import UNBATCHED, Coalescer
from penstock.database.coalescer_async import LEAST_TAKEN, AsyncCoalescer
from penstock.database.operation import BatchGuard, Operation
from tests.racing import pause

OTHERS = 3
LINES = Path(module.__file__).read_text().splitlines()


def write(stream_name: str | None = None, guard: BatchGuard | None = None) -> Operation[int]:
    """A call that a batch can have."""
    message = (uuid4(), "T", "{}", None)
    item = batch_item([message], stream_name, None, guard, lambda positions, _: 7)
    return Operation("write", (), lambda _: 7, {}, frozenset(), item=item)


def outcomes(calls: Sequence[Operation[Any]]) -> list[Outcome]:
    return [([0], [1]) for _ in calls]


class Interrupted:
    """A caller that sends, then what others have queued meanwhile, and lets one of them go on."""

    def __init__(self, line: int) -> None:
        self._coalescer = Coalescer(None, "here", 100)
        self._lines_left = line
        self._results: list[Any] = []
        #: who calls while it sends
        self.others: list[threading.Thread] = []
        self.was_interrupted = False

    def run(self) -> list[Any]:
        """Interrupt the caller at its nth line; return what the others got."""
        caller = threading.Thread(target=self._call)
        caller.start()
        caller.join()
        for other in self.others:
            other.join(5)
        return self._results

    def runs_on(self) -> bool:
        """Whether calls are still made."""
        got: list[Any] = []
        later = threading.Thread(
            target=lambda: got.append(self._coalescer.run(write(), outcomes)), daemon=True
        )
        later.start()
        later.join(5)
        return got == [7]

    def _call(self) -> None:
        sys.settrace(self._trace)
        try:
            self._coalescer.run(write(), self._send)
        except KeyboardInterrupt:
            self.was_interrupted = True
        finally:
            sys.settrace(None)

    def _send(self, calls: Sequence[Operation[Any]]) -> list[Outcome]:
        """Send a batch while some others call: so there is one more, and another sender at last."""
        for _ in range(OTHERS):
            other = threading.Thread(target=self._call_meanwhile, daemon=True)
            other.start()
            self.others.append(other)
        while len(self._coalescer._waiting) < OTHERS:
            pause()
        return outcomes(calls)

    def _call_meanwhile(self) -> None:
        self._results.append(self._coalescer.run(write(), outcomes))

    def _trace(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        if frame.f_code.co_filename != module.__file__:
            return None
        if LINES[frame.f_lineno - 1].lstrip().startswith("with "):
            return self._trace  # Python itself is not interrupted between a lock and its block
        self._lines_left -= 1
        if self._lines_left == 0:
            raise KeyboardInterrupt
        return self._trace


def test_whatever_line_a_sender_is_interrupted_at_the_others_get_an_answer() -> None:
    line = 0
    while True:
        line += 1
        one = Interrupted(line)
        got = one.run()
        assert len(got) == len(one.others), line
        assert all(result in (7, UNBATCHED) for result in got), line
        assert one.runs_on(), line
        if not one.was_interrupted:
            break
    assert line > 200  # else it was not interrupted everywhere


@pytest.mark.parametrize("kind", ["stream", "guard"])
async def test_a_second_batch_has_no_calls_on_what_the_first_has_under_way(kind: str) -> None:
    def on(name: str) -> Operation[int]:
        if kind == "stream":
            return write(stream_name=name)
        return write(guard=BatchGuard(["T"], ["course"], [name], 0, "{}"))

    def names(batch: Sequence[Operation[Any]]) -> list[str]:
        items = [one.item for one in batch if one.item is not None]
        return [one.stream_name or (one.guard.values[0] if one.guard else "") for one in items]

    sent: list[list[str]] = []
    first_ends = asyncio.Event()

    async def send(batch: Sequence[Operation[Any]]) -> list[Outcome]:
        sent.append(names(batch))
        if len(sent) == 1:
            await first_ends.wait()
        return outcomes(batch)

    coalescer = AsyncCoalescer(None, "here", 100)
    first = asyncio.create_task(coalescer.run(on("a"), send))
    await asyncio.sleep(0)
    wanted = ["a", "b"] * LEAST_TAKEN
    tasks = [asyncio.create_task(coalescer.run(on(name), send)) for name in wanted]
    await asyncio.gather(*tasks[1::2])  # those on b
    meanwhile = list(sent)
    first_ends.set()
    results = await asyncio.gather(first, *tasks)

    assert results == [7] * (1 + 2 * LEAST_TAKEN)
    assert [name for batch in meanwhile for name in batch] == ["a", *["b"] * LEAST_TAKEN]
    later = sent[len(meanwhile) :]
    assert [name for batch in later for name in batch] == ["a"] * LEAST_TAKEN
