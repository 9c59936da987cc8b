"""Message types and partitioned consumer groups."""

from __future__ import annotations

from penstock.errors.base import PenstockError


class MessageTypeError(PenstockError):
    """A message type or one of its attributes is unknown or not ready."""

    type: str


class UnknownMessageType(MessageTypeError):
    """This process has no `TypedMessage` class for the type.

    Import the module that defines it.
    """

    known: tuple[str, ...] = ()
    template = (
        "no class is defined for message type {type}; known are {known}: is the module that "
        "defines it imported?"
    )


class UndeclaredType(MessageTypeError, sqlstates=("PS040",)):
    """The type declares no attributes in this database.

    Call `store.declare()` with its class.
    """

    template = (
        "message type {type} declares no attributes in this database: call store.declare() with "
        "its class"
    )


class UndeclaredAttribute(MessageTypeError, sqlstates=("PS042",)):
    """The type does not declare these attributes.

    Declare them, or correct the condition.
    """

    attributes: list[str]
    template = "message type {type} does not declare {attributes}"


class IndexingUnfinished(MessageTypeError, sqlstates=("PS041",)):
    """Older messages of the type are not indexed yet, so a condition could miss some.

    Let `store.declare()` finish.
    """

    template = (
        "older messages of type {type} are not indexed yet: call store.declare() with its class "
        "and let it finish"
    )


class DeclarationBlocked(MessageTypeError, retryable=True, sqlstates=("PS048",)):
    """A new type could not be declared while a transaction is writing.

    Declare types before the first write.
    """

    template = (
        "message type {type} is new to this database and could not be declared, since a "
        "transaction is writing (maybe this one): call store.declare() with its class first"
    )


class GroupError(PenstockError):
    """A consumer group cannot do this."""

    group_id: str


class GroupNotFound(GroupError, sqlstates=("PS044",)):
    """No such consumer group was registered, or it was removed.

    Register it.
    """

    template = (
        "no consumer group {group_id}: it was removed, or never registered; "
        "store.groups.register() creates it"
    )


class PartitionByChanged(GroupError, sqlstates=("PS046",)):
    """The group is partitioned by other attributes.

    Reset the group to change them.
    """

    partition_by: list[str]
    given: list[str]
    template = (
        "group {group_id} is partitioned by {partition_by}, not by {given}: reset the group to "
        "change that"
    )


class StaleClaim(GroupError, sqlstates=("PS045",)):
    """The claim is no longer valid: it expired, was released, or the group was reset.

    Claim again. Another worker may have handled the messages meanwhile.
    """

    offset_id: int
    template = (
        "the claim on partition {offset_id} of group {group_id} is no longer valid: its lease "
        "expired, it was released, or the group was reset"
    )


class InvalidAck(GroupError, sqlstates=("PS047",)):
    """The position is not one that this claim can acknowledge.

    Acknowledge a position that was claimed.
    """

    position: int
    last_position: int
    template = (
        "position {position} cannot be acknowledged in group {group_id}: it is not after "
        "{last_position}, or it is beyond what was claimed"
    )
