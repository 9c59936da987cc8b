"""Append under a guard, read the messages of a decision, and decide."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from penstock.errors import UnavailableError, ValidationError
from penstock.log import append, boundary
from penstock.log.append import Appended
from penstock.log.boundary import MessageType, classes_of, watched_classes
from penstock.log.decider import Command, Decider
from penstock.log.decisions_async import current_state, save_if_due
from penstock.log.declare_async import declare_missing, index_slice
from penstock.log.guard import Guard
from penstock.log.runs_async import AsyncRuns
from penstock.message import Message, RecordedMessage
from penstock.message.conditions import QueryCondition
from penstock.message.typed import TypedMessage, is_typed_class

Messages = Message | TypedMessage | Iterable[Message | TypedMessage]


class AsyncBoundaryCalls(AsyncRuns):
    """Appends under a guard, and reads for decisions."""

    async def append(
        self,
        messages: Messages,
        guard: Guard | None = None,
        *,
        stream_name: str | None = None,
        expected_version: int | None = None,
    ) -> Appended:
        """Append messages, typed or plain, all or none.

        With a guard, `ConcurrentAppendError` is raised if a message that it watches was written
        after the guard was created. Then nothing is appended. Each message gets its own stream,
        `{type}-{id}`, unless you pass a `stream_name`, with or without an `expected_version`. A
        retry with the same messages returns the first result.
        """
        several = append.several(messages)
        await declare_missing(self, classes_of(several), to_write=True)
        if guard is not None:
            await declare_missing(self, watched_classes(guard))
        return await self.run(
            append.append(self.context, several, guard, stream_name, expected_version)
        )

    async def read(
        self, conditions: Iterable[QueryCondition], after: int = 0, limit: int | None = None
    ) -> tuple[list[RecordedMessage], Guard]:
        """Return the messages that match, after a global position, and a guard for the decision.

        All visible messages are included, also those above the watermark. The guard covers every
        message that matches, whether it was fetched or not.
        """
        guard = Guard(conditions)  # type: ignore[arg-type] # which checks them
        await declare_missing(self, watched_classes(guard))
        return await self.run(boundary.read_boundary(self.context, guard, after, limit))

    async def read_partition(
        self,
        attributes: Mapping[str, object],
        handled_types: Sequence[MessageType],
        after: int = 0,
        limit: int | None = None,
    ) -> tuple[list[RecordedMessage], Guard]:
        """Return the messages of a partition, such as `{"course_name": "Algebra"}`, and its guard.

        `handled_types` are the typed message classes (or their types) to read. A message
        matches if each of the attributes that it carries has that value.
        """
        conditions = boundary.partition_conditions(attributes, handled_types)
        return await self.read(conditions, after, limit)

    async def decide(
        self,
        decider: Decider[Any, Command],
        command: Command,
        conditions: Iterable[QueryCondition],
    ) -> Appended | None:
        """Decide a command on the messages that match, and append the outcome under their guard.

        Returns None if the decider returned no events. Raises `ConcurrentAppendError` if another
        writer appended to the boundary meanwhile.
        """
        return await self._decide(decider, command, boundary.as_guard(conditions), keep=False)

    async def _decide(
        self, decider: Decider[Any, Command], command: Command, guard: Guard, *, keep: bool
    ) -> Appended | None:
        """Decide a command once. `keep` the state, unless an open transaction was read, too."""
        if not isinstance(decider, Decider):
            raise ValidationError("decider", decider, "a Decider")
        current = await current_state(self, decider, guard, keep=keep)
        try:
            events = decider.decided(current.state, command)
            appended = await self.append(events, current.guard) if events else None
        except Exception as error:
            if keep and not isinstance(error, UnavailableError):
                await save_if_due(self, decider, current)
            raise
        if keep:
            await save_if_due(self, decider, current)
        return appended

    async def declare(
        self,
        *classes: type[TypedMessage],
        progress: Callable[[str, int, int], None] = lambda type, done, total: None,
    ) -> None:
        """Declare typed message classes to the database, and index the messages already there.

        A store declares a class when it first uses it, and indexes a limited number of older
        messages. Call this if there are more. Writers can continue; the call can be interrupted and
        repeated. `progress` gets the type, the position reached and the position to reach.
        """
        for one in classes:
            if not is_typed_class(one):
                raise ValidationError("classes", one, "typed message classes")
        for one in classes:
            await self.run_apart(boundary.declare(self.context, one))
            while (state := await index_slice(self, one.message_type)) is not None:
                progress(one.message_type, state.filled_to, state.fill_until)
