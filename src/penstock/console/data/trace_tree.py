"""The tree of a trace: each thing once, under what it follows from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

from penstock.console.data import lake
from penstock.console.data.joins import LOOK_AT as MOST_JOINS
from penstock.console.data.joins import JoinRow, join, joins_of
from penstock.console.data.log import utc
from penstock.console.data.outbox import outbox_message
from penstock.console.data.outbox_rows import OutboxRow
from penstock.console.data.steps import FoundStep, Tailing, outputs_of, step_that_read, tailings
from penstock.console.data.trace_nodes import CausedMessage, TraceNode, as_output
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
        if message.id not in self._ids:
            self._by_cause.setdefault(message.cause or "", []).append(message)
            self._ids.add(message.id)

    def add_outbox(self, message: OutboxRow) -> None:
        """Keep an outbox message, to be placed under what it is correlated with."""
        if message.id not in {one.id for one in self.outbox}:
            self.outbox.append(message)

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
        children += await self._messages(caused, "causation", certain=True)
        children += [
            await self.outbox_message(child, "correlation", certain=child.correlation_id == one.id)
            for child in self.outbox
            if child.correlation_id == one.id
            or (is_root and child.correlation_id == one.correlation)
        ]
        if is_root:  # of what is correlated, that whose cause is not known
            correlated = [
                child
                for cause, several in self._by_cause.items()
                for child in several
                if cause not in self._ids and child.correlation in (one.id, one.correlation)
            ]
            children += await self._messages(correlated, "correlation", certain=False)
        return TraceNode(
            kind="message",
            id=one.id,
            title=one.type,
            subtitle=one.stream_name,
            time=one.time if one.time.tzinfo is not None else utc(one.time),
            global_position=one.global_position,
            link=link,
            certain=certain,
            asked_for=one.id == self.asked_for,
            children=_present(children),
            more=max(0, len(caused) - MOST_CHILDREN),
        )

    async def _messages(
        self, several: Sequence[CausedMessage], link: str, *, certain: bool
    ) -> list[TraceNode | None]:
        return [await self.message(one, link, certain=certain) for one in several[:MOST_CHILDREN]]

    async def _read_by(self, one: CausedMessage) -> list[FoundStep]:
        """Return the steps that have read a message, as far as they are found."""
        if self._tailings is None:
            self._tailings = await tailings(self.store)
        queues = (names.category(one.stream_name), one.stream_name)
        readers = [reader for reader in self._tailings if reader.queue in queues]
        self._read += bool(readers)
        if self._read > MOST_READ:
            self.note(f"steps were looked up for the first {MOST_READ} messages only")
            return []
        steps = []
        for reader in readers:
            at = one.global_position if reader.of_category else one.position
            if reader.position < at:
                self.note(f"{reader.name} has not read {one.global_position} yet")
                continue
            step = await step_that_read(self.store, reader, at, one.global_position)
            if step is None:
                self.note(f"the step of {reader.name} that read {one.global_position} is not found")
            else:
                steps.append(step)
        return steps

    async def step(
        self, found: FoundStep, link: str, caused: Iterable[CausedMessage] = ()
    ) -> TraceNode | None:
        """Return the node of a step: the outputs that a message caused, and those without cause.

        Without a link it is the root: then all its outputs.
        """
        step = found.step
        if not self._place("step", f"{found.name} {step.delivery}"):
            return None
        mine = [one for one in caused if one.delivery == step.delivery]
        how = "causation" if link else "same step"
        children = await self._messages(mine, how, certain=bool(link))
        outputs = await outputs_of(self.store, step, MOST_OUTPUTS)
        without_cause = [
            as_output(row, step.delivery) for row in outputs if row.causation_id is None or not link
        ]
        children += await self._messages(without_cause, "same step", certain=False)
        children += await self._commits(found)
        ranges = [f"{queue} after {low} to {high}" for queue, (low, high) in step.ranges.items()]
        return TraceNode(
            kind="step",
            id=step.delivery,
            title=found.name,
            subtitle=f"read {', '.join(ranges)}" if ranges else "read no queue",
            time=step.committed_at or step.begun_at,
            global_position=step.attempt_position or step.snapshot_position,
            link=link,
            certain=True,
            asked_for=False,
            children=_present(children),
            more=max(0, step.published - len(outputs)),
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
                kind="commit",
                id=f"{table} {one.snapshot_id}",
                title=table,
                subtitle=f"{one.added_rows or 0:,} rows added",
                time=one.committed_at,
                global_position=None,
                link="wrote",
                certain=True,
                asked_for=False,
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
        children = await self._messages(caused, "causation", certain=True)
        children += [
            await self.join(found, "joined")
            for found in await joins_of(self.store, one.id)
            if one.id not in (found.follow_up_id, found.wait_id)
        ]
        self.note(f"joins of finished steps: among the newest {MOST_JOINS} of each status")
        return TraceNode(
            kind="outbox",
            id=id,
            title=one.topic,
            subtitle=one.state,
            time=one.created_at,
            global_position=None,
            link=link,
            certain=certain,
            asked_for=id == self.asked_for,
            children=_present(children),
            more=max(0, len(caused) - MOST_CHILDREN),
        )

    async def join(self, one: JoinRow, link: str) -> TraceNode | None:
        """Return the node of a join, with what follows from it. The root has its steps, too."""
        id = str(one.join_id)
        if not self._place("join", id):
            return None
        detail = await join(self.store, one.join_id)
        steps = [] if link else [one.message_id for one in detail.steps if one.topic is not None]
        children = [
            await self.outbox_message(message, "step", certain=True)
            for step in steps[:MOST_CHILDREN]
            if (message := await self._outbox(step)) is not None
        ]
        if detail.follow_up is not None:
            children.append(await self.outbox_message(detail.follow_up, "follow-up", certain=True))
        done = f"{one.completed_steps} of {one.expected_steps} steps done"
        return TraceNode(
            kind="join",
            id=id,
            title=one.grouping_key or "join",
            subtitle=f"{one.status}: {done}, {one.failed_steps} failed",
            time=one.created_at,
            global_position=None,
            link=link,
            certain=True,
            asked_for=id == self.asked_for,
            children=_present(children),
            more=max(0, len(steps) - MOST_CHILDREN),
        )

    async def _outbox(self, id: UUID) -> OutboxRow | None:
        try:
            return (await outbox_message(self.store, id)).row
        except OutboxMessageNotFound:
            return None


def _present(children: Iterable[TraceNode | None]) -> tuple[TraceNode, ...]:
    return tuple(one for one in children if one is not None)
