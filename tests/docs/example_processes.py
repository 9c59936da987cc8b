"""Runs each example in a process of its own, forked from one that has imported Penstock.

To start Python and import everything takes longer than most examples. `ExampleProcesses` is the
test's side. The other side is this file as a program: for each line of its input, the path of an
example and the address of its database, it forks a process that runs the example as Python would.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path


class ExampleProcesses:
    """The process that the others are forked from."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, example: Path, url: str) -> str:
        """Run an example and return what it printed. It has to end well, without an error text."""
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps([str(example), url]), file=self._process.stdin, flush=True)
        status = self._process.stdout.readline().strip()
        errors = (self._folder / "stderr").read_text()
        assert (status, errors) == ("0", "")
        return (self._folder / "stdout").read_text()

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=60)


def main() -> None:
    """Run the examples that are asked for. A forked process returns from here, and ends."""
    import fastapi  # noqa: F401
    import httpx2  # noqa: F401

    import penstock  # noqa: F401

    while line := sys.stdin.readline():
        example, url = json.loads(line)
        child = os.fork()
        if not child:
            _redirect("stdout", sys.stdout.fileno())
            _redirect("stderr", sys.stderr.fileno())
            _redirect(os.devnull, sys.stdin.fileno())
            os.environ["PENSTOCK_URL"] = url
            sys.argv = [example]
            runpy.run_path(example, run_name="__main__")
            return
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _redirect(path: str, descriptor: int) -> None:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, descriptor)
    os.close(file)


if __name__ == "__main__":
    main()
