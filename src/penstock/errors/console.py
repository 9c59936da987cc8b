"""What the console cannot find or do."""

from __future__ import annotations

from penstock.errors.base import PenstockError


class ConsoleError(PenstockError):
    """The console cannot show something, or an action on it was refused."""


class MessageNotFound(ConsoleError):
    """The log has no message at this global position, or with this id.

    Check it: the message may have been removed by retention, or be beyond the end. Archived
    messages are found by their global position only.
    """

    key: str
    hint: str
    template = "there is no message {key!r}: {hint}"


class ProcessorNotFound(ConsoleError):
    """No pipeline or processor of this name has run on this database.

    Check the name: `penstock pipelines` lists them.
    """

    name: str
    template = "no pipeline or processor {name!r} has run on this database"


class TableNotFound(ConsoleError):
    """The lake has no table of this name.

    Check the name: `penstock lake` lists them. The store needs the warehouse of the lake.
    """

    name: str
    template = "the lake has no table {name!r}"


class PartitionNotFound(ConsoleError):
    """The group has no partition with this key.

    Check the key, such as `course:Algebra|user:joe`: the group may have been reset meanwhile.
    """

    group_id: str
    partition_key: str
    template = "group {group_id} has no partition {partition_key!r}"


class DeadLetterNotFound(ConsoleError):
    """This is not a dead letter, or not any more.

    List them again: it may have been retried or dropped meanwhile.
    """

    key: str
    template = "there is no dead letter {key!r}: it may have been retried or dropped meanwhile"


class StateChanged(ConsoleError):
    """The action was refused, since what it acts on has changed meanwhile. Nothing was done.

    Look at it again: somebody else may have done the same.
    """

    what: str
    expected: str
    actual: str
    template = "{what} is {actual} by now, not {expected}: nothing was done"
