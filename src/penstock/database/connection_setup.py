"""The settings of each new connection, and the errors of failed attempts to connect."""

from __future__ import annotations

import re
import time
from typing import Any, LiteralString

import psycopg

from penstock.database.edition import Edition
from penstock.errors import AuthenticationFailed, DatabaseUnreachable, UnavailableError, first_line
from penstock.settings import Settings, redact

#: sets all session settings in one round trip. Genuine Message DB's functions name each other
#: without their schema, so they need it on the search path
_CONFIGURE: LiteralString = """
select set_config(name, value, false)
from unnest(%s::text[], %s::text[]) as setting(name, value)
union all
select set_config('search_path', 'message_store, ' || current_setting('search_path'), false)
where %s
"""

#: libpq gives the reason for a failed connection only as text
_REFUSED = re.compile(
    r"authentication failed|no pg_hba\.conf entry|not permitted to log in|role .* does not exist"
)

#: errors of a server that refuses connections for a short time only
_BUSY = re.compile(
    r"too many (clients|connections)|remaining connection slots|the database system is "
)


def configuration(
    settings: Settings, edition: Edition = Edition.PENSTOCK
) -> tuple[LiteralString, tuple[Any, ...]]:
    """Return the statement that configures a connection, and its arguments."""
    values = {
        "timezone": settings.session_timezone,
        "statement_timeout": str(settings.command_timeout_ms),
        "default_transaction_isolation": "read committed",
        "default_transaction_read_only": "on" if settings.read_only else "off",
        "message_store.sql_condition": "on" if settings.sql_condition else "off",
    }
    return _CONFIGURE, (list(values), list(values.values()), edition is not Edition.PENSTOCK)


class Attempts:
    """One caller's attempts to get a connection: the pauses between them and their time limit."""

    def __init__(self, settings: Settings) -> None:
        self._begun = time.monotonic()
        self._timeout = settings.pool_timeout_ms / 1000
        self._pause = 0.01

    def left(self) -> float:
        """Return the seconds left to wait for a connection."""
        return max(0.0, self._begun + self._timeout - time.monotonic())

    def pause_after(self, error: UnavailableError) -> float:
        """Return the seconds until the next attempt, or raise the error after the last one.

        Attempts end after `pool_timeout_ms` if the server is full or starting up, and after one
        second if it does not answer, which covers a restart.
        """
        limit = self._timeout if _BUSY.search(error.reason) else min(1.0, self._timeout)
        if not error.retryable or time.monotonic() - self._begun >= limit:
            raise error
        self._pause = min(2 * self._pause, 0.5)
        return min(self._pause, max(0.0, self._begun + limit - time.monotonic()))


def connection_failed(error: psycopg.Error, where: str) -> UnavailableError:
    """Return the typed error of a failed attempt to connect. It never contains a password."""
    reason = redact(first_line(error))
    lacks_password = error.pgconn is not None and error.pgconn.needs_password
    if lacks_password or _REFUSED.search(reason):
        return AuthenticationFailed(where, reason)
    return DatabaseUnreachable(where, reason)
