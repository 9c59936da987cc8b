"""Python processes of Spark, forked from one that has imported what they need.

A driver starts more than a dozen Python processes: a daemon and a worker to look a data source up,
another pair to create it, to plan a read, to write, to commit, to run a stream. Each would take
most of a second of the processor to import the same modules.

So Spark is given a program to run instead of Python. The program passes its arguments, environment
and standard streams to a process of this module, which forks one that runs as Python would.

Each pytest worker has one such process for all its tests. A driver that is killed with everything
that belongs to it has one of its own: what that forks is found among the driver's descendants.
"""

from __future__ import annotations

import atexit
import gc
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
import traceback
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).parents[2]
#: which Python the driver, its planners and its workers run
VARIABLES = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
_started: list[subprocess.Popen[bytes]] = []  # their standard input is open as long as this is
#: -IS: without `site`, which would take longer than all that the program does
_PROGRAM = """#!{python} -IS
import json, os, socket, sys
if sys.argv[1:2] != ["-m"]:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
server.connect({address!r})
request = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(server, [len(request).to_bytes(4, "big")], [0, 1, 2])
server.sendall(request)
server.recv(1)  # nothing, when the process has ended
"""


def start() -> dict[str, str]:
    """Start the process, which ends with this one. Return the variables by which Spark finds it."""
    folder = Path(tempfile.mkdtemp(prefix="python-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    address = str(folder / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(address)
        listener.listen(100)
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.forked_python", str(listener.fileno())],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()],
        )
    program = folder / "python"
    program.write_text(_PROGRAM.format(python=sys.executable, address=address))
    program.chmod(0o700)
    _started.append(process)
    return dict.fromkeys(VARIABLES, str(program))


def main() -> NoReturn:
    """Fork a process for each request, until standard input is closed."""
    import adbc_driver_postgresql  # noqa: F401
    import pandas as pd  # type: ignore[import-untyped]  # noqa: F401
    import pyspark.worker  # noqa: F401

    import penstock.spark.source  # noqa: F401

    listener = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    gc.freeze()  # a collection would write to pages that are shared
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        client, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _run(client)
        client.close()
    os._exit(0)


def _run(client: socket.socket) -> NoReturn:
    """Be the process that was asked for: `python -m module argument ...`."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, streams, _, _ = socket.recv_fds(client, 4, 3)
    with client.makefile("rb") as file:
        arguments, folder, environment = json.loads(file.read(int.from_bytes(size, "big")))
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for path in environment.get("PYTHONPATH", "").split(os.pathsep):
        if path and path not in sys.path:
            sys.path.append(path)
    sys.argv = arguments[1:]
    status = 0
    try:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    os._exit(status & 0xFF)


if __name__ == "__main__":
    main()
