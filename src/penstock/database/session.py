"""What each new connection of a pool is set to, and how a failed attempt to get one is told."""

from __future__ import annotations

import re
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


def pool_options(settings: Settings) -> dict[str, Any]:
    """Return the options that the blocking and the async pool share."""
    return {
        "min_size": settings.pool_min_size,
        "max_size": settings.pool_max_size,
        "timeout": settings.pool_timeout_ms / 1000,
        "reconnect_timeout": 2.0,
        "name": settings.application_name,
        "kwargs": connection_options(settings),
    }


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
