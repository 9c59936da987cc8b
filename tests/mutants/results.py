"""What a run of the mutants found, and how that is kept as JSON."""

from __future__ import annotations

from datetime import datetime

import msgspec

from tests.mutants.mutant import ROOT, Mutant

FILE = ROOT / "docs" / "data" / "mutants.json"


class Result(msgspec.Struct, frozen=True):
    """How the tests that claim a mutant ended."""

    mutant: str
    without: str
    caught_by: dict[str, str]  # the tests that failed, and how
    missed_by: list[str]  # the tests that passed all the same
    broken: dict[str, str]  # the tests that could not even begin, and why
    seconds: float

    @classmethod
    def of(cls, mutant: Mutant, outcomes: dict[str, tuple[str, str]], seconds: float) -> Result:
        """Return the result of a run. A test with parameters has failed if one of them has."""
        caught: dict[str, str] = {}
        missed: list[str] = []
        broken: dict[str, str] = {}
        for name in mutant.caught_by:
            ends = [end for test, end in outcomes.items() if _is_of(test, name)]
            failures = [reason for outcome, reason in ends if outcome == "failed"]
            errors = [reason for outcome, reason in ends if outcome == "error"]
            if failures:
                caught[name] = failures[0]
            elif errors or not ends:
                broken[name] = errors[0] if errors else "it did not run"
            else:
                missed.append(name)
        return cls(mutant.name, mutant.without, caught, missed, broken, round(seconds, 1))

    @property
    def is_caught(self) -> bool:
        """Whether every test that claims the mechanism has failed without it."""
        return bool(self.caught_by) and not self.missed_by and not self.broken


class Run(msgspec.Struct, frozen=True):
    """One run of all mutants."""

    began: datetime
    seconds: float
    workers: int
    python: str
    postgresql: str
    unchanged: int  # tests that were run on the unchanged package first, and passed
    results: list[Result]
    again: list[str] = []  # mutants whose result is from a second run, with `--again`

    @property
    def survivors(self) -> list[str]:
        """The mutants that some test should have caught, and did not."""
        return [one.mutant for one in self.results if not one.is_caught]

    def updated(self, newer: list[Result]) -> Run:
        """Return this run with the results of mutants that were run again."""
        latest = {one.mutant: one for one in newer}
        results = [latest.pop(one.mutant, one) for one in self.results]
        again = sorted({*self.again, *(one.mutant for one in newer)})
        results += latest.values()
        unchanged = len({test for one in results for test in one.caught_by})
        return msgspec.structs.replace(self, results=results, again=again, unchanged=unchanged)


def load() -> Run:
    """Return the run that the repository keeps."""
    return msgspec.json.decode(FILE.read_bytes(), type=Run)


def save(run: Run) -> None:
    """Keep a run in the repository."""
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_bytes(msgspec.json.format(msgspec.json.encode(run)) + b"\n")


def _is_of(test: str, name: str) -> bool:
    return test == name or test.startswith(f"{name}[")
