"""Translate the server's errors, and describe a connection."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from penstock.errors import translate


class typed_errors:  # noqa: N801, as other context managers are named
    """Translate the server's errors into Penstock's."""

    __slots__ = ("_where",)

    def __init__(self, where: str) -> None:
        self._where = where

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, psycopg.Error):
            translated = translate(error, self._where)
            if translated is not error:
                raise translated from error


def in_transaction(connection: psycopg.BaseConnection[Any]) -> bool:
    """Whether the next statement is part of a transaction that the connection's owner ends."""
    idle = connection.info.transaction_status is TransactionStatus.IDLE
    return not (idle and connection.autocommit)


def address_of(connection: psycopg.BaseConnection[Any]) -> str:
    """Return host, port and database of a connection, for an error message."""
    try:
        info = connection.info
        return f"{info.host or 'localhost'}:{info.port}/{info.dbname}"
    except psycopg.Error:
        return "the server"
