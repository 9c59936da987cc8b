"""Deciders: past events and a command give new events.

    seats = Decider(initial=0, evolve=lambda taken, event: taken + 1, decide=join_if_room)

A decider is pure. `store.decide(seats, command, conditions)` decides a command on messages of
the log, and appends the outcome under a guard. `given(...).when(...).then(...)` tests a decider
without a database.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from penstock.errors import ValidationError
from penstock.loops.concurrency import is_coroutine_function
from penstock.message import Message, RecordedMessage
from penstock.message.typed import TypedMessage, find_class

State = TypeVar("State")
Command = TypeVar("Command")
Event = Message | TypedMessage


@dataclass(frozen=True)  # no slots: Decider[int, Join](...) would fail
class Decider(Generic[State, Command]):
    """An initial state, how an event changes it, and which events a command leads to.

    `evolve` and `decide` are plain functions, for async stores too: they only compute.
    """

    initial: State
    evolve: Callable[[State, Any], State]
    decide: Callable[[State, Command], Iterable[Event]]

    def __post_init__(self) -> None:
        """Refuse anything but plain functions."""
        for name, function in (("evolve", self.evolve), ("decide", self.decide)):
            if not callable(function) or is_coroutine_function(function):
                raise ValidationError(name, function, "a plain function")

    def state(self, events: Iterable[Any]) -> State:
        """Return the state after these events. `evolve` gets recorded messages as typed ones."""
        state = copy.deepcopy(self.initial)  # `evolve` may change it in place
        for event in events:
            state = self.evolve(state, _typed(event))
        return state

    def events(self, past: Iterable[Any], command: Command) -> list[Event]:
        """Return the events that the command leads to, after these past ones."""
        return list(self.decide(self.state(past), command))

    def given(self, *events: Event) -> Given[State, Command]:
        """Start a test: these events have happened."""
        return Given(self, events)


@dataclass(frozen=True)
class Given(Generic[State, Command]):
    """A decider and its past events, in a test."""

    decider: Decider[State, Command]
    events: tuple[Event, ...]

    def when(self, command: Command) -> Outcome:
        """Decide the command."""
        try:
            return Outcome(tuple(self.decider.events(self.events, command)), None)
        except Exception as error:
            return Outcome((), error)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The events that a command led to, or its error, in a test."""

    events: tuple[Event, ...]
    error: Exception | None

    def then(self, *expected: Event) -> None:
        """Assert that the command led to these events, in this order."""
        if self.error is not None:
            raise AssertionError(
                f"expected {expected}, but it raised {self.error!r}"
            ) from self.error
        got = [_comparable(event) for event in self.events]
        wanted = [_comparable(event) for event in expected]
        if got != wanted:
            raise AssertionError(f"expected {wanted}, got {got}")

    def then_raises(self, error_class: type[Exception]) -> None:
        """Assert that the command raised this error."""
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
