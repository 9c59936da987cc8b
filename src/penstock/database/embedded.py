"""A PostgreSQL server in a folder, which runs while a process uses it.

The promise: `start` on a folder returns a server that accepts connections, whatever happened to
earlier users and servers of the folder. The handles of all threads and processes share one server;
it stops with the last handle, and the data stays.

How it is kept: by three file locks, which the kernel releases when a process ends, however it ends.
Every handle holds `users.lock` in shared mode. A server is started and stopped only under
`turn.lock`, in exclusive mode: so one process creates the data and the others find the server
running, and a handle that could lock `users.lock` exclusively is the last, since no other can be
opened meanwhile. The server and its children inherit `server.lock`: while it is held no second
server starts, and once it is free all files of the last server are stale. (A pid is not enough:
pids are reused, and differ between containers.) Data is created in another folder and renamed, so
that incomplete data is never used.

What would break it: a folder on a network file system, used from two machines. If the *last* user
is killed, the server keeps running until the next one has come and gone. A forked child has no
handle until it calls `start` itself. The settings are those of the process that starts the server.
PostgreSQL does not run as root: then it runs as the owner of the data, or as the system user
`pgserver`, which gets the right to traverse (not to read) the folders above.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import SubprocessError
from typing import Self

import psycopg

from penstock.database.cluster import Cluster, is_unlocked, lock_file, unlock_file
from penstock.errors import EmbeddedServerError

if sys.platform != "win32":
    import fcntl


def start(
    folder: Path, *, version: int = 18, settings: Mapping[str, str] = {}, timeout: float = 60
) -> EmbeddedServer:
    """Return a handle on the PostgreSQL server of a folder, which the first handle starts.

    `timeout` is in seconds, for the server to start (it may have to recover first) or to stop.
    """
    try:
        # a RuntimeError or ValueError if there is no such home, or a loop of links, or a NUL
        absolute = folder.expanduser().resolve()
        return EmbeddedServer(Cluster(absolute, version, settings, timeout))
    except (OSError, RuntimeError, ValueError, SubprocessError, psycopg.Error) as error:
        raise EmbeddedServerError(f"cannot keep PostgreSQL in {folder}: {error}") from error


class EmbeddedServer:
    """A handle on the server of a folder, until `leave()` or the end of the process."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        _create_folder(cluster.folder)
        with _exclusive(cluster.folder):
            self._address = cluster.run()
            _handles[self] = lock_file(cluster.folder / "users.lock", fcntl.LOCK_SH)
        # a worker of multiprocessing may end without atexit, but not without its own finalizers
        from multiprocessing import parent_process, util  # here: its atexit has to precede ours

        if parent_process() is not None:
            util.Finalize(None, _leave_all, exitpriority=0)

    @property
    def url(self) -> str:
        """The URL of the database `penstock`."""
        return self.url_for("penstock")

    def url_for(self, database: str) -> str:
        """The URL of a database on this server, which need not exist yet."""
        return self._address.url(database)

    def leave(self) -> None:
        """Release this handle, and stop the server if it was the last. It can be repeated."""
        descriptor = _handles.pop(self, None)
        if descriptor is None:
            return
        unlock_file(descriptor)
        folder = self._cluster.folder
        with suppress(FileNotFoundError), _exclusive(folder):  # a server without its folder ends
            if is_unlocked(folder / "users.lock"):
                self._cluster.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.leave()


# The handles of this process, each with the file descriptor of its shared lock.
_handles: dict[EmbeddedServer, int] = {}
# Held while a server is started or stopped, and during a fork: a child must not inherit the locks
# and pipes of a start in progress.
_start_or_fork = threading.RLock()


def _leave_all() -> None:
    for server in list(_handles):
        server.leave()


def _close_all_in_child() -> None:
    """In a forked child: close the descriptors; unlocking them would unlock those of the parent."""
    for descriptor in _handles.values():
        os.close(descriptor)
    _handles.clear()
    _start_or_fork.release()


atexit.register(_leave_all)  # at import: it runs after everything that is registered later
if sys.platform != "win32":
    os.register_at_fork(
        before=_start_or_fork.acquire,
        after_in_parent=_start_or_fork.release,
        after_in_child=_close_all_in_child,
    )


@contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    """Wait until no other process starts or stops the folder's server."""
    with _start_or_fork:
        descriptor = lock_file(folder / "turn.lock", fcntl.LOCK_EX)
        try:
            yield
        finally:
            unlock_file(descriptor)


def _create_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise EmbeddedServerError(f"cannot keep PostgreSQL in {folder}: it is a file, not a folder")
    folder.mkdir(parents=True, exist_ok=True)
    ignore = folder / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n")
