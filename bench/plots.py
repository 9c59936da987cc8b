"""What of a run can be drawn as a curve: a cost or a speed against the size of something.

The size is read from the names: a contender `at 10,000 messages` or `100 partitions` is a point of
its comparison's curve; comparisons titled `write_message, 1 writer` and `write_message, 8 writers`
make one plot, with a curve for each contender.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from bench.results import Comparison, Figure, Ratio, Run

_SIZE = re.compile(r"([\d,]+) (message|partition|client|writer)s?\b")
_ALONG = {
    "message": "messages in the log",
    "partition": "partitions",
    "client": "clients",
    "writer": "clients",
}


@dataclass(frozen=True, slots=True)
class Plot:
    """Curves against one size. Each is a list of sizes, with the figures found there."""

    title: str
    along: str
    unit: str
    curves: dict[str, list[tuple[int, Figure]]] = field(default_factory=dict)

    @property
    def better(self) -> str:
        """Whether a `higher` or a `lower` figure is better: a rate, or a cost."""
        return "higher" if self.unit.endswith("/s") else "lower"


def plots(run: Run) -> list[Plot]:
    """Return the plots of a run: those with a curve of at least two points."""
    found: dict[tuple[str, str], Plot] = {}
    for comparison in run.comparisons:
        for figure in comparison.figures:
            _add(found, comparison, figure)
    return [
        plot for plot in found.values() if any(len(points) > 1 for points in plot.curves.values())
    ]


def past_aim(ratio: Ratio, value: float) -> float:
    """Return how many times better than its aim a ratio is: at least 2 and found 4 is 2."""
    if value in (ratio.at_least, ratio.at_most):
        return 1.0
    if ratio.at_least is not None:
        return max(value, 1e-3) / ratio.at_least
    assert ratio.at_most is not None, "only ratios with an aim are drawn"
    return ratio.at_most / max(value, 1e-3)


def _add(found: dict[tuple[str, str], Plot], comparison: Comparison, figure: Figure) -> None:
    own, shared = _SIZE.search(figure.name), _SIZE.search(comparison.title)
    size = own or shared
    if size is None:
        return
    title = comparison.title if own else _SIZE.sub("", comparison.title).strip(", ")
    along = _ALONG[size[2]]
    plot = found.setdefault((title, along), Plot(title, along, figure.unit))
    points = plot.curves.setdefault("" if own else figure.name, [])
    points.append((int(size[1].replace(",", "")), figure))
