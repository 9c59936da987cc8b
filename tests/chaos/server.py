"""A PostgreSQL of the chaos test's own, in a folder of its own, to be restarted and crashed."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil

from penstock.database.embedded import start

#: A process that is killed loses nothing that the kernel has: only a machine needs the disk.
SETTINGS = {"fsync": "off", "full_page_writes": "off", "max_connections": "100"}


class Server:
    """One server, always at the same address."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._place = start(folder, settings=SETTINGS)
        self.url = self._place.url

    def restart(self) -> None:
        """Stop it in good order, which ends all connections, and start it again."""
        self._place.leave()
        self._place = start(self._folder, settings=SETTINGS)

    def crash(self) -> None:
        """Stop it at once, with nothing put away, and let it recover."""
        pid = (self._folder / "data" / "postmaster.pid").read_text().split()[0]
        postmaster = psutil.Process(int(pid))
        postmaster.send_signal(signal.SIGQUIT)
        psutil.wait_procs([postmaster], timeout=60)
        self.restart()

    def stop(self) -> None:
        self._place.leave()
