"""The processes of the actors: started, harmed, started again, and asked to end.

An actor that ends although nobody asked it to is a complaint: no fault is an excuse for that.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0  # seconds, for an actor to end
MOST_COMPLAINTS = 10  # then there is no point in going on

#: those who bring work into the system; the others are done when it is done
SOURCES = ("writer", "transactor", "sender", "applicant", "intruder", "planner")


@dataclass
class Running:
    """A process, and what it was told to be."""

    process: subprocess.Popen[bytes]
    errors: Path
    was_killed: bool = False


class Troupe:
    """All actors, by name: the kind, a hyphen, and what tells it from the others of its kind."""

    def __init__(self, names: Iterable[str], url: str, folder: Path, seed: int) -> None:
        self._url = url
        self._folder = folder
        self._seed = seed
        self._incarnations = dict.fromkeys(names, 0)
        self._running: dict[str, Running] = {}
        self.complaints: list[str] = []

    @property
    def names(self) -> list[str]:
        return list(self._incarnations)

    def start(self) -> None:
        for name in self.names:
            self._start(name)

    def tend(self) -> None:
        """Start again who has ended, and complain of those who were not killed."""
        for name, one in list(self._running.items()):
            if one.process.poll() is not None:
                self._explain(name, one)
                self._start(name)
        if len(self.complaints) >= MOST_COMPLAINTS:
            raise AssertionError("\n".join(self.complaints))

    def kill(self, name: str) -> None:
        """Kill an actor, and all processes that it has started, without a warning."""
        one = self._running[name]
        one.was_killed = True
        with suppress(psutil.NoSuchProcess):
            root = psutil.Process(one.process.pid)
            for process in (root, *root.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        one.process.wait()

    def pause(self, name: str) -> Callable[[], None]:
        """Stop an actor in the middle of whatever it does, and return how to let it go on."""
        process = self._running[name].process
        process.send_signal(signal.SIGSTOP)
        return lambda: process.send_signal(signal.SIGCONT)

    def end(self, kinds: Iterable[str] | None = None) -> None:
        """Ask actors to end, those of some kinds or all, and wait until they have."""
        leaving = {
            name: one
            for name, one in self._running.items()
            if kinds is None or name.partition("-")[0] in kinds
        }
        for one in leaving.values():
            one.process.terminate()
        deadline = time.monotonic() + PATIENCE
        for name, one in leaving.items():
            self._wait(name, one, deadline)
            del self._running[name]

    def abandon(self) -> None:
        """Kill whoever is left."""
        for name in list(self._running):
            self.kill(name)

    def _start(self, name: str) -> None:
        number = self._incarnations[name]
        self._incarnations[name] += 1
        stem = self._folder / f"{name}.{number:04}"
        errors = stem.with_suffix(f"{stem.suffix}.errors")
        ledger = stem.with_suffix(f"{stem.suffix}.facts")
        kind = name.partition("-")[0]
        command = [sys.executable, "-m", f"tests.chaos.actors.{kind}"]
        with errors.open("wb") as file:
            process = subprocess.Popen(
                [*command, name, self._url, str(ledger), str(self._seed)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )
        self._running[name] = Running(process, errors)

    def _wait(self, name: str, one: Running, deadline: float) -> None:
        try:
            one.process.wait(max(1.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.complaints.append(f"{name} did not end")
            self.kill(name)
        if one.process.returncode != 0:
            self._explain(name, one)

    def _explain(self, name: str, one: Running) -> None:
        if not one.was_killed:
            said = one.errors.read_text(errors="replace").splitlines()[-12:]
            code = one.process.returncode
            self.complaints.append("\n  ".join([f"{name} ended by itself with {code}:", *said]))
