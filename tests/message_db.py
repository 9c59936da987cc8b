"""The genuine Message DB, from its npm package, for tests to run beside ours. Never committed."""

from __future__ import annotations

from pathlib import Path

import psycopg

from tests import npm

VERSION = "1.3.1"

# The order of Message DB's own install.sh. pgcrypto is left out: gen_random_uuid() is built in.
FILES = [
    "roles/message-store.sql",
    "schema/message-store.sql",
    "types/message.sql",
    "tables/messages.sql",
    *(
        f"functions/{name}.sql"
        for name in [
            "message-store-version", "hash-64", "acquire-lock", "category", "is-category", "id",
            "cardinal-id", "stream-version", "write-message", "get-stream-messages",
            "get-category-messages", "get-last-stream-message",
        ]
    ),
    *(f"indexes/messages-{name}.sql" for name in ["id", "stream", "category"]),
    *(
        f"views/{name}-summary.sql"
        for name in [
            "stream", "type", "stream-type", "type-stream", "category-type", "type-category",
        ]
    ),
    *(f"privileges/{name}.sql" for name in ["schema", "table", "sequence", "functions", "views"]),
]  # fmt: skip


def install(url: str) -> None:
    """Install the genuine Message DB in a database, as its own installer does."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("set client_min_messages = warning")
        connection.execute("set search_path = message_store, public")
        for name in FILES:
            text = (folder() / name).read_text(encoding="utf-8")
            connection.execute(text)
        connection.execute(
            "do $$ begin execute format("
            "'alter database %I set search_path = message_store, public', current_database());"
            " end $$"
        )


def folder() -> Path:
    """Return the folder of Message DB's SQL."""
    return npm.package("@eventide/message-db", VERSION) / "database"
