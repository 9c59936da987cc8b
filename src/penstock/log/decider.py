"""Deciders: from what has happened, and a command, to what happens next.

    seats = Decider(initial=0, evolve=lambda taken, event: taken + 1, decide=join_if_room)

`decide` a command over a boundary and the outcome is appended under its guard; if somebody else
was faster, it is decided again. `given(...).when(...).then(...)` tests one without a database.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from penstock.errors import ValidationError
from penstock.log.append import Appended
from penstock.log.guard import Guard
from penstock.loops.concurrency import is_coroutine_function
from penstock.loops.retry import retry
from penstock.message import Message, RecordedMessage
from penstock.message.conditions import QueryCondition
from penstock.message.typed import TypedMessage, find_class

State = TypeVar("State")
Command = TypeVar("Command")
Event = Message | TypedMessage


class Decides(Protocol):
    """What a decider needs of a store."""

    def read(
        self, conditions: Iterable[QueryCondition], after: int = 0, limit: int | None = None
    ) -> tuple[list[RecordedMessage], Guard]:
        """Read a boundary."""

    def append(self, messages: Sequence[Event], guard: Guard | None = None) -> Appended:
        """Append under a guard."""


@dataclass(frozen=True)  # no slots: Decider[int, Join](...) would fail
class Decider(Generic[State, Command]):
    """A state to begin with, how an event changes it, and what a command makes of it."""

    initial: State
    evolve: Callable[[State, Any], State]
    decide: Callable[[State, Command], Iterable[Event]]

    def state(self, events: Iterable[Any]) -> State:
        """Return the state after these events. Recorded messages come as their typed classes."""
        state = copy.deepcopy(self.initial)  # which `evolve` may change
        for event in events:
            state = self.evolve(state, _typed(event))
        return state

    def handle(
        self,
        store: Decides,
        command: Command,
        conditions: Iterable[QueryCondition],
        *,
        attempts: int = 10,
    ) -> Appended | None:
        """Decide a command on what the conditions find, and append the outcome under their guard.

        Returns None if there was nothing to append. On a store a conflict is decided again,
        `attempts` times; in a transaction it is raised, since it ends the transaction.
        """
        if is_coroutine_function(getattr(store, "read", None)):
            raise ValidationError("store", store, "a Store, or a transaction of one")
        wanted = list(conditions)
        if not hasattr(store, "begin_transaction"):
            attempts = 1

        @retry(attempts=attempts)
        def attempt() -> Appended | None:
            messages, guard = store.read(wanted)
            events = list(self.decide(self.state(messages), command))
            return store.append(events, guard) if events else None

        return attempt()

    def given(self, *events: Event) -> Given[State, Command]:
        """Begin a test: these events have happened."""
        return Given(self, events)


@dataclass(frozen=True)
class Given(Generic[State, Command]):
    """A decider after some events, waiting for a command."""

    decider: Decider[State, Command]
    events: tuple[Event, ...]

    def when(self, command: Command) -> Outcome:
        """Decide the command."""
        try:
            decided = self.decider.decide(self.decider.state(self.events), command)
            return Outcome(tuple(decided), None)
        except Exception as error:
            return Outcome((), error)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a decider made of a command."""

    events: tuple[Event, ...]
    error: Exception | None

    def then(self, *expected: Event) -> None:
        """Assert that these events came of it, in this order."""
        if self.error is not None:
            raise AssertionError(
                f"expected {expected}, but it raised {self.error!r}"
            ) from self.error
        got = [_comparable(event) for event in self.events]
        wanted = [_comparable(event) for event in expected]
        if got != wanted:
            raise AssertionError(f"expected {wanted}, got {got}")

    def then_raises(self, error_class: type[Exception]) -> None:
        """Assert that the command was refused with this error."""
        if not isinstance(self.error, error_class):
            raise AssertionError(
                f"expected {error_class.__name__}, got {self.error or self.events!r}"
            )


def _typed(event: Any) -> Any:
    if isinstance(event, RecordedMessage) and (found := find_class(event.type)) is not None:
        return found.from_recorded(event)
    return event


def _comparable(event: Event) -> tuple[str, dict[str, Any]]:
    message = event.to_message() if isinstance(event, TypedMessage) else event
    return message.type, dict(message.data or {})
