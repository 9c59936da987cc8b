"""Python processes, forked from one that has imported what they need.

To start Python and import Penstock takes a third of a second of the processor; its command takes
half a second, Spark's modules a whole one. Tests start hundreds of processes, and a Spark driver
starts more than a dozen: a daemon and a worker to look a data source up, another pair to create it,
to plan a read, to write, to commit, to run a stream.

A `ForkServer` is a process without threads that has imported modules. It forks processes which run
`python -m module ...`, `python -c program ...` or `python file ...` with their own arguments,
folder, environment and standard streams. They end as Python ends, after threads and functions of
`atexit`, except that no modules are cleared. A test starts one with `start`, and uses it as a
`subprocess.Popen`. Spark and shells are given a program to run, which asks for it.

Each pytest worker has one such server for its tests and one for those on Spark. A driver that is
killed with everything that belongs to it has one of its own: what that forks is found among the
driver's descendants.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import io
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any, NoReturn

ROOT = Path(__file__).parents[1]
#: what most processes of tests import, and what those that use Spark do
PENSTOCK = ("penstock.cli.app", "psycopg_pool", "pydantic.type_adapter")
SPARK = (
    *PENSTOCK,
    *("adbc_driver_postgresql", "pandas", "pyspark.worker"),
    *("penstock.pipeline", "penstock.spark.source"),
)

#: -IS: without `site`, which would take longer than all that the program does
_PROGRAM = """#!{python} -IS
import json, os, socket, sys
arguments = {arguments!r} + sys.argv[1:]
if arguments[:1] != ["-m"]:
    os.execv({python!r}, [{python!r}, *arguments])
