"""Iceberg tables and their warehouse."""

from __future__ import annotations

from penstock.errors.base import PenstockError
from penstock.errors.database import UnavailableError


class LakeError(PenstockError):
    """A table of the lake cannot do this."""


class NoWarehouse(LakeError):
    """Tables of the lake need a warehouse: the folder or bucket for their files.

    Set `warehouse`, or the environment variable `PENSTOCK_WAREHOUSE`: [The lake](guides/lake.md).
    """

    where: str
    template = (
        "{where} has no warehouse, the place for the files of Iceberg tables: set warehouse, or "
        "PENSTOCK_WAREHOUSE, to a URL such as file:///data/lake or s3://bucket/lake"
    )


class WarehouseUnusable(LakeError):
    """Files cannot be written to the warehouse, or read there.

    Check that the folder or bucket exists, and the credentials.
    """

    warehouse: str
    reason: str
    template = "the warehouse {warehouse} cannot be used: {reason}"


class WrongTable(LakeError):
    """A table of the lake exists and does not fit what a processor writes to it.

    Change the processor, write to another table, or run the pipeline from scratch.
    """

    table: str
    problem: str
    template = "the Iceberg table {table} {problem}"


class TableReplaced(LakeError, retryable=True):
    """A table was dropped, replaced or partitioned anew by others while a step was written to it.

    Do nothing: the step is tried again, with the table as it is now.
    """

    table: str
    template = (
        "the Iceberg table {table} was dropped, replaced or partitioned anew by others while a "
        "step was written to it; the step is tried again"
    )


class TableChanged(LakeError, retryable=True):
    """Others committed to a table again and again, so that its schema or files could not be.

    Do nothing in a pipeline: the step is tried again. Repeat the upkeep of a table later.
    """

    table: str
    attempts: int
    template = (
        "others changed the Iceberg table {table} during each of {attempts} attempts to commit to "
        "it; try again"
    )


class ArchiveError(LakeError):
    """Messages cannot be moved to the archive, or read there."""


class ArchiveUnreachable(UnavailableError):
    """Files of the archive cannot be read.

    Check that the warehouse can be reached, and the credentials in `lake_options`. Reads that need
    no archived messages go on.
    """

    template = "the archive at {where} cannot be read: {reason}"


class ArchiveLost(ArchiveError, sqlstates=("PS090",)):
    """Messages were archived, and the archive's table is not in the catalog.

    Restore the row of the table `penstock.archive` in `iceberg_tables`.
    """

    template = "messages were archived, and the table penstock.archive is not in the catalog"


class ArchivedMessages(ArchiveError, sqlstates=("PS091",)):
    """A read would have to evaluate SQL on archived messages, which only PostgreSQL can.

    Read without the condition, or begin after the archived messages.
    """

    target: str
    position: int
    filter: str
    template = (
        "messages of {target} from {position} on are in the archive, where {filter!r} cannot be "
        "evaluated: read without it, or from a later position"
    )


class CategoryWritten(ArchiveError, retryable=True, sqlstates=("PS092",)):
    """A bulk write to the category is open.

    Archive it when the write has ended.
    """

    category: str
    template = "the category {category} is being written in bulk: archive it later"


class ArchiveMismatch(ArchiveError, retryable=True, sqlstates=("PS093",)):
    """Messages were removed or changed while they were being archived; none was moved.

    Run it again.
    """

    category: str
    template = "messages of {category} were changed while they were archived; none was moved"


class ArchiveRunning(ArchiveError, retryable=True):
    """Another process is archiving the category.

    Wait until it has ended.
    """

    category: str
    template = "another process is archiving the category {category}"


class UnreadMessages(ArchiveError, sqlstates=("PS095",)):
    """A reader has not read messages that would be archived.

    Wait until it has, or pass `ignore_consumers`: it then reads them from the archive, more slowly.
    """

    category: str
    reader: str
    needs: int
    template = (
        "{reader} has not read messages of {category} that would be archived, from {needs} on: "
        "wait, or ignore consumers, which then read them from the archive"
    )
