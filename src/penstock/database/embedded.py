"""A real PostgreSQL in a folder, there for as long as somebody uses it.

The promise: whoever calls `start` on a folder gets a server that answers, whatever happened to the
folder's earlier users and servers. The handles of all threads and processes share one server; it
stops when the last handle leaves, and the data stays.

How it is kept: by three file locks, which the kernel drops when their holder dies, however it
dies. Every handle holds `users.lock` shared. Starting and stopping happen only under `turn.lock`,
held exclusively: so one starter makes the data and the others find it running, and a leaver that
could have `users.lock` exclusively is the last, because nobody can join meanwhile. The server and
its children inherit `server.lock`: while it is held no second server starts, and once it is free
whatever the last one left behind is stale. (A pid cannot tell: pids are reused, and differ between
containers.) Data is made aside and renamed, so half-made data is never mistaken for data.

What would break it: a folder on a network file system, used from two machines. A *last* user that
is killed cannot stop the server: it idles until the next one comes and leaves. A forked child is
no user until it calls `start` itself. The settings are those of the user that starts the server.
Root may not run PostgreSQL: the data's owner does, or the system user `pgserver`, who is let
through (not into) the folders above.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import psycopg

from penstock.database.cluster import Cluster, binaries
from penstock.database.file_locks import is_free, lock, unlock
from penstock.errors import EmbeddedServerError

if sys.platform != "win32":
    import fcntl


def start(folder: Path, *, version: int = 18, settings: Mapping[str, str] = {}) -> EmbeddedServer:
    """Join the PostgreSQL server of a folder; the first to join makes and starts it."""
    cluster = Cluster(_whole_path(folder), version, binaries(version), settings)
    server = EmbeddedServer(cluster)
    try:
        server._join()
    except (OSError, subprocess.SubprocessError, psycopg.Error) as error:
        server.leave()
        raise EmbeddedServerError(f"cannot keep PostgreSQL in {folder}: {error}") from error
    return server


class EmbeddedServer:
    """One user's place at the server of a folder, until `leave()` or the end of the process."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def url(self) -> str:
        """The URL of the database `penstock`."""
        return self.url_for("penstock")

    def url_for(self, database: str) -> str:
        """The URL of a database on this server, which need not exist yet."""
        return self._address.url(database)

    def leave(self) -> None:
        """Give up this place, and stop the server if it was the last one. Twice is once."""
        descriptor = _places.pop(self, None)
        if descriptor is None:
            return
        unlock(descriptor)
        folder = self._cluster.folder
        with suppress(FileNotFoundError), _turn(folder):  # without its folder a server ends itself
            if is_free(folder / "users.lock"):
                self._cluster.stop()

    def _join(self) -> None:
        folder = self._cluster.folder
        _make_folder(folder)
        with _turn(folder):
            self._address = self._cluster.run()
            _places[self] = lock(folder / "users.lock", fcntl.LOCK_SH)
        _leave_all_at_exit_of_a_worker()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.leave()


# The places taken by this process: each handle, and the descriptor that holds its shared lock.
_places: dict[EmbeddedServer, int] = {}
# Held during a turn and a fork: a child must not inherit the locks and pipes of a start under way.
_turn_or_fork = threading.RLock()


def _leave_all() -> None:
    for server in list(_places):
        server.leave()


def _leave_all_at_exit_of_a_worker() -> None:
    """A worker of multiprocessing may end without atexit, but not without its own finalizers."""
    from multiprocessing import parent_process, util  # here: its own atexit has to come before ours

    if parent_process() is not None:
        util.Finalize(None, _leave_all, exitpriority=0)


def _forget_all() -> None:
    """In a forked child: the locks are the parent's, and unlocking here would unlock there."""
    for descriptor in _places.values():
        os.close(descriptor)
    _places.clear()
    _turn_or_fork.release()


atexit.register(_leave_all)  # at import: so after all that users of the server register
if sys.platform != "win32":
    os.register_at_fork(
        before=_turn_or_fork.acquire,
        after_in_parent=_turn_or_fork.release,
        after_in_child=_forget_all,
    )


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """Wait for the right to start or stop the folder's server."""
    with _turn_or_fork:
        descriptor = lock(folder / "turn.lock", fcntl.LOCK_EX)
        try:
            yield
        finally:
            unlock(descriptor)


def _whole_path(folder: Path) -> Path:
    try:
        return folder.expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:  # no such home, a loop of links, a NUL
        raise EmbeddedServerError(f"cannot keep PostgreSQL in {folder}: {error}") from error


def _make_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise EmbeddedServerError(f"cannot keep PostgreSQL in {folder}: it is a file, not a folder")
    folder.mkdir(parents=True, exist_ok=True)
    ignore = folder / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n")
