"""What of a run is drawn: its aims, group by group, and curves against the size of something.

The size is read from the names: a contender `at 10,000 messages` or `100 partitions` is a point of
its comparison's curve; comparisons titled `write_message, 1 writer` and `write_message, 8 writers`
make one plot, with a curve for each contender. A curve has three points or more. Comparisons with a
size of their own and a title such as `A write, as the log grows` share the plot `as the log grows`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from bench.results import Comparison, Figure, Ratio, Run

#: the sections of the page, with their parts of the run
GROUPS = {
    "Writing": ("write-message", "write-messages", "guarded-append"),
    "Many callers in one process": ("coalescing",),
    "Reading": ("category-read", "consumer", "loss"),
    "Waiting and watching": ("waking", "console"),
    "As the log grows": ("growth", "decisions", "archive"),
    "Queues": ("claims", "outbox"),
    "Spark": ("spark",),
    "Pipelines": ("pipeline", "lake"),
}

_SIZE = re.compile(r"([\d,]+) (message|partition|client|writer)s?\b")
_ALONG = {
    "message": "messages in the log",
    "partition": "partitions",
    "client": "clients",
    "writer": "clients",
}


@dataclass(frozen=True, slots=True)
class Aims:
    """The aims of a group, each with its comparison."""

    group: str
    aimed: list[tuple[Comparison, Ratio]]

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"aims-{_file_name(self.group)}.png"

    @property
    def heading(self) -> str:
        """What it shows, and which direction is better."""
        return f"{self.group}: times as good as the aim; further right is better"


@dataclass(frozen=True, slots=True)
class Plot:
    """Curves against one size. Each is a list of sizes, with the figures found there."""

    group: str
    title: str
    along: str
    unit: str
    curves: dict[str, list[tuple[int, Figure]]] = field(default_factory=dict)

    @property
    def better(self) -> str:
        """Whether a `higher` or a `lower` figure is better: a rate, or a cost."""
        return "higher" if self.unit.endswith("/s") else "lower"

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{_file_name(f'{self.title} by {self.along}')}.png"

    @property
    def heading(self) -> str:
        """What it shows, and which direction is better."""
        return f"{self.title}: {self.unit}; {self.better} is better"


def charts(run: Run) -> list[Aims | Plot]:
    """Return all charts of a run, group by group."""
    curves = plots(run)
    found: list[Aims | Plot] = []
    for group in GROUPS:
        aimed = [(one, ratio) for one, ratio in run.aimed if group_of(one) == group]
        found += [Aims(group, aimed)] if aimed else []
        found += [plot for plot in curves if plot.group == group]
    return found


def plots(run: Run) -> list[Plot]:
    """Return the plots of a run: those with a curve of at least three points."""
    found: dict[tuple[str, str, str], Plot] = {}
    for comparison in run.comparisons:
        for figure in comparison.figures:
            _add(found, comparison, figure)
    return [
        plot for plot in found.values() if any(len(points) > 2 for points in plot.curves.values())
    ]


def group_of(comparison: Comparison) -> str:
    """Return the section of the page that a comparison is in."""
    return next(group for group, parts in GROUPS.items() if comparison.part in parts)


def past_aim(ratio: Ratio, value: float) -> float:
    """Return how many times better than its aim a ratio is: at least 2 and found 4 is 2."""
    if value in (ratio.at_least, ratio.at_most):
        return 1.0
    if ratio.at_least is not None:
        return max(value, 1e-3) / ratio.at_least
    assert ratio.at_most is not None, "only ratios with an aim are drawn"
    return ratio.at_most / max(value, 1e-3)


def _add(found: dict[tuple[str, str, str], Plot], comparison: Comparison, figure: Figure) -> None:
    own, shared = _SIZE.search(figure.name), _SIZE.search(comparison.title)
    size = own or shared
    if size is None:
        return
    title, curve = _SIZE.sub("", comparison.title).strip(", "), figure.name
    if own:
        curve, _, title = comparison.title.rpartition(", ")
        title = title[:1].upper() + title[1:]
    along = _ALONG[size[2]]
    empty = Plot(group_of(comparison), title, along, figure.unit)
    plot = found.setdefault((title, along, figure.unit), empty)
    points = plot.curves.setdefault(curve, [])
    points.append((int(size[1].replace(",", "")), figure))


def _file_name(text: str) -> str:
    return re.sub(r"\W+", "-", text.lower()).strip("-")
