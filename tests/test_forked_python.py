"""A forked Python process does what one that was started does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.forked_python import ForkedProcess, penstock_server

#: what a process sees of itself
LOOK = """
import json, os, sys
seen = [__name__, sys.argv[1:], os.getcwd(), os.environ["COLOUR"], sys.path[0], os.getpid()]
print(json.dumps([*seen, sys.stdout.line_buffering, sys.stderr.errors, sys.stdin.read()]))
"""


def start(
    *arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> ForkedProcess:
    pipe = subprocess.PIPE
    return penstock_server().start(
        *arguments, cwd=cwd, env=env, stdin=pipe, stdout=pipe, stderr=pipe
    )


@pytest.mark.parametrize("form", ["program", "file", "module"])
def test_it_has_its_own_arguments_folder_environment_and_streams(form: str, tmp_path: Path) -> None:
    (tmp_path / "look.py").write_text(LOOK)
    arguments = {"program": ["-c", LOOK], "file": ["look.py"], "module": ["-m", "look"]}[form]
    environment = {**os.environ, "COLOUR": "grün \udcff"}

    forked = start(*arguments, "a", "b c", cwd=tmp_path, env=environment)
    output, errors = forked.communicate("in\n")

    started = subprocess.run(
        [sys.executable, *arguments, "a", "b c"], input="in\n", capture_output=True, text=True,
        check=True, cwd=tmp_path,
        env=environment,
    )  # fmt: skip
    expected, found = json.loads(started.stdout), json.loads(output)
    assert (found.pop(5), errors, forked.returncode) == (forked.pid, "", 0)
    assert found[:4] + found[5:] == expected[:4] + expected[6:]
    assert Path(tmp_path, found[4]).resolve() == tmp_path


@pytest.mark.parametrize(
    ("program", "status", "error"),
    [
        ("pass", 0, ""),
        ("import sys; sys.exit(7)", 7, ""),
        ("import sys; sys.exit('no')", 1, "no"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero"),
        ("import signal; signal.raise_signal(signal.SIGINT)", -signal.SIGINT, "KeyboardInterrupt"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, ""),
    ],
)
def test_its_status_tells_how_it_ended(program: str, status: int, error: str) -> None:
    process = start("-c", program)

    output, errors = process.communicate(timeout=60)

    assert (process.returncode, output) == (status, "")
    assert (errors.splitlines() or [""])[-1].strip() == error


def test_threads_and_functions_of_atexit_come_to_their_end() -> None:
    process = start(
        "-c",
        "import atexit, threading, time\n"
        "atexit.register(print, 'last')\n"
        "threading.Thread(target=lambda: print(input())).start()\n"
        "print('first')",
    )

    output, errors = process.communicate("from a thread\n", timeout=60)
    *printed, last = output.splitlines()
    assert (sorted(printed), last, errors) == (["first", "from a thread"], "last", "")


def test_it_can_be_signalled_and_killed() -> None:
    asked, killed = (start("-c", "print('up', flush=True); input()") for _ in range(2))
    for process in (asked, killed):
        assert process.stdout is not None
        assert (process.stdout.readline(), process.poll()) == ("up\n", None)
    with pytest.raises(subprocess.TimeoutExpired):
        asked.wait(timeout=0)

    asked.terminate()
    killed.kill()

    assert (asked.wait(), killed.wait()) == (-signal.SIGTERM, -signal.SIGKILL)
    with asked, killed:
        assert (asked.poll(), killed.poll()) == (-signal.SIGTERM, -signal.SIGKILL)


def test_a_program_for_shells_passes_the_status_on() -> None:
    program = penstock_server().program("penstock", "-m", "penstock")

    done = subprocess.run([program, "nonsense"], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (2, "")
    assert "No such command 'nonsense'" in done.stderr
