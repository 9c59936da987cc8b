"""The SQL that earlier commits installed, and the whole client of 0.1.

They are in `earlier.tar.xz`, since a shallow clone and a tarball have no history. It is made from a
full clone by `python -m tests.database.earlier`. Each set of SQL has other tables than the others.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from functools import cache
from pathlib import Path

import psycopg

from penstock.database.parts import upgrades
from tests import message_db

ARCHIVE = Path(__file__).with_name("earlier.tar.xz")

#: the last commit of 0.1, whose client is in the archive, too
RELEASE_0_1 = "b220073"
#: the last commit of schema version 2; those before have version 1
VERSION_2 = "b196ef0"
COMMITS = {
    "4e35465": "the log alone, the first commit",
    "f1634bb": "consumers, sessions and groups in their first form",
    "3162410": "outbox and joins in their first form",
    "312638e": "retention and positions as they are today, groups not yet",
    "6a16b9f": "staging, no pipelines",
    "55447ef": "pipelines that cannot be retired",
    RELEASE_0_1: "0.1",
    VERSION_2: "between 0.1 and 0.2",
}

_SQL = "src/penstock/database/sql"
# what a client needs that reads and writes: neither the pipeline nor the command line
_LEFT_OUT = tuple(f"src/penstock/{name}/" for name in ("pipeline", "cli", "demo"))


def install(url: str, commit: str, *, beside: bool = False) -> None:
    """Install the SQL of an earlier commit, as its own `penstock init` did."""
    if beside:
        message_db.install(url)
    folders = ["penstock"] if beside else ["message_store", "penstock"]
    with psycopg.connect(url) as connection:
        connection.execute("set client_min_messages = warning")
        for folder in folders:
            for text in _definitions(commit, folder):
                connection.execute(text)
        connection.execute(
            "insert into penstock.installations (version, oldest_client, digest, edition)"
            " values (1, 1, 'of an earlier commit', %s)",
            ("message-db" if beside else "penstock",),
        )
        if commit == VERSION_2:
            connection.execute(
                "update penstock.installations set version = 2, oldest_client = 2, upgrades = %s",
                ([name for name, _ in upgrades() if name.startswith("0002_")],),
            )


def client_0_1(folder: Path) -> Path:
    """Unpack the client of 0.1, and return the folder to put on the path for imports."""
    prefix = f"{RELEASE_0_1}/"
    for name, content in _files().items():
        if name.startswith(prefix):
            path = folder / name.removeprefix(prefix)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return folder / "src"


def _definitions(commit: str, folder: str) -> list[bytes]:
    prefix = f"{commit}/{_SQL}/{folder}/"
    return [content for name, content in sorted(_files().items()) if name.startswith(prefix)]


@cache
def _files() -> dict[str, bytes]:
    with tarfile.open(ARCHIVE) as archive:
        found = {member.name: archive.extractfile(member) for member in archive}
        return {name: file.read() for name, file in found.items() if file}


def _make() -> None:
    """Write the archive anew, from git's history."""
    with tarfile.open(ARCHIVE, "w:xz", preset=9) as archive:
        for commit in COMMITS:
            root = "src/penstock" if commit == RELEASE_0_1 else _SQL
            for name in _git("ls-tree", "-r", "--name-only", commit, root).decode().split():
                if not name.startswith(_LEFT_OUT):
                    content = _git("show", f"{commit}:{name}")
                    entry = tarfile.TarInfo(f"{commit}/{name}")  # without a date: always the same
                    entry.size = len(content)
                    archive.addfile(entry, io.BytesIO(content))


def _git(*arguments: str) -> bytes:
    return subprocess.check_output(["git", *arguments], cwd=ARCHIVE.parents[2])


if __name__ == "__main__":
    _make()
    print(f"{ARCHIVE.stat().st_size} bytes", file=sys.stderr)
