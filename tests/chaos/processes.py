"""The processes of the actors: started, harmed, started again, and asked to end.

They are forked from a process that has imported all they need and does nothing else, so that one
that was killed is back at once. An actor that ends without being asked to is a complaint: no fault
excuses that.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import psutil

PATIENCE = 180.0  # seconds, for an actor to begin or to end: on a busy machine Spark takes long
MOST_COMPLAINTS = 10  # then there is no point in going on
MODULES = "tests.chaos.actors"

#: those that bring work into the system; the others are done when the work is done
SOURCES = ("writer", "transactor", "sender", "applicant", "intruder", "planner")
#: those that are ready before they are forked: all but the one that needs Spark
_READY = (*SOURCES, "consumer", "member", "reader", "registrar", "greeter", "dispatcher")


@dataclass
class Running:
    """A process, and where it writes to."""

    process: ForkServerProcess
    ledger: Path
    errors: Path
    was_killed: bool = False


class ActorProcesses:
    """All actors, by name: the kind, a hyphen, and what tells it from the others of its kind."""

    def __init__(self, names: Iterable[str], url: str, folder: Path, seed: int) -> None:
        self._url = url
        self._folder = folder
        self._seed = seed
        self._lives = dict.fromkeys(names, 0)
        self._running: dict[str, Running] = {}
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([f"{MODULES}.{kind}" for kind in _READY])
        self.complaints: list[str] = []

    @property
    def names(self) -> list[str]:
        return list(self._lives)

    @property
    def begun(self) -> list[str]:
        """The actors that have connected: to kill one before that would test nothing."""
        return [name for name, one in self._running.items() if one.ledger.exists()]

    def start(self) -> None:
        """Start all, and return once they are connected. The slow ones start first, alone."""
        for name in sorted(self.names, key=lambda name: _kind(name) in _READY):
            self._start(name)
            if _kind(name) not in _READY:
                self.wait_until_all_have_begun()
        self.wait_until_all_have_begun()

    def wait_until_all_have_begun(self) -> None:
        """Return once all that run are connected, or have ended already."""
        deadline = time.monotonic() + PATIENCE
        for name, one in self._running.items():
            while not one.ledger.exists() and one.process.is_alive():
                assert time.monotonic() < deadline, f"{name} does not begin"
                time.sleep(0.02)

    def restart_ended(self) -> None:
        """Start those again that have ended, and complain of those that were not killed."""
        for name, one in list(self._running.items()):
            if not one.process.is_alive():
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
        one.process.join()

    def pause(self, name: str) -> Callable[[], None]:
        """Suspend an actor, and return the function that resumes it."""
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(self._running[name].process.pid)
            process.suspend()
            return partial(_resume, process)
        return lambda: None  # it has ended by itself

    def end(self, kinds: Iterable[str] | None = None) -> None:
        """Ask actors to end, those of some kinds or all, and wait until they have."""
        ending = [name for name in self._running if kinds is None or _kind(name) in kinds]
        for name in ending:
            self._running[name].process.terminate()
        deadline = time.monotonic() + PATIENCE
        for name in ending:
            self._wait(name, deadline)
            del self._running[name]

    def kill_all(self) -> None:
        """Kill the actors that still run."""
        for name in list(self._running):
            self.kill(name)

    def _start(self, name: str) -> None:
        ledger = self._folder / f"{name}.{self._lives[name]:04}.facts"
        self._lives[name] += 1
        errors = ledger.with_suffix(".errors")
        process = self._context.Process(
            target=_run_actor,
            args=(name, self._url, str(ledger), str(errors), self._seed),
            daemon=True,
        )
        process.start()
        self._running[name] = Running(process, ledger, errors)

    def _wait(self, name: str, deadline: float) -> None:
        one = self._running[name]
        one.process.join(max(1.0, deadline - time.monotonic()))
        if one.process.is_alive():
            psutil.Process(one.process.pid).send_signal(signal.SIGUSR1)
            one.process.join(2.0)
            self._complain(f"{name} did not end. It was at:", one, lines=200)
            self.kill(name)
        # one that had just started may not have had its signal handler yet
        elif one.process.exitcode not in (0, -signal.SIGTERM):
            self._explain(name, one)

    def _explain(self, name: str, one: Running) -> None:
        if not one.was_killed:
            self._complain(f"{name} ended by itself with {one.process.exitcode}:", one, lines=12)

    def _complain(self, first: str, one: Running, lines: int) -> None:
        said = one.errors.read_text(errors="replace") if one.errors.exists() else ""
        self.complaints.append("\n  ".join([first, *said.splitlines()[-lines:]]))


def _run_actor(name: str, url: str, ledger: str, errors: str, seed: int) -> None:
    """Run an actor, in its own process."""
    descriptor = os.open(errors, os.O_WRONLY | os.O_CREAT)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    faulthandler.register(signal.SIGUSR1)  # prints where it hangs
    import_module(f"{MODULES}.{_kind(name)}").main(name, url, ledger, seed)


def _resume(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        process.resume()


def _kind(name: str) -> str:
    return name.partition("-")[0]
