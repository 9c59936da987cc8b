"""What goes wrong, as an answer: its status, its kind and what the page says."""

from __future__ import annotations

import re

import psycopg
from starlette.exceptions import HTTPException

from penstock.errors import (
    PenstockError,
    UnavailableError,
    UnsupportedEdition,
    ValidationError,
)

_SEPARATOR = re.compile(r"(?<!^)(?=[A-Z])")


def kind(error: Exception | None) -> str:
    """Return the name of an error for JSON: its class."""
    return "Refused" if error is None else type(error).__name__


def heading(name: str) -> str:
    """Return the name of an error for a page: `Message not found`."""
    return _SEPARATOR.sub(" ", name).capitalize()


def status_of(error: Exception) -> int:
    """Return the status of the answer to an error."""
    match error:
        case ValidationError():
            return 400
        case psycopg.errors.InsufficientPrivilege():
            return 403
        case _ if type(error).__name__.endswith("NotFound"):
            return 404
        case UnsupportedEdition():
            return 501
        case UnavailableError() | psycopg.OperationalError() | OSError():
            return 503
        case PenstockError() | psycopg.Error():
            return 409
        case _:
            return 500


def explained(error: HTTPException, path: str) -> str:
    """Return what Starlette's error means here."""
    if error.status_code == 404 and error.detail == "Not Found":
        return f"The console has no page {path}."
    return error.detail