server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
server.connect({address!r})
request = json.dumps([arguments, os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(server, [len(request).to_bytes(4, "big")], [0, 1, 2])
server.sendall(request)
answer = server.makefile("rb").read()  # a process id, and its exit status when it has ended
status = int.from_bytes(answer[4:8], "big", signed=True)
os._exit(status if status >= 0 else 128 - status)
"""


@cache
def penstock_server() -> ForkServer:
    """The server of this pytest worker."""
    return ForkServer(PENSTOCK)


@cache
def spark_server() -> ForkServer:
    """The server of this pytest worker for processes that use Spark."""
    return ForkServer(SPARK)


class ForkServer:
    """The process that others are forked from. It ends with the process that started it."""

    def __init__(self, modules: Sequence[str] | None) -> None:
        """Start it with these modules; None forks it from this process, which has no threads."""
        self._folder = Path(tempfile.mkdtemp(prefix="python-"))
        self._address = str(self._folder / "socket")
        reading, self._lifetime = os.pipe()  # open as long as this process lives
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener,
            os.fdopen(reading) as end,
        ):
            listener.bind(self._address)
            listener.listen(100)
            if modules is not None:
                self._process = _start(listener, end, modules)
            elif os.fork() == 0:
                os.close(self._lifetime)
                serve(listener, end)
        atexit.register(shutil.rmtree, self._folder, ignore_errors=True)

    def start(
        self,
        *arguments: str,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: int | IO[Any] | None = None,
        stdout: int | IO[Any] | None = None,
        stderr: int | IO[Any] | None = None,
    ) -> ForkedProcess:
        """Start a process, with the parameters of `subprocess.Popen`."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(self._address)
        streams = [_Stream(number, given) for number, given in enumerate((stdin, stdout, stderr))]
        request = json.dumps([arguments, str(cwd or Path.cwd()), dict(env or os.environ)]).encode()
        size = len(request).to_bytes(4, "big")
        socket.send_fds(connection, [size], [stream.theirs for stream in streams])
        connection.sendall(request)
        for stream in streams:
            stream.close()
        return ForkedProcess(connection, *(stream.ours for stream in streams))

    def program(self, name: str, *arguments: str) -> Path:
        """Return a program, in a folder of its own, that runs Python with these arguments first."""
        path = self._folder / "bin" / name
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            values = {"python": sys.executable, "address": self._address}
            path.write_text(_PROGRAM.format(**values, arguments=list(arguments)))
            path.chmod(0o700)
        return path

    def spark_variables(self) -> dict[str, str]:
        """The variables by which Spark runs its Python processes here: planners and workers."""
        program = str(self.program("python"))
        return {"PYSPARK_PYTHON": program, "PYSPARK_DRIVER_PYTHON": program}


def _start(
    listener: socket.socket, end: IO[str], modules: Sequence[str]
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.forked_python", str(listener.fileno()), *modules],
        cwd=ROOT,
        stdin=end,
        pass_fds=[listener.fileno()],
    )


class _Stream:
    """A standard stream of a process: its end, and ours if it is a pipe."""

    def __init__(self, number: int, given: int | IO[Any] | None) -> None:
        self.ours: IO[str] | None = None
        self._opened = True
        if given == subprocess.PIPE:
            reading, writing = os.pipe()
            self.theirs, ours = (writing, reading) if number else (reading, writing)
            self.ours = os.fdopen(ours, "r" if number else "w")
        elif given == subprocess.DEVNULL:
            self.theirs = os.open(os.devnull, os.O_RDWR)
        else:
            self._opened = False
            self.theirs = (
                number if given is None else given if isinstance(given, int) else given.fileno()
            )

    def close(self) -> None:
        """Close their end here, if it was opened here."""
        if self._opened:
            os.close(self.theirs)


class ForkedProcess:
    """A process that a `ForkServer` forked, as a `subprocess.Popen` with `text=True`."""

    def __init__(
        self,
        connection: socket.socket,
        stdin: IO[str] | None,
        stdout: IO[str] | None,
        stderr: IO[str] | None,
    ) -> None:
        self.stdin, self.stdout, self.stderr = stdin, stdout, stderr
        self.returncode: int | None = None
        self._connection = connection
        self.pid = self._number()

    def __enter__(self) -> ForkedProcess:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            with suppress(BrokenPipeError):
                if stream:
                    stream.close()
        self.wait()

    def poll(self) -> int | None:
        """Return the exit status, None while it runs."""
        if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status once it has ended."""
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            self.returncode = self._number()
            self._connection.close()
        return self.returncode

    def communicate(
        self, input: str | None = None, timeout: float | None = None
    ) -> tuple[str, str]:
        """Write to its input, and return its output and errors once it has ended."""
        with ThreadPoolExecutor(2) as threads:
            reading = [threads.submit(_rest, stream) for stream in (self.stdout, self.stderr)]
            try:
                if self.stdin and not self.stdin.closed:
                    with suppress(BrokenPipeError), self.stdin:
                        self.stdin.write(input or "")
                self.wait(timeout)
            except BaseException:
                self.kill()  # so that the threads end
                raise
            output, errors = (one.result() for one in reading)
        return output, errors

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)

    def _number(self) -> int:
        answer = self._connection.recv(4, socket.MSG_WAITALL)
        assert answer, "the server of forked processes has gone"
        return int.from_bytes(answer, "big", signed=True)


def _rest(stream: IO[str] | None) -> str:
    if stream is None or stream.closed:
        return ""
    with stream:
        return stream.read()


def main() -> None:
    """Import modules, and serve until standard input is closed."""
    for name in sys.argv[2:]:
        importlib.import_module(name)
    gc.freeze()  # a collection would write to pages that are shared
    serve(socket.socket(fileno=int(sys.argv[1])), sys.stdin)


def serve(listener: socket.socket, end: IO[str]) -> NoReturn:
    """Fork a process for each request, until there is something to read from `end`."""
    ended, wake = socket.socketpair()
    wake.setblocking(False)
    signal.set_wakeup_fd(wake.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    clients: dict[int, socket.socket] = {}  # by process
    waiting: list[socket.socket | IO[str]] = [listener, end, ended]
    while end not in (ready := select.select(waiting, [], [])[0]):
        if ended in ready:
            ended.recv(1000)
            _report(clients)
        if listener in ready:
            client, _ = listener.accept()
            if (pid := os.fork()) == 0:
                signal.set_wakeup_fd(-1)
                for one in (listener, ended, wake, *clients.values()):
                    one.close()
                _run(client)
            clients[pid] = client
            _send(client, pid)
    os._exit(0)


def _report(clients: dict[int, socket.socket]) -> None:
    """Send the exit status of each process that has ended to the one that asked for it."""
    while clients:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        client = clients.pop(pid)
        _send(client, os.waitstatus_to_exitcode(status))
        client.close()


def _send(client: socket.socket, number: int) -> None:
    try:
        client.sendall(number.to_bytes(4, "big", signed=True))
    except OSError:
        return  # it has gone


def _run(client: socket.socket) -> NoReturn:
    """Be the process that was asked for."""
    status = 0
    try:
        _run_python(_take_over(client))
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        status = 1
        if isinstance(error, KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(status & 0xFF)


def _run_python(arguments: list[str]) -> None:
    match arguments:
        case ["-m", module, *rest]:
            sys.argv = [module, *rest]
            sys.path[0] = str(Path.cwd())
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case ["-c", program, *rest]:
            sys.argv = ["-c", *rest]
            sys.path[0] = ""
            exec(compile(program, "<string>", "exec"), _new_main())
        case [file, *rest]:
            sys.argv = [file, *rest]
            sys.path[0] = str(Path(file).parent)
            runpy.run_path(file, run_name="__main__")


def _take_over(client: socket.socket) -> list[str]:
    """Take the streams, folder and environment of a request, and return its arguments."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, streams, _, _ = socket.recv_fds(client, 4, 3)
    with client.makefile("rb") as file:
        request = file.read(int.from_bytes(size, "big"))
    client.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    arguments, folder, environment = json.loads(request)
    sys.stdin, sys.stdout, sys.stderr = _text(sys.stdin), _text(sys.stdout), _text(sys.stderr)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for path in environment.get("PYTHONPATH", "").split(os.pathsep):
        if path and path not in sys.path:
            sys.path.append(path)
    return list(arguments)


def _text(old: Any) -> io.TextIOWrapper:
    """Return a standard stream as Python opens it, for what its descriptor is now."""
    number = old.fileno()
    file = open(number, old.buffer.mode, closefd=False)  # noqa: SIM115
    lines = number == 2 or os.isatty(number)
    return io.TextIOWrapper(
        file, old.encoding, old.errors, "\n" if number else None, line_buffering=lines
    )


def _new_main() -> dict[str, Any]:
    """The namespace of a new `__main__`."""
    module = type(sys)("__main__")
    sys.modules["__main__"] = module
    return vars(module)


if __name__ == "__main__":
    main()
