"""Run the tests that claim a mutant, in a copy of the package without its mechanism."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import SimpleQueue

import psutil

from penstock.database.embedded import start
from tests.mutants.mutant import ROOT, SOURCE, Mutant
from tests.mutants.recorder import FILE
from tests.mutants.results import Result
from tests.servers import FAST, server_folder

TEST_SECONDS = 60  # a mutant may wait for what never comes
RUN_SECONDS = 240


def run_all(
    mutants: Iterable[Mutant], workers: int, tell: Callable[[Result], None]
) -> list[Result]:
    """Run mutants side by side, and report each as it is done."""
    with ExitStack() as running, ThreadPoolExecutor(workers) as threads:
        servers: SimpleQueue[Path] = SimpleQueue()
        for _ in range(workers):
            servers.put(running.enter_context(_server()))

        def one(mutant: Mutant) -> Result:
            server = servers.get()
            try:
                result = run(mutant, server)
            finally:
                servers.put(server)
            tell(result)
            return result

        return list(threads.map(one, mutants))


def run(mutant: Mutant, server: Path) -> Result:
    """Run the tests that claim a mutant, in databases of their own on that server."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="penstock-mutant-") as folder:
        package = Path(folder) / "src" / "penstock"
        shutil.copytree(SOURCE.parent, package.parent, ignore=shutil.ignore_patterns("__pycache__"))
        for edit in mutant.edits:
            edit.apply(package)
        options = (f"--timeout={TEST_SECONDS}", f"--server={server}")
        outcomes = run_tests(
            mutant.caught_by, package.parent, Path(folder), options, seconds=RUN_SECONDS
        )
    return Result.of(mutant, outcomes, time.monotonic() - began)


@contextmanager
def _server() -> Iterator[Path]:
    """A server for one mutant after the other: to start one takes longer than most of the tests."""
    folder = server_folder()
    try:
        with start(folder, settings=FAST):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_unchanged(names: Sequence[str], workers: int) -> list[str]:
    """Run tests on the package as it is, and return those that do not pass."""
    with tempfile.TemporaryDirectory(prefix="penstock-unchanged-") as folder:
        options = ("-n", str(workers), "--dist", "worksteal")
        outcomes = run_tests(names, SOURCE.parent, Path(folder), options, seconds=None)
    return [test for test, (outcome, _) in outcomes.items() if outcome in ("failed", "error")]


def run_tests(
    names: Sequence[str],
    source: Path,
    folder: Path,
    options: Sequence[str],
    seconds: float | None,
) -> dict[str, tuple[str, str]]:
    """Run tests on a copy of the package; return each outcome and reason by pytest's name."""
    record = folder / "record"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.mutants.recorder"]
    command += ["-p", "no:cacheprovider", *options, *names]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{source}{os.pathsep}{ROOT}",
        "PYTHONDONTWRITEBYTECODE": "1",
        FILE: str(record),
    }
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            _kill(process.pid)
    killed = process.wait() == -signal.SIGKILL
    found = _outcomes(record, ("failed", "hung") if killed else ("error", "pytest broke off"))
    if not found:
        raise RuntimeError(
            f"no test ran:\n{(folder / 'output').read_text(errors='replace')[-3000:]}"
        )
    return found


def _outcomes(record: Path, unended: tuple[str, str]) -> dict[str, tuple[str, str]]:
    """Return what the recorder wrote. A test that began and never ended is `unended`."""
    if not record.exists():
        return {}
    found: dict[str, tuple[str, str]] = {}
    for line in record.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        if entry["outcome"] == "begun":
            found[entry["test"]] = unended
        else:
            found[entry["test"]] = (entry["outcome"], entry["reason"])
    return found


def _kill(pid: int) -> None:
    root = psutil.Process(pid)
    for one in [*root.children(recursive=True), root]:
        one.kill()
