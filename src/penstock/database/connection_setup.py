"""What each new connection of a pool is set to, and how a failed attempt to get one is told."""

from __future__ import annotations

import re
import time
from typing import Any, LiteralString

import psycopg

from penstock.database.edition import Edition
from penstock.errors import (
    AuthenticationFailed,
    DatabaseUnreachable,
    PoolExhausted,
    UnavailableError,
    first_line,
)
from penstock.settings import Settings, redact

#: one round trip that sets all of a session
CONFIGURE: LiteralString = """
select set_config(name, value, false)
from unnest(%s::text[], %s::text[]) as setting(name, value)
"""

#: libpq tells why a connection failed by text alone
_REFUSED = re.compile(
    r"authentication failed|no pg_hba\.conf entry|not permitted to log in|role .* does not exist"
)

#: a server that refuses a connection now and will soon allow it
_BUSY = re.compile(
    r"too many (clients|connections)|remaining connection slots|the database system is "
)

#: genuine Message DB's functions name each other without their schema
PREPEND_SEARCH_PATH: LiteralString = """
select set_config('search_path', 'message_store, ' || current_setting('search_path'), false)
"""


def session_settings(settings: Settings) -> tuple[list[str], list[str]]:
    """Return names and values of the server settings that each connection gets."""
    values = {
        "timezone": settings.session_timezone,
        "statement_timeout": str(settings.command_timeout_ms),
        "default_transaction_isolation": "read committed",
        "default_transaction_read_only": "on" if settings.read_only else "off",
        "message_store.sql_condition": "on" if settings.sql_condition else "off",
    }
    return list(values), list(values.values())


def connection_options(settings: Settings) -> dict[str, Any]:
    """Return how psycopg is to treat a connection, in a pool or alone."""
    # With no threshold psycopg prepares nothing, whatever else it is asked to.
    threshold = 5 if settings.prepared_statements else None
    return {"autocommit": True, "prepare_threshold": threshold}


class Attempts:
    """One caller's attempts to get a connection: how long it may wait, and what ends it."""

    def __init__(self, settings: Settings) -> None:
        self._begun = time.monotonic()
        self._timeout = settings.pool_timeout_ms / 1000
        self._pause = 0.01

    def left(self) -> float:
        """The seconds that are left to wait for a connection."""
        return max(0.0, self._begun + self._timeout - time.monotonic())

    def pause_after(self, error: UnavailableError) -> float:
        """Return the seconds until the next attempt, or raise the error if there is none.

        A server that is full or starting up is asked again for as long as a caller may wait; one
        that does not answer only for a second, which covers a restart.
        """
        patience = self._timeout if _BUSY.search(error.reason) else min(1.0, self._timeout)
        if not error.retryable or time.monotonic() - self._begun >= patience:
            raise error
        self._pause = min(2 * self._pause, 0.5)
        return min(self._pause, max(0.0, self._begun + patience - time.monotonic()))


def none_came(settings: Settings, lent: int) -> UnavailableError:
    """Return what to raise when no connection came in time, with so many of them lent."""
    waited = f"{settings.pool_timeout_ms / 1000:g} s"
    if lent < settings.pool_max_size:
        reason = f"the server gave no connection for {waited}, though it answers now and then"
        return DatabaseUnreachable(settings.where(), reason)
    return PoolExhausted(
        settings.where(),
        f"all {settings.pool_max_size} connections stayed in use for {waited}: "
        "end transactions sooner, or raise pool_max_size",
    )


def needs_search_path(edition: Edition) -> bool:
    """Whether the session must find genuine Message DB's functions without their schema."""
    return edition is not Edition.PENSTOCK


def connection_failed(error: psycopg.Error, where: str) -> UnavailableError:
    """Return what a failed attempt to connect means. Never shows a password."""
    reason = redact(first_line(error))
    lacks_password = error.pgconn is not None and error.pgconn.needs_password
    if lacks_password or _REFUSED.search(reason):
        return AuthenticationFailed(where, reason)
    return DatabaseUnreachable(where, reason)
