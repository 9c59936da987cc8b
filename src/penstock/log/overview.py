"""An overview of the log: categories, streams, versions and the watermark."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString

from penstock.database.edition import Edition
from penstock.database.operation import Operation, Row, call, only_value
from penstock.errors import ValidationError
from penstock.log.context import LogContext, is_whole
from penstock.log.write import check_category
from penstock.message import check_text

_STATUS: LiteralString = """
select
  message_store.message_store_version()::text,
  current_setting('server_version'),
  pg_is_in_recovery(),
  coalesce((select max(global_position) from message_store.messages), 0)"""
_STATUS_OF_PENSTOCK: LiteralString = """,
  (select version from penstock.installations order by id desc limit 1),
  case when not pg_is_in_recovery() then penstock.watermark() end,
  coalesce(
    (select json_agg(json_build_array(
       w.pid, w.role, w.application_name, w.state, extract(epoch from w.age), w.bound, a.query))
     from penstock.open_writers() w left join pg_catalog.pg_stat_activity a on a.pid = w.pid),
    '[]'),
  (select max(highest_position) from penstock.archive_segments),
  (select coalesce(sum(message_count), 0)::bigint from penstock.archive_segments)"""


def server_time() -> Operation[datetime]:
    """Read the server's clock. Ages are computed with it."""
    return call("server_time", "select clock_timestamp()", (), only_value)


@dataclass(frozen=True, slots=True)
class CategorySummary:
    """A category, the global position of its last message, and when that was written."""

    category: str
    head: int
    last_written: datetime


@dataclass(frozen=True, slots=True)
class StreamSummary:
    """A stream, the position of its last message, and when that was written."""

    stream_name: str
    version: int
    last_written: datetime


@dataclass(frozen=True, slots=True)
class OpenWriter:
    """A transaction that has written and is still open: no reader passes `bound` until it ends."""

    pid: int | None
    role: str | None
    application_name: str | None
    state: str | None
    age: timedelta | None
    bound: int
    #: its last statement, if this role may see it
    last_statement: str | None = None

    def __str__(self) -> str:
        """Describe it: pid, age, application, state and last statement, as far as they are seen."""
        if self.pid is None:
            return f"the prepared transaction {self.application_name!r}"
        age = "" if self.age is None else f", open for {self.age.total_seconds():.0f} s"
        statement = " ".join((self.last_statement or "").split())
        said = f", last statement: {shortened(statement)}" if statement else ""
        state = f", {self.state}" if self.state else ""
        return f"pid {self.pid} ({self.application_name or 'no application'}{state}){age}{said}"


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a message store. Fields that require Penstock's schema are None without it."""

    edition: Edition
    schema_version: int | None
    message_store_version: str
    server_version: str
    #: whether the server is a standby
    standby: bool
    #: the global position of the last message that is committed, 0 if there is none
    head: int
    #: the position up to which the log is complete; reads of many streams end there
    watermark: int | None
    #: the transactions that hold the watermark back, oldest first
    open_writers: tuple[OpenWriter, ...]
    #: the last global position in the archive; None if there is no archive
    archived_to: int | None
    #: how many messages are in the archive
    archived_messages: int

    @property
    def behind(self) -> int:
        """The number of positions up to the head that readers of many streams do not get yet."""
        return 0 if self.watermark is None else max(0, self.head - self.watermark)


def categories(context: LogContext) -> Operation[list[CategorySummary]]:
    """List the categories, by name."""
    if context.edition.has_watermark:
        sql = "select * from penstock.categories() order by 1"
    else:
        sql = (
            "select message_store.category(stream_name), max(global_position), max(time)"
            " from message_store.messages group by 1 order by 1"
        )
    return call(
        "categories",
        sql,
        (),
        lambda rows: [CategorySummary(name, head, _utc(time)) for name, head, time in rows],
    )


def streams(
    context: LogContext, category: str | None = None, after: str = "", limit: int = 100
) -> Operation[list[StreamSummary]]:
    """List streams by name, of one category or of all, after the name `after`."""
    if category is not None:
        check_category(category)
    if after != "":
        check_text("after", after)
    if not is_whole(limit) or limit < 1:
        raise ValidationError("limit", limit, "at least 1")
    if context.edition.has_watermark:
        sql = "select * from penstock.streams(%s, %s, %s) order by 1"
        arguments: tuple[Any, ...] = (category, after, limit)
    else:
        sql = (
            "select stream_name, max(position), max(time) from message_store.messages"
            " where stream_name > %s"
            " and (%s::varchar is null or message_store.category(stream_name) = %s::varchar)"
            " group by 1 order by 1 limit %s"
        )
        arguments = (after, category, category, limit)
    return call(
        "streams",
        sql,
        arguments,
        lambda rows: [StreamSummary(name, version, _utc(time)) for name, version, time in rows],
    )


def shortened(statement: str, most: int = 100) -> str:
    """Return a statement for a message: at most so many characters."""
    return statement if len(statement) <= most else f"{statement[: most - 1]}…"


def terminate(pid: int) -> Operation[bool]:
    """End a server process, and roll back its transaction; the result is whether it has ended."""
    sql = "select pg_terminate_backend(%s, 5000)"  # milliseconds that it may take to end
    return call("terminate", sql, (check_pid(pid),), only_value)


def check_pid(pid: int) -> int:
    """Return a checked number of a server process."""
    if not is_whole(pid) or not 0 < pid < 2**31:
        raise ValidationError("pid", pid, "the number of a server process")
    return pid


def status(context: LogContext) -> Operation[Status]:
    """Read the state of the message store: versions, head, watermark and open writers."""

    def decode(rows: list[Row]) -> Status:
        version, server, standby, head, *of_penstock = rows[0]
        schema, watermark, writers, *archived = of_penstock or (None, None, (), None, 0)
        open_writers = tuple(
            OpenWriter(
                *(pid, role, app, state, None if age is None else timedelta(seconds=age)),
                *(bound, statement),
            )
            for pid, role, app, state, age, bound, statement in writers
        )
        edition = context.edition
        return Status(
            edition, schema, version, server, standby, head, watermark, open_writers, *archived
        )

    sql = _STATUS + (_STATUS_OF_PENSTOCK if context.edition.has_watermark else "")
    return call("status", sql, (), decode)


def _utc(time: datetime) -> datetime:
    """Add the zone to a time, which Message DB stores in UTC without one."""
    return time.replace(tzinfo=UTC)
