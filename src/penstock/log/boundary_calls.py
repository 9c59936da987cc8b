"""Append under a guard and read what a decision needs: on a store, in a transaction, on your own.

A typed message's class is declared to the database the first time it is used, which takes a moment
in which nobody writes; apart from that, each method is one round trip.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from penstock.database.operation import Operation
from penstock.log import append, boundary, declaring
from penstock.log.append import Appended
from penstock.log.boundary import MessageType
from penstock.log.context import LogContext
from penstock.log.guard import Guard
from penstock.message import Message, RecordedMessage
from penstock.message.conditions import QueryCondition
from penstock.message.typed import TypedMessage

Result = TypeVar("Result")
Messages = Message | TypedMessage | Iterable[Message | TypedMessage]


class BoundaryCalls(ABC):
    """Decide on what is true, from blocking code."""

    context: LogContext

    @abstractmethod
    def run(self, operation: Operation[Result]) -> Result:
        """Run an operation and return its result."""

    def append(
        self,
        messages: Messages,
        guard: Guard | None = None,
        *,
        stream_name: str | None = None,
        expected_version: int | None = None,
    ) -> Appended:
        """Append messages, typed or plain, all or none.

        Under a guard, `ConcurrentAppendError` is raised if a message that it watches has been
        written since it was made; then nothing is appended. Each message gets a stream of its own,
        `{type}-{id}`, unless `stream_name` names one, which may have an `expected_version`. A retry
        with the same messages returns the first result.
        """
        several = append.several(messages)
        self.declare_missing(declaring.classes_of(several), to_write=True)
        if guard is not None:
            self.declare_missing(declaring.watched_classes(guard))
        return self.run(
            append.append(
                self.context,
                several,
                guard,
                stream_name=stream_name,
                expected_version=expected_version,
            )
        )

    def read(
        self, conditions: Iterable[QueryCondition], after: int = 0, limit: int | None = None
    ) -> tuple[list[RecordedMessage], Guard]:
        """Return the messages that match, after a global position, and the guard for deciding on.

        They are all that is visible at this moment, whatever is being written. The guard covers
        everything that matches, whether it was fetched or not.
        """
        wanted = Guard(conditions).conditions  # type: ignore[arg-type] # which checks them
        self.declare_missing(declaring.watched_classes(wanted))
        return self.run(boundary.read_boundary(self.context, wanted, after, limit))

    def read_partition(
        self,
        attributes: Mapping[str, object],
        handled_types: Sequence[MessageType],
        after: int = 0,
        limit: int | None = None,
    ) -> tuple[list[RecordedMessage], Guard]:
        """Return the messages of a partition, such as `{"course_name": "Algebra"}`, and its guard.

        `handled_types` are the typed message classes (or their types) that matter. A message
        matches if each of the attributes that it carries has that value.
        """
        return self.read(boundary.partition_conditions(attributes, handled_types), after, limit)

    def declare(
        self,
        *classes: type[TypedMessage],
        progress: Callable[[str, int, int], None] = lambda type, done, total: None,
    ) -> None:
        """Declare typed messages to the database, and index those that are there already.

        Needed before older messages of a type can be found by their attributes; otherwise it
        happens by itself. Online: others go on writing. It can be stopped and repeated. `progress`
        is told the type, how far it is and how far it has to go.
        """
        for one in declaring.checked_classes(classes):
            self._declare(one)
            while (
                state := self._run_apart(declaring.fill(self.context, one.message_type))
            ) is not None:
                progress(one.message_type, *state)
                declaring.pause_if_waiting(state)

    def declare_missing(
        self, classes: Iterable[type[TypedMessage]], *, to_write: bool = False
    ) -> None:
        """Declare those of these classes that this store has not used before."""
        for one in self.context.declared.lacking(classes, to_write=to_write):
            self._declare(one)
            self._remember(one, indexed=self._fill_a_little(one.message_type))

    def _declare(self, one: type[TypedMessage]) -> None:
        self._run_apart(
            declaring.declare(self.context, one.message_type, one.indexed_attribute_names)
        )

    def _remember(self, one: type[TypedMessage], *, indexed: bool) -> None:
        """Declare the class no more, since that is done for good."""
        self.context.declared.note(one, indexed=indexed)

    def _fill_a_little(self, type: str) -> bool:
        """Index older messages of a type, if there are not too many; return whether it is done."""
        slices, pauses = declaring.SLICES_AT_ONCE, declaring.PAUSES
        while slices > 0 and pauses > 0:
            state = self._run_apart(declaring.fill(self.context, type))
            if state is None:
                return True
            slices, pauses = slices - (state[0] > 0), pauses - (state[0] == 0)
            declaring.pause_if_waiting(state)
        return False

    def _run_apart(self, operation: Operation[Result]) -> Result:
        """Run an operation outside of an open transaction, where there is one."""
        return self.run(operation)
