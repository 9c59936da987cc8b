"""Message types and partitioned consumer groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from penstock.errors.base import PenstockError


@dataclass(eq=False)
class MessageTypeError(PenstockError):
    """A message type or one of its attributes is unknown or not ready.

    See the errors below.
    """

    type: str


@dataclass(eq=False)
class UnknownMessageType(MessageTypeError):
    """This process has no `TypedMessage` class for the type.

    Import the module that defines it.
    """

    known: tuple[str, ...] = ()

    def __str__(self) -> str:
        return (
            f"no class is defined for message type {self.type}; known are "
            f"{', '.join(self.known) or 'none'}: is the module that defines it imported?"
        )


@dataclass(eq=False)
class UndeclaredType(MessageTypeError):
    """The type declares no attributes in this database.

    Call `store.declare()` with its class.
    """

    sqlstates: ClassVar[tuple[str, ...]] = ("PS040",)

    def __str__(self) -> str:
        return (
            f"message type {self.type} declares no attributes in this database: "
            "call store.declare() with its class"
        )


@dataclass(eq=False)
class UndeclaredAttribute(MessageTypeError):
    """The type does not declare these attributes.

    Declare them, or correct the condition.
    """

    sqlstates: ClassVar[tuple[str, ...]] = ("PS042",)

    attributes: list[str]

    def __str__(self) -> str:
        return f"message type {self.type} does not declare {', '.join(self.attributes)}"


@dataclass(eq=False)
class IndexingUnfinished(MessageTypeError):
    """Older messages of the type are not indexed yet, so a condition could miss some.

    Let `store.declare()` finish.
    """

    sqlstates: ClassVar[tuple[str, ...]] = ("PS041",)

    def __str__(self) -> str:
        return (
            f"older messages of type {self.type} are not indexed yet: call store.declare() with "
            "its class and let it finish"
        )


@dataclass(eq=False)
class DeclarationBlocked(MessageTypeError):
    """A new type could not be declared while a transaction is writing.

    Declare types before the first write.
    """

    retryable: ClassVar[bool] = True
    sqlstates: ClassVar[tuple[str, ...]] = ("PS048",)

    def __str__(self) -> str:
        return (
            f"message type {self.type} is new to this database and could not be declared, since a "
            "transaction is writing (maybe this one): call store.declare() with its class first"
        )


@dataclass(eq=False)
class GroupError(PenstockError):
    """A consumer group cannot do this.

    See the errors below.
    """

    group_id: str


@dataclass(eq=False)
class GroupNotFound(GroupError):
    """No such consumer group was registered.

    Register it.
    """

    sqlstates: ClassVar[tuple[str, ...]] = ("PS044",)

    def __str__(self) -> str:
        return f"no consumer group {self.group_id}: call store.groups.register() first"


@dataclass(eq=False)
class PartitionByChanged(GroupError):
    """The group is partitioned by other attributes.

    Reset the group to change them.
    """

    sqlstates: ClassVar[tuple[str, ...]] = ("PS046",)

    partition_by: list[str]
    given: list[str]

    def __str__(self) -> str:
        return (
            f"group {self.group_id} is partitioned by {', '.join(self.partition_by)}, not by "
            f"{', '.join(self.given)}: reset the group to change that"
        )


@dataclass(eq=False)
class StaleClaim(GroupError):
    """The claim is no longer valid: it expired, was released, or the group was reset.

    Claim again. Another worker may have handled the messages meanwhile.
    """

    sqlstates: ClassVar[tuple[str, ...]] = ("PS045",)

    offset_id: int

    def __str__(self) -> str:
        return (
            f"the claim on partition {self.offset_id} of group {self.group_id} is no longer valid: "
            "its lease expired, it was released, or the group was reset"
        )


@dataclass(eq=False)
class InvalidAck(GroupError):
    """The position is not one that this claim can acknowledge.

    Acknowledge a position that was claimed.
    """

    sqlstates: ClassVar[tuple[str, ...]] = ("PS047",)

    position: int
    last_position: int

    def __str__(self) -> str:
        return (
            f"position {self.position} cannot be acknowledged in group {self.group_id}: it is not "
            f"after {self.last_position}, or it is beyond what was claimed"
        )
