"""Error reporting: one line on stderr and an exit code, never a password.

| exit code | meaning |
|---|---|
| 1 | the command failed |
| 2 | invalid usage |
| 130, 143, … | interrupted: 128 plus the signal's number |
| 141 | the reader of the output closed the pipe |

PENSTOCK_DEBUG=1 shows a traceback.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import typer
from typer.core import TyperGroup

from penstock.cli.printing import print_error
from penstock.errors import PenstockError, ValidationError, first_line
from penstock.settings import redact

#: as if ended by SIGPIPE, like other commands
BROKEN_PIPE = 141

_GRANT = "`grant {0} to` the role that you connect as"
_TO_READ = f"reading requires {_GRANT.format('penstock_reader')}"
_TO_WRITE = f"writing requires {_GRANT.format('message_store')}"
_TO_OWN = "this requires the role that owns the schema message_store, or a superuser"
#: the privilege that a command needs; reading, if it is not listed
_NEEDED = {
    **dict.fromkeys(("init", "retain"), _TO_OWN),
    **dict.fromkeys(("write", "seek", "replay", "run"), _TO_WRITE),
    "consumers": f"{_TO_READ}, {_TO_WRITE}; to remove a consumer, {_TO_OWN}",
    **dict.fromkeys(
        ("parked", "groups", "outbox", "joins", "pipelines"), f"{_TO_READ}, {_TO_WRITE}"
    ),
}


class ErrorReporting(TyperGroup):
    """A group of commands that reports errors as one line."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            with _reported_errors(ctx):
                result = super().invoke(ctx)
                sys.stdout.flush()
                return result
        except BrokenPipeError:
            _discard_output()
            raise typer.Exit(BROKEN_PIPE) from None
        except KeyboardInterrupt as interrupt:
            number = interrupt.args[0] if interrupt.args else signal.SIGINT
            raise typer.Exit(128 + number) from None


@contextmanager
def _reported_errors(ctx: Any) -> Iterator[None]:
    try:
        yield
    except (BrokenPipeError, typer.Exit, typer.Abort):
        raise
    except Exception as error:
        if isinstance(message := getattr(error, "message", None), str):
            error.message = redact(message)  # type: ignore[attr-defined]
            raise  # invalid usage, which typer reports
        if os.environ.get("PENSTOCK_DEBUG") == "1":
            sys.stderr.write(redact(traceback.format_exc()))
        print_error(_message(error, ctx.invoked_subcommand))
        raise typer.Exit(2 if isinstance(error, ValidationError) else 1) from None


def _message(error: Exception, command: str | None) -> str:
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        needed = _NEEDED.get(command or "", _TO_READ)
        return f"PostgreSQL: {redact(first_line(error))}; {needed}"
    if isinstance(error, PenstockError):
        return str(error)  # which never contains a password
    if isinstance(error, psycopg.Error):
        return f"PostgreSQL: {redact(first_line(error))}"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return (
        f"{type(error).__name__}: {redact(first_line(error))}; this is a bug in Penstock; "
        "PENSTOCK_DEBUG=1 shows the traceback"
    )


def _discard_output() -> None:
    """Discard buffered output, so that Python reports no error at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(nowhere, stream.fileno())
