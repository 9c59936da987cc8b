"""What can go wrong with message types and consumer groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from penstock.errors.base import PenstockError


@dataclass(eq=False)
class MessageTypeError(PenstockError):
    """A message type, or an attribute of one, is not what the call takes it for."""

    type: str


@dataclass(eq=False)
class UnknownMessageType(MessageTypeError):
    """No TypedMessage class of this process has the type."""

    known: tuple[str, ...] = ()

    def __str__(self) -> str:
        return (
            f"no class is defined for message type {self.type}; known are "
            f"{', '.join(self.known) or 'none'}: is the module that defines it imported?"
        )


@dataclass(eq=False)
class UndeclaredType(MessageTypeError):
    """The type declares no attributes in this database."""

    def __str__(self) -> str:
        return (
            f"message type {self.type} declares no attributes in this database: "
            "call store.declare() with its class"
        )


@dataclass(eq=False)
class UndeclaredAttribute(MessageTypeError):
    """The type does not declare these attributes."""

    attributes: list[str]

    def __str__(self) -> str:
        return f"message type {self.type} does not declare {', '.join(self.attributes)}"


@dataclass(eq=False)
class IndexingUnfinished(MessageTypeError):
    """Older messages of the type are still being indexed, so a condition might miss some."""

    def __str__(self) -> str:
        return (
            f"older messages of type {self.type} are not indexed yet: call store.declare() with "
            "its class and let it finish"
        )


@dataclass(eq=False)
class DeclarationBlocked(MessageTypeError):
    """A type that is used for the first time could not be declared: a transaction is writing."""

    retryable: ClassVar[bool] = True

    def __str__(self) -> str:
        return (
            f"message type {self.type} is new to this database and could not be declared, since a "
            "transaction is writing (maybe this one): call store.declare() with its class first"
        )


@dataclass(eq=False)
class GroupError(PenstockError):
    """A consumer group cannot do this."""

    group_id: str


@dataclass(eq=False)
class GroupNotFound(GroupError):
    """No such consumer group was registered."""

    def __str__(self) -> str:
        return f"no consumer group {self.group_id}: call store.groups.register() first"


@dataclass(eq=False)
class PartitionByChanged(GroupError):
    """The group is partitioned by other attributes."""

    partition_by: list[str]
    given: list[str]

    def __str__(self) -> str:
        return (
            f"group {self.group_id} is partitioned by {', '.join(self.partition_by)}, not by "
            f"{', '.join(self.given)}: reset the group to change that"
        )


@dataclass(eq=False)
class StaleClaim(GroupError):
    """The claim is not yours any more: it lapsed, was given back, or the group was reset."""

    offset_id: int

    def __str__(self) -> str:
        return (
            f"the claim on partition {self.offset_id} of group {self.group_id} is not yours any "
            "more: its lease lapsed, it was given back, or the group was reset"
        )


@dataclass(eq=False)
class InvalidAck(GroupError):
    """The position is not one that this claim can acknowledge."""

    position: int
    last_position: int

    def __str__(self) -> str:
        return (
            f"position {self.position} cannot be acknowledged in group {self.group_id}: it is not "
            f"after {self.last_position}, or it is beyond what was claimed"
        )
