"""The space that moved messages leave in the indexes of the log, given back.

A page of an index is used again only when nothing of it is left, and of each stream the last
message stays. So after a large part of a log has moved, its indexes consist of pages that are
mostly empty. `rebuild` gives their space back: `reindex index concurrently`, one index at a time.

Writers and readers go on meanwhile: it takes a lock that only vacuum, other rebuilds and DDL
conflict with. It waits for the transactions that were open before it, and no transaction waits for
it, so it cannot be part of a deadlock with writers: the advisory locks of Penstock that its session
holds are only ever tried, never waited for. Because a transaction may stay open for long, the wait
is limited; the index is left as it was then.

A rebuild that ends halfway leaves an invalid index, which every write has to maintain.
`drop_unfinished` removes those of earlier runs, and `penstock doctor` names them. If the client is
killed, the server notices that within a second, and ends the rebuild.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

log = logging.getLogger(__name__)
#: an index is rebuilt if less than this share of it would be left; one with rows in random order
#: settles at about 0.75
FULL_ENOUGH = 0.6
#: smaller indexes are not worth it
SMALLEST = 16 * 1024 * 1024
#: how long a rebuild waits for transactions that are open
LONGEST_WAIT = "60s"
_LOCK = 1885693292  # one rebuild at a time: two of them would wait for each other
_SETTINGS = {
    "lock_timeout": LONGEST_WAIT,
    "client_connection_check_interval": "1s",
    "max_parallel_maintenance_workers": "0",  # leave the other processors to writers
}
#: reasons to leave an index as it is
_LEFT = (
    psycopg.errors.LockNotAvailable,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.InsufficientPrivilege,
    psycopg.errors.DiskFull,
)

# Invalid indexes that a rebuild has left. While it goes on, it holds a lock on the new index.
_UNFINISHED = """
select c.relname::text
from pg_catalog.pg_index i join pg_catalog.pg_class c on c.oid = i.indexrelid
where i.indrelid = 'message_store.messages'::regclass and not i.indisvalid
  and c.relname ~ '_cc(new|old)[0-9]*$'
  and not exists (
    select from pg_catalog.pg_locks l
    where l.relation = i.indexrelid and l.mode = 'ShareUpdateExclusiveLock'
      and l.database = (
        select d.oid from pg_catalog.pg_database d where d.datname = current_database()))
order by 1
"""
# Indexes with their size and the size that they would have: a leaf is filled to 90 %, and a row
# takes a pointer, a header and the average of its columns.
_SIZES = """
select c.relname::text, pg_relation_size(c.oid),
  (greatest(t.reltuples, 0) * (4 + 8 * ceil((8 + w.width) / 8.0)) / 0.9)::bigint
from pg_catalog.pg_index i
join pg_catalog.pg_class c on c.oid = i.indexrelid
join pg_catalog.pg_class t on t.oid = i.indrelid
join pg_catalog.pg_am m on m.oid = c.relam and m.amname = 'btree'
cross join lateral (
  select sum(coalesce(own.avg_width, plain.avg_width, nullif(a.attlen, -1), 32)) as width
  from pg_catalog.pg_attribute a
  left join pg_catalog.pg_attribute source
    on source.attrelid = i.indrelid and source.attnum = i.indkey[a.attnum - 1]
  left join pg_catalog.pg_stats plain on plain.schemaname = 'message_store'
    and plain.tablename = t.relname and plain.attname = source.attname
  left join pg_catalog.pg_stats own on own.schemaname = 'message_store'
    and own.tablename = c.relname and own.attname = a.attname
  where a.attrelid = c.oid and a.attnum > 0
) w
where i.indrelid = 'message_store.messages'::regclass and i.indisvalid and i.indpred is null
order by 1
"""


class IndexSize(NamedTuple):
    """The bytes of an index, and about how many it would have if it were built anew."""

    name: str
    size: int
    needed: int

    @property
    def is_bloated(self) -> bool:
        """Whether to rebuild it pays."""
        return self.size >= SMALLEST and self.needed < FULL_ENOUGH * self.size


def unfinished(connection: psycopg.Connection[Any]) -> list[str]:
    """Return the invalid indexes of the log that an interrupted rebuild has left."""
    return [name for (name,) in connection.execute(_UNFINISHED)]


def index_sizes(connection: psycopg.Connection[Any]) -> list[IndexSize]:
    """Return the sizes of the indexes of the log, as of its last vacuum."""
    return [IndexSize(*row) for row in connection.execute(_SIZES)]


def drop_unfinished(connection: psycopg.Connection[Any]) -> list[str]:
    """Drop what interrupted rebuilds have left; return which indexes."""
    found = unfinished(connection)
    if not found:
        return []
    with _alone(connection) as is_alone:
        return [one for one in found if is_alone and _drop(connection, one)]


def rebuild(
    connection: psycopg.Connection[Any],
    names: list[str],
    progress: Callable[[str], None] = lambda index: None,
    max_load: float = 1.0,
) -> list[str]:
    """Rebuild indexes of the log, while others write; return which were.

    `progress` is called with the name of each. Between two it pauses, as the archive does. Nothing
    is rebuilt if another process is doing so.
    """
    rebuilt: list[str] = []
    pause = 0.0
    with _alone(connection) as is_alone:
        for name in names if is_alone else ():
            time.sleep(pause)
            progress(name)
            began = time.monotonic()
            if not _rebuild(connection, name):
                break  # whatever is in the way is so for the next one, too
            rebuilt.append(name)
            pause = (time.monotonic() - began) * (1 / max_load - 1)
    return rebuilt


def _rebuild(connection: psycopg.Connection[Any], name: str) -> bool:
    try:
        connection.execute(sql.SQL("reindex index concurrently {}").format(_identifier(name)))
    except _LEFT as error:
        log.warning("index %s was not rebuilt: %s", name, str(error).splitlines()[0])
        for one in unfinished(connection):
            _drop(connection, one)
        return False
    return True


def _drop(connection: psycopg.Connection[Any], name: str) -> bool:
    try:
        connection.execute(sql.SQL("drop index concurrently {}").format(_identifier(name)))
    except (*_LEFT, psycopg.errors.UndefinedTable) as error:
        log.warning("the unfinished index %s stays: %s", name, str(error).splitlines()[0])
        return False
    return True


@contextmanager
def _alone(connection: psycopg.Connection[Any]) -> Iterator[bool]:
    """Set the session up for rebuilds; yield whether nobody else is at it."""
    for name, value in _SETTINGS.items():
        connection.execute("select set_config(%s, %s, false)", (name, value))
    row = connection.execute("select pg_try_advisory_lock(%s)", (_LOCK,)).fetchone()
    assert row is not None
    try:
        yield bool(row[0])
    finally:
        if not connection.closed:
            if row[0]:
                connection.execute("select pg_advisory_unlock(%s)", (_LOCK,))
            for name in _SETTINGS:
                connection.execute(sql.SQL("reset {}").format(sql.Identifier(name)))


def _identifier(name: str) -> sql.Identifier:
    return sql.Identifier("message_store", name)
