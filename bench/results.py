"""What a run found: figures, ratios, whether each aim was met; and how that is kept as JSON."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from statistics import median, quantiles

import msgspec
from msgspec.structs import replace

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
        """`met` or `missed`, by the median; empty without an aim."""
        if not self.aim:
            return ""
        return "met" if self._meets(self.median) else "missed"

    @property
    def rounds(self) -> int:
        """How many rounds there were."""
        return len(self.values)

    @property
    def rounds_met(self) -> int:
        """In how many rounds the aim was met."""
        return sum(self._meets(value) for value in self.values)

    @property
    def rounds_ahead(self) -> int:
        """In how many rounds the first was no worse than the second, if more is better."""
        return sum(value >= 1 for value in self.values)

    def _meets(self, value: float) -> bool:
        enough = self.at_least is None or value >= self.at_least
        not_too_much = self.at_most is None or value <= self.at_most
        return enough and not_too_much


class Comparison(msgspec.Struct, frozen=True):
    """One table: its contenders, how they compare, and what one has to know to read it."""

    title: str
    figures: list[Figure]
    ratios: list[Ratio]
    notes: list[str] = []
    #: the sizes it was measured at, as far as the title does not say them
    sizes: str = ""
    #: the part of the run that measured it
    part: str = ""
    #: milliseconds of one fdatasync, before and after
    sync_ms: list[float] = []


class Setting(msgspec.Struct, frozen=True):
    """A setting of the server, PostgreSQL's default, and why they differ if they do."""

    name: str
    value: str
    default: str
    reason: str = ""


class Run(msgspec.Struct, frozen=True):
    """All that one run measured, and where."""

    began: datetime
    quick: bool
    seconds: float
    machine: dict[str, str]
    versions: dict[str, str]
    settings: list[Setting]
    #: the parts that were asked for, and those that are done
    parts: list[str]
    done: list[str] = []
    #: the parts that failed, with the error
    failed: dict[str, str] = {}
    comparisons: list[Comparison] = []
    #: when it went on after it had broken off
    resumed: list[datetime] = []
    #: the parts that were measured in another run, and when that began
    later: dict[str, datetime] = {}

    @property
    def left(self) -> list[str]:
        """The parts that are not done and did not fail either: the run broke off before them."""
        return [part for part in self.parts if part not in self.done and part not in self.failed]

    @property
    def ratios(self) -> list[tuple[Comparison, Ratio]]:
        """All ratios, each with its comparison."""
        return [(comparison, one) for comparison in self.comparisons for one in comparison.ratios]

    @property
    def aimed(self) -> list[tuple[Comparison, Ratio]]:
        """The ratios that have an aim."""
        return [(comparison, one) for comparison, one in self.ratios if one.aim]

    def with_parts_of(self, other: Run) -> Run:
        """Return this run with what a later one has measured, in place of the same parts."""
        newer = [part for part in other.parts if part in other.done]
        kept = [one for one in self.comparisons if one.part not in newer]
        measured = [one for one in other.comparisons if one.part in newer]
        return replace(
            self,
            parts=[*self.parts, *(part for part in newer if part not in self.parts)],
            done=[*self.done, *(part for part in newer if part not in self.done)],
            failed={part: why for part, why in self.failed.items() if part not in newer},
            comparisons=kept + measured,
            later={**self.later, **dict.fromkeys(newer, other.began)},
        )

    def save(self, path: Path) -> None:
        """Write the run to a file, whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_bytes(as_json(self))
        unfinished.replace(path)


def ratio(
    of: Figure, to: Figure, *, at_least: float | None = None, at_most: float | None = None
) -> Ratio:
    """Return how one contender compares with another, round by round."""
    values = [significant(one / other) for one, other in zip(of.values, to.values, strict=True)]
    return Ratio(f"{of.name} / {to.name}", values, at_least, at_most)


def significant(value: float) -> float:
    """Return a value with as many digits as a measurement has, and some more."""
    return float(f"{value:.6g}")


def as_json(run: Run) -> bytes:
    """Return a run as it is kept in a file."""
    return msgspec.json.format(msgspec.json.encode(run)) + b"\n"


def load(path: Path) -> Run:
    """Return the run that a file keeps."""
    return msgspec.json.decode(path.read_bytes(), type=Run)


def file_of(began: datetime, kind: str, folder: Path = FOLDER) -> Path:
    """Return the file for a run: `kind` is full, quick, or part if only some parts are run."""
    return folder / f"{began:%Y-%m-%dT%H-%M-%S}-{kind}.json"


def newest(folder: Path = FOLDER) -> Path:
    """Return the newest full run of the results folder."""
    found = sorted(folder.glob("*-full.json"))
    if not found:
        raise SystemExit(f"no full run in {folder}: run `make bench` first")
    return found[-1]


def _middle_half(values: list[float]) -> tuple[float, float]:
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = quantiles(values, n=4, method="inclusive")
    return low, high
