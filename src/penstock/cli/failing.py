"""How a command fails: one clear line on stderr and an exit code, never a password.

| exit code | when |
|---|---|
| 1 | it could not be done |
| 2 | it was asked for wrongly |
| 130, 143, … | it was interrupted: 128 and the signal's number |
| 141 | whoever read the output went away |

A traceback is shown only with PENSTOCK_DEBUG=1.
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

from penstock.cli.printing import complain
from penstock.errors import PenstockError, ValidationError, first_line
from penstock.settings import redact

#: as if ended by the signal SIGPIPE, like other commands
NOBODY_READS = 141

_GRANT = "`grant {0} to` the role that you connect as"
_TO_LOOK = f"to read takes {_GRANT.format('penstock_reader')}"
_TO_WRITE = f"to write takes {_GRANT.format('message_store')}"
_TO_OWN = "this takes the role that owns the schema message_store, or a superuser"
#: what a command needs that PostgreSQL refused; to look, if it is not here
_NEEDED = {
    **dict.fromkeys(("init", "retain"), _TO_OWN),
    **dict.fromkeys(("write", "seek", "replay", "run"), _TO_WRITE),
    **dict.fromkeys(
        ("parked", "groups", "outbox", "joins", "pipelines"), f"{_TO_LOOK}, {_TO_WRITE}"
    ),
}


class ClearlyFailing(TyperGroup):
    """A group of commands whose errors are told to people."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            with _failing_clearly(ctx):
                result = super().invoke(ctx)
                sys.stdout.flush()
                return result
        except BrokenPipeError:
            _discard_what_nobody_reads()
            raise typer.Exit(NOBODY_READS) from None
        except KeyboardInterrupt as interrupt:
            number = interrupt.args[0] if interrupt.args else signal.SIGINT
            raise typer.Exit(128 + number) from None


@contextmanager
def _failing_clearly(ctx: Any) -> Iterator[None]:
    try:
        yield
    except (BrokenPipeError, typer.Exit, typer.Abort):
        raise
    except Exception as error:
        if isinstance(message := getattr(error, "message", None), str):
            error.message = redact(message)  # type: ignore[attr-defined]
            raise  # bad usage, which typer tells
        if os.environ.get("PENSTOCK_DEBUG") == "1":
            sys.stderr.write(redact(traceback.format_exc()))
        complain(_told(error, ctx.invoked_subcommand))
        raise typer.Exit(2 if isinstance(error, ValidationError) else 1) from None


def _told(error: Exception, command: str | None) -> str:
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        needed = _NEEDED.get(command or "", _TO_LOOK)
        return f"PostgreSQL says: {redact(first_line(error))}; {needed}"
    if isinstance(error, PenstockError):
        return str(error)  # which never shows a password
    if isinstance(error, psycopg.Error):
        return f"PostgreSQL says: {redact(first_line(error))}"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return (
        f"{type(error).__name__}: {redact(first_line(error))}; this is a mistake in Penstock, "
        "and PENSTOCK_DEBUG=1 shows where"
    )


def _discard_what_nobody_reads() -> None:
    """Keep Python from complaining at exit about output that it could not deliver."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(nowhere, stream.fileno())
