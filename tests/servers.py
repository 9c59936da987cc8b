"""Servers of a test's own, to configure, stop and crash.

To make data and to install Penstock takes seconds. It is done once for all of them, and copied.
"""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import psutil

import penstock
from penstock.database.embedded import EmbeddedServer, start

# Data of a test is gone with the test, so the server need not wait for the disk.
FAST = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "on"}
MEMORY = 8 * 1024**3  # bytes that have to be free for servers to live there


class OwnServer:
    """A server with Penstock installed, always at the same URL."""

    def __init__(self, folder: Path, settings: Mapping[str, str] = FAST) -> None:
        self.folder = folder
        self._settings = settings
        self._embedded: EmbeddedServer | None = start(folder, settings=settings)
        self.url = self._embedded.url

    def url_for(self, database: str) -> str:
        assert self._embedded is not None
        return self._embedded.url_for(database)

    def start(self) -> str:
        """Start it unless it runs, and return its URL."""
        self._embedded = self._embedded or start(self.folder, settings=self._settings)
        return self.url

    def stop(self) -> None:
        """Stop it as an administrator would."""
        if self._embedded is not None:
            self._embedded.leave()
            self._embedded = None

    def restart(self) -> None:
        self.stop()
        self.start()

    @contextmanager
    def crashing(self) -> Iterator[None]:
        """Crash after the block, and lose the commits in it that did not wait for the disk."""
        for one in self._postmaster().children():
            if any(name in " ".join(one.cmdline()) for name in ("walwriter", "background writer")):
                one.suspend()
        try:
            yield
        finally:
            self.crash()

    def crash(self) -> None:
        """Kill it, and start it again: it recovers."""
        postmaster = self._postmaster()
        backends = postmaster.children()
        postmaster.kill()
        for one in backends:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        psutil.wait_procs(backends, timeout=10)
        crashed, self._embedded = self._embedded, None
        self.start()
        if crashed is not None:
            crashed.leave()

    def _postmaster(self) -> psutil.Process:
        pid = (self.folder / "data" / "postmaster.pid").read_text().split()[0]
        return psutil.Process(int(pid))

    def log(self) -> str:
        return (self.folder / "data" / "server.log").read_text()


@contextmanager
def own_server(settings: Mapping[str, str] = FAST) -> Iterator[OwnServer]:
    """Run a server with Penstock installed in its database `penstock`."""
    with own_folder() as folder:
        copy_data(folder)
        server = OwnServer(folder, settings)
        try:
            yield server
        finally:
            server.stop()


@contextmanager
def own_folder() -> Iterator[Path]:
    """Make a folder for servers, which is removed in the end."""
    folder = server_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def server_folder() -> Path:
    """Make a folder for a server, in memory if there is enough of it.

    It is not in pytest's own folder, since a socket's path must be short.
    """
    memory = Path("/dev/shm")
    plenty = memory.is_dir() and shutil.disk_usage(memory).free > MEMORY
    return Path(tempfile.mkdtemp(prefix="penstock-", dir=memory if plenty else None))


def copy_data(folder: Path) -> None:
    """Put the data of a server with Penstock installed into a folder, to be started there."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["cp", "-a", _prepared_data(), folder / "data"], check=True)


@cache
def _prepared_data() -> Path:
    folder = server_folder()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with start(folder, settings=FAST) as server:
        penstock.install(server.url)
    return folder / "data"
