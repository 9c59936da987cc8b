"""The tree of a trace: each thing once, under what it follows from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from penstock.console.data import lake
from penstock.console.data.joins import LOOK_AT as MOST_JOINS
from penstock.console.data.joins import JoinRow, join, joins_of
from penstock.console.data.log import utc
from penstock.console.data.outbox import outbox_message
from penstock.console.data.outbox_rows import OutboxRow
from penstock.console.data.steps import FoundStep, Tailing, outputs_of, step_that_read, tailings
from penstock.errors import LakeError, OutboxMessageNotFound
from penstock.message import names
from penstock.store_async import AsyncStore

MOST_NODES = 500
#: of one node that are shown
MOST_CHILDREN = 50
#: outputs of a step that are looked at
MOST_OUTPUTS = 50
#: messages for which the steps are looked up that have read them
MOST_READ = 100


@dataclass(frozen=True, slots=True)
class TraceNode:
    """Something that happened, and what followed from it."""

    #: message, outbox, join, step or commit (of a table)
    kind: str
    #: a message's or outbox message's id, a join's id, a step's delivery, a table's snapshot
    id: str
    #: the type, the topic, the processor or the table
    title: str
    #: the stream, the state, what a step has read
    subtitle: str
    time: datetime | None
    global_position: int | None
    #: how it is linked to the node above it
    link: str
    #: False: it is linked by the same step or correlation, not by a cause of its own
    certain: bool
    #: whether it is what was asked for
    asked_for: bool
    children: tuple[TraceNode, ...] = ()
    #: how many more there are that are not shown
    more: int = 0


@dataclass(frozen=True, slots=True)
class CausedMessage:
    """A message of the log, as far as a trace needs it."""

    id: str
    global_position: int
    type: str
    stream_name: str
    position: int
    time: datetime
    cause: str | None
    correlation: str | None
    delivery: str | None


class Tree:
    """What was found, and what of it has its place in the tree."""

    def __init__(self, store: AsyncStore, asked_for: str) -> None:
        self.store = store
        self.asked_for = asked_for
        #: those that may be correlated with a message of the tree
        self.outbox: list[OutboxRow] = []
        #: a set with an order: one sentence each
        self.not_looked_at: dict[str, None] = {}
        self._by_cause: dict[str, list[CausedMessage]] = {}
        self._ids: set[str] = set()
        self._placed: set[tuple[str, str]] = set()
        self._tailings: list[Tailing] | None = None
        self._read = 0

    def note(self, what: str) -> None:
        """Keep what was not looked at."""
        self.not_looked_at[what] = None

    def add(self, message: CausedMessage) -> None:
        """Keep a message, to be placed under its cause."""
        self._by_cause.setdefault(message.cause or "", []).append(message)
        self._ids.add(message.id)

    def _place(self, kind: str, id: str) -> bool:
        """Whether there is a place for a node: each has one, and the tree has an end."""
        if (kind, id) in self._placed:
            return False
        if len(self._placed) >= MOST_NODES:
            self.note(f"the tree ends at {MOST_NODES} nodes")
            return False
        self._placed.add((kind, id))
        return True

    async def message(
        self, one: CausedMessage, link: str, *, certain: bool, is_root: bool = False
    ) -> TraceNode | None:
        """Return the node of a message, with what followed from it."""
        if not self._place("message", one.id):
            return None
        self._ids.add(one.id)
        caused = self._by_cause.get(one.id, [])
        children = [await self.step(step, "read by", caused) for step in await self._read_by(one)]
        children += [
            await self.message(child, "causation", certain=True) for child in caused[:MOST_CHILDREN]
        ]
        children += [
            await self.outbox_message(child, "correlation", certain=child.correlation_id == one.id)
            for child in self.outbox
            if child.correlation_id == one.id
            or (is_root and child.correlation_id == one.correlation)
        ]
        if is_root:  # of what is correlated, that whose cause is not known
            children += [
                await self.message(child, "correlation", certain=False)
                for cause, several in self._by_cause.items()
                for child in several[:MOST_CHILDREN]
                if cause not in self._ids and child.correlation in (one.id, one.correlation)
            ]
        moment = one.time if one.time.tzinfo is not None else utc(one.time)
        return TraceNode(
            *("message", one.id, one.type, one.stream_name, moment, one.global_position),
            *(link, certain, one.id == self.asked_for, _present(children)),
            max(0, len(caused) - MOST_CHILDREN),
        )

    async def _read_by(self, one: CausedMessage) -> list[FoundStep]:
        """Return the steps that have read a message, as far as they are found."""
        if self._tailings is None:
            self._tailings = await tailings(self.store)
        queues = (names.category(one.stream_name), one.stream_name)
        readers = [reader for reader in self._tailings if reader.queue in queues]
        if not readers:
            return []
        self._read += 1
        if self._read > MOST_READ:
            self.note(f"for the first {MOST_READ} messages only, the steps that read them")
            return []
        steps = []
        for reader in readers:
            at = one.global_position if reader.of_category else one.position
            if reader.position < at:
                self.note(f"{reader.name} has not read {one.global_position} yet")
            elif (
                step := await step_that_read(self.store, reader, at, one.global_position)
            ) is None:
                self.note(f"the step of {reader.name} that read {one.global_position} is not found")
            else:
                steps.append(step)
        return steps

    async def step(
        self, found: FoundStep, link: str, caused: Iterable[CausedMessage] = ()
    ) -> TraceNode | None:
        """Return the node of a step: the outputs that a message caused, and those without cause."""
        step = found.step
        mine = [one for one in caused if one.delivery == step.delivery]
        if not self._place("step", f"{found.name} {step.delivery}"):
            return None
        children = [
            await self.message(one, "causation", certain=True) for one in mine[:MOST_CHILDREN]
        ]
        outputs = await outputs_of(self.store, step, MOST_OUTPUTS)
        for row in outputs:
            if row.causation_id is None or not link:
                output = CausedMessage(
                    *(str(row.id), row.global_position, row.type, row.stream_name, row.position),
                    *(row.time, row.causation_id, row.correlation_id, step.delivery),
                )
                children.append(await self.message(output, "same step", certain=False))
        children += await self._commits(found)
        ranges = [f"{queue} after {low} to {high}" for queue, (low, high) in step.ranges.items()]
        return TraceNode(
            *(
                "step",
                step.delivery,
                found.name,
                "read " + ", ".join(ranges) if ranges else "source",
            ),
            *(step.committed_at or step.begun_at, step.attempt_position or step.snapshot_position),
            *(link, True, step.delivery == self.asked_for, _present(children)),
            max(0, step.published - len(outputs)),
        )

    async def _commits(self, found: FoundStep) -> list[TraceNode | None]:
        """Return the snapshots of tables that a step has committed."""
        if not await lake.has_lake(self.store):
            return []
        try:
            commits = await lake.commits_of(
                self.store, found.pipeline, found.processor, found.step.delivery
            )
        except (LakeError, ModuleNotFoundError) as error:
            self.note(f"tables of the lake: {error}")
            return []
        return [
            TraceNode(
                *("commit", f"{table} {one.snapshot_id}", table, f"{one.added_rows or 0:,} rows"),
                *(one.committed_at, None, "wrote", True, False),
            )
            for table, one in commits
            if self._place("commit", f"{table} {one.snapshot_id}")
        ]

    async def outbox_message(self, one: OutboxRow, link: str, *, certain: bool) -> TraceNode | None:
        """Return the node of an outbox message, with the joins that it is a step of."""
        id = str(one.id)
        if not self._place("outbox", id):
            return None
        self._ids.add(id)
        caused = self._by_cause.get(id, [])
        children = [
            await self.message(child, "causation", certain=True) for child in caused[:MOST_CHILDREN]
        ]
        for found in await joins_of(self.store, one.id):
            if one.id not in (found.follow_up_id, found.wait_id):
                children.append(await self.join(found, "joined"))
        self.note(f"joins of finished steps: among the newest {MOST_JOINS} of each status")
        return TraceNode(
            *("outbox", id, one.topic, one.state, one.created_at, None, link, certain),
            *(id == self.asked_for, _present(children), max(0, len(caused) - MOST_CHILDREN)),
        )

    async def join(self, one: JoinRow, link: str, *, with_steps: bool = False) -> TraceNode | None:
        """Return the node of a join, with what follows from it, and with its steps."""
        if not self._place("join", str(one.join_id)):
            return None
        detail = await join(self.store, one.join_id)
        steps = [step.message_id for step in detail.steps if step.topic is not None]
        children = []
        for id in steps[:MOST_CHILDREN] if with_steps else []:
            if (message := await self._outbox(id)) is not None:
                children.append(await self.outbox_message(message, "step", certain=True))
        if detail.follow_up is not None:
            children.append(await self.outbox_message(detail.follow_up, "follow-up", certain=True))
        said = (
            f"{one.completed_steps} of {one.expected_steps} steps done, {one.failed_steps} failed"
        )
        return TraceNode(
            *("join", str(one.join_id), one.grouping_key or "join", f"{one.status}: {said}"),
            *(one.created_at, None, link, True, str(one.join_id) == self.asked_for),
            _present(children),
        )

    async def _outbox(self, id: UUID) -> OutboxRow | None:
        try:
            return (await outbox_message(self.store, id)).row
        except OutboxMessageNotFound:
            return None


def _present(children: Iterable[TraceNode | None]) -> tuple[TraceNode, ...]:
    return tuple(one for one in children if one is not None)
