"""Deciders: past events and a command give new events.

    seats = Decider(initial=0, evolve=lambda taken, event: taken + 1, decide=join_if_room)

A decider is pure. `store.decide(seats, command, conditions)` decides a command on messages of
the log, and appends the outcome under a guard. `given(...).when(...).then(...)` tests a decider
without a database.

A store keeps the states of the boundaries that it decided on last, and with `snapshot_every` the
database keeps them, too: see `decision.py`. So that a function which changes a state in place does
no harm, `evolve` and `decide` get a copy of it, by `copy.deepcopy`. A state that is expensive to
copy can define `__deepcopy__` and return itself, if neither function changes it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

from penstock.errors import ValidationError
from penstock.log.state_codec import StateCodec
from penstock.loops.concurrency import is_coroutine_function
from penstock.message import Message, RecordedMessage, check_text
from penstock.message.typed import TypedMessage, find_class

State = TypeVar("State")
Command = TypeVar("Command")
Event = Message | TypedMessage


@dataclass(frozen=True)  # no slots: Decider[int, Join](...) would fail
class Decider(Generic[State, Command]):
    """An initial state, how an event changes it, and which events a command leads to.

    `evolve` and `decide` are plain functions, for async stores too: they only compute.

    With `snapshot_every`, the state of a boundary is saved in the database each time that so many
    messages of it were read. The snapshots of a decider are found by its `name`, which must be
    unique, and its `version`: change the version when `initial`, `evolve` or the state change.
    """

    initial: State
    evolve: Callable[[State, Any], State]
    decide: Callable[[State, Command], Iterable[Event]]
    _: KW_ONLY
    name: str | None = None
    version: int | str = 1
    snapshot_every: int | None = None
    #: the type of the state, such as `set[UUID]`, if that of `initial` does not say it all
    state_type: Any = None

    def __post_init__(self) -> None:
        """Refuse anything but plain functions, and snapshots that could not be saved."""
        for name, function in (("evolve", self.evolve), ("decide", self.decide)):
            if not callable(function) or is_coroutine_function(function):
                raise ValidationError(name, function, "a plain function")
        if self.name is not None:
            check_text("name", self.name)
        if isinstance(self.version, bool) or not isinstance(self.version, int | str):
            raise ValidationError("version", self.version, "a whole number or a text")
        check_text("version", str(self.version))
        if self.snapshot_every is not None:
            every = self.snapshot_every
            if isinstance(every, bool) or not isinstance(every, int) or every < 1:
                expected = "a whole number of messages of at least 1"
                raise ValidationError("snapshot_every", every, expected)
            if self.name is None:
                raise ValidationError("name", self.name, "given together with snapshot_every")
            self.codec.encode(self.initial, "initial")

    @cached_property
    def codec(self) -> StateCodec:
        """Encodes and decodes the states of snapshots."""
        return StateCodec(type(self.initial) if self.state_type is None else self.state_type)

    def state(self, events: Iterable[Any]) -> State:
        """Return the state after these events. `evolve` gets recorded messages as typed ones."""
        return self.evolved(self.initial, events)

    def evolved(self, state: State, events: Iterable[Any]) -> State:
        """Return the state after these events too. The given one stays as it is."""
        state = copied(state)  # `evolve` may change it in place
        for event in events:
            state = self.evolve(state, typed_event(event))
        return state

    def events(self, past: Iterable[Any], command: Command) -> list[Event]:
        """Return the events that the command leads to, after these past ones."""
        return self.decided(self.state(past), command)

    def decided(self, state: State, command: Command) -> list[Event]:
        """Return the events that the command leads to, in this state, which stays as it is."""
        return list(self.decide(copied(state), command))

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


def copied(state: State) -> State:
    """Return a copy of a state, which may be changed in place."""
    try:
        return copy.deepcopy(state)
    except Exception as error:
        raise ValidationError("state", state, "one that copy.deepcopy can copy") from error


def typed_event(event: Any) -> Any:
    """Return a recorded message as an instance of its class, if this process has one."""
    if isinstance(event, RecordedMessage) and (found := find_class(event.type)) is not None:
        return found.from_recorded(event)
    return event


def _comparable(event: Event) -> tuple[str, dict[str, Any]]:
    message = event.to_message() if isinstance(event, TypedMessage) else event
    return message.type, dict(message.data or {})
