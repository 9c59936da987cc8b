"""A worker's decider: the messages of a claim are commands, decided one after the other.

All outcomes are appended at once. So the outcome of a command changes the state for the next one
before it is in the log, and as if it had been appended and read again: those events that match the
boundary evolve the state, as typed messages, with what the serializer makes of their data. Where it
cannot be known what a read will return, the batch ends with that command: an interceptor changes
messages, or an event has an attribute of the partition that is not plain. The messages after it are
claimed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from penstock.database.interceptor import overrides
from penstock.errors import ValidationError
from penstock.groups.claims import Claim
from penstock.log.boundary import MessageType, check_types, partition_conditions
from penstock.log.context import LogContext
from penstock.log.decider import Decider, Event, typed_event
from penstock.log.decision import BoundaryState
from penstock.log.guard import Guard
from penstock.message import RecordedMessage
from penstock.message.conditions import QueryCondition, matches
from penstock.message.typed import TypedMessage, class_of, type_name

_SOME_TIME = datetime(2000, 1, 1)  # noqa: DTZ001 - a typed message has no time


@dataclass(frozen=True, slots=True)
class Decided:
    """The outcomes of the first messages of a claim."""

    #: a list for each message
    outcomes: list[list[Event]]
    #: why the message after these could not be decided, if it was tried
    error: Exception | None

    def first(self, count: int) -> list[Event]:
        """Return the outcomes of the first messages, in one list."""
        return [event for events in self.outcomes[:count] for event in events]


class PartitionDecider:
    """A decider for the partitions of a group, and the types of messages that it decides on."""

    def __init__(
        self,
        decider: Decider[Any, Any],
        decides_on: Sequence[MessageType] | None,
        attributes: Iterable[str],
    ) -> None:
        if decides_on is None:
            raise ValidationError("decides_on", decides_on, "given together with a Decider")
        check_types(decides_on)
        classes = [class_of(type_name(one)) for one in decides_on]
        for one in classes:
            if not set(attributes) & set(one.indexed_attribute_names):
                expected = "types that index one of the attributes of partition_by"
                raise ValidationError("decides_on", one.message_type, expected)
        self.decider = decider
        self._types = decides_on
        self._attributes = {name for one in classes for name in one.indexed_attribute_names}

    def guard(self, claim: Claim) -> Guard:
        """Return a guard with the conditions of the claim's partition."""
        values = {
            name: value for name, value in claim.partition_value.items() if name in self._attributes
        }
        return Guard(tuple(partition_conditions(values, self._types)))

    def decide(
        self, context: LogContext, begin: BoundaryState, messages: Iterable[RecordedMessage]
    ) -> Decided:
        """Decide messages on the evolving state, up to one that fails or must be appended first."""
        state, outcomes = begin.state, list[list[Event]]()
        for message in messages:
            try:
                outcomes.append(self.decider.decided(state, typed_event(message)))
            except Exception as error:
                return Decided(outcomes, error)
            try:
                events = _as_read(context, begin.guard.conditions, outcomes[-1])
                state = self.decider.evolved(state, events)
            except Exception:  # the next claim reads these events, or their append raises
                break
        return Decided(outcomes, None)


def _as_read(
    context: LogContext, conditions: Sequence[QueryCondition], events: list[Event]
) -> list[RecordedMessage]:
    """Return the events that match, as a read will return them; raise if that is not known."""
    if events and any(
        overrides(one, hook) for one in context.interceptors for hook in ("on_write", "on_read")
    ):
        raise ValueError("an interceptor may change messages")
    rows = []
    for event in events:
        message = event.to_message() if isinstance(event, TypedMessage) else event
        id, type, data, metadata = context.encode("", message)
        if matches(conditions, type, msgspec.json.decode(data)):
            rows.append((str(id), "", type, 0, 0, data, metadata, _SOME_TIME))
    return context.decode(rows)
