"""What a run found: figures, ratios, whether each aim was met; and how that is kept as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from statistics import median, quantiles

import msgspec

FOLDER = Path(__file__).parent / "results"


class Figure(msgspec.Struct, frozen=True):
    """The values of one contender, one for each round."""

    name: str
    unit: str
    values: list[float]

    @property
    def median(self) -> float:
        """The value in the middle."""
        return median(self.values)

    @property
    def middle_half(self) -> tuple[float, float]:
        """Between which values half of them lie."""
        return _middle_half(self.values)


class Ratio(msgspec.Struct, frozen=True):
    """How two contenders compare, round by round, and what the aim was."""

    name: str
    values: list[float]
    at_least: float | None = None
    at_most: float | None = None

    @property
    def median(self) -> float:
        """The ratio in the middle."""
        return median(self.values)

    @property
    def middle_half(self) -> tuple[float, float]:
        """Between which ratios half of them lie."""
        return _middle_half(self.values)

    @property
    def aim(self) -> str:
        """The aim in words; empty if there is none."""
        if self.at_least is not None:
            return f"at least {self.at_least:g}"
        return f"at most {self.at_most:g}" if self.at_most is not None else ""

    @property
    def verdict(self) -> str:
        """`met` or `behind`; empty without an aim."""
        if not self.aim:
            return ""
        enough = self.at_least is None or self.median >= self.at_least
        not_too_much = self.at_most is None or self.median <= self.at_most
        return "met" if enough and not_too_much else "behind"


class Comparison(msgspec.Struct, frozen=True):
    """One table: its contenders, how they compare, and what one has to know to read it."""

    title: str
    figures: list[Figure]
    ratios: list[Ratio]
    notes: list[str] = []


class Run(msgspec.Struct, frozen=True):
    """All that one run measured, and where."""

    began: datetime
    quick: bool
    seconds: float
    machine: dict[str, str]
    settings: dict[str, str]
    comparisons: list[Comparison]

    def save(self, *, whole: bool) -> Path:
        """Write the run to the results folder and return the file.

        Only a whole run, of all comparisons, is what `newest` looks for.
        """
        kind = ("quick" if self.quick else "full") if whole else "part"
        return _write(self, kind)


def ratio(
    of: Figure, to: Figure, *, at_least: float | None = None, at_most: float | None = None
) -> Ratio:
    """Return how one contender compares with another, round by round."""
    values = [one / other for one, other in zip(of.values, to.values, strict=True)]
    return Ratio(f"{of.name} / {to.name}", values, at_least, at_most)


def load(path: Path) -> Run:
    """Return the run that a file keeps."""
    return msgspec.json.decode(path.read_bytes(), type=Run)


def joined(paths: Sequence[Path]) -> Path:
    """Return a file with all that several runs measured, such as one for each comparison.

    What was measured again replaces what was measured before.
    """
    if len(paths) == 1:
        return paths[0]
    runs = [load(path) for path in paths]
    first = min(runs, key=lambda run: run.began)
    machine = {
        name: ", ".join(dict.fromkeys(run.machine[name] for run in runs)) for name in first.machine
    }
    compared = list({one.title: one for run in runs for one in run.comparisons}.values())
    seconds, quick = sum(run.seconds for run in runs), any(run.quick for run in runs)
    return _write(Run(first.began, quick, seconds, machine, first.settings, compared), "joined")


def newest() -> Path:
    """Return the newest whole run of the results folder: a full one, if there is any."""
    found = sorted(FOLDER.glob("*-full.json")) or sorted(FOLDER.glob("*-quick.json"))
    if not found:
        raise SystemExit(f"no results in {FOLDER}: run `make bench` first")
    return found[-1]


def _write(run: Run, kind: str) -> Path:
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{run.began:%Y-%m-%dT%H-%M-%S}-{kind}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(run)) + b"\n")
    return path


def _middle_half(values: list[float]) -> tuple[float, float]:
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = quantiles(values, n=4, method="inclusive")
    return low, high
