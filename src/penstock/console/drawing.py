"""Drawings, as SVG: charts of the last hour, and graphs from left to right.

Colours and strokes are classes of console.css, so a drawing follows the viewer's theme.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from penstock.console.history import SECONDS

#: points of a line, at most
_POINTS = 180
_WIDTH, _HEIGHT = 600, 120
_SPANS = (300.0, 900.0, 1800.0)
_BOX_WIDTH, _BOX_HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 208, 84, 96, 28, 16


def chart(series: Sequence[Mapping[str, Any]], about: str, *, fill: bool = False) -> Markup:
    """Return lines over the last hour, of `Series` as plain values."""
    now = time.time()
    oldest = min((one["points"][0][0] for one in series if one["points"]), default=now)
    # a short history fills the chart: five minutes at least
    span = next((one for one in _SPANS if now - oldest <= one), SECONDS)
    top = _ceiling(max((value for one in series for _, value in one["points"]), default=0.0))
    lines = Markup("").join(
        _line(_thinned(one["points"]), now - span, span, top, f"s{index}", fill)
        for index, one in enumerate(series)
    )
    grid = Markup("").join(
        Markup('<line class="grid" x1="0" x2="{}" y1="{}" y2="{}"/>').format(_WIDTH, y, y)
        for y in (0.5, _HEIGHT / 2, _HEIGHT - 0.5)
    )
    return Markup(
        '<figure class="chart"><div class="scale" aria-hidden="true"><span>{}</span>'
        "<span>{}</span><span>0</span></div>"
        '<svg viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">{}{}</svg>'
        '<div class="axis" aria-hidden="true"><span>{:.0f} min ago</span>'
        "<span>now</span></div></figure>"
    ).format(_figure(top), _figure(top / 2), _WIDTH, _HEIGHT, about, grid, lines, span / 60)


def _line(
    points: Sequence[tuple[float, float]],
    start: float,
    span: float,
    top: float,
    colour: str,
    fill: bool,
) -> Markup:
    if not points:
        return Markup("")
    placed = [
        (max(0.0, (at - start) / span * _WIDTH), _HEIGHT - value / top * (_HEIGHT - 4) - 1)
        for at, value in points
    ]
    drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
    if len(placed) == 1:
        drawn += f" {_WIDTH},{placed[0][1]:.1f}"
    line = Markup('<polyline class="line {}" points="{}"/>').format(colour, drawn)
    if not fill:
        return line
    area = f"{placed[0][0]:.1f},{_HEIGHT} {drawn} {placed[-1][0]:.1f},{_HEIGHT}"
    return Markup('<polygon class="area {}" points="{}"/>').format(colour, area) + line


def _thinned(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """Return at most so many points: of neighbours the highest, so that no peak is lost."""
    size = -(-len(points) // _POINTS)
    if size <= 1:
        return points
    return [max(points[i : i + size], key=lambda one: one[1]) for i in range(0, len(points), size)]


def _ceiling(value: float) -> float:
    """Return the next round number, for the top of a scale."""
    step = 1.0
    while True:
        for factor in (1, 2, 5):
            if value <= factor * step:
                return factor * step
        step *= 10


def _figure(value: float) -> str:
    if value >= 1_000_000:
        return f"{value / 1_000_000:g}M"
    return f"{value / 1000:g}k" if value >= 10_000 else f"{value:,g}"


@dataclass(frozen=True)
class Box:
    """A node of a graph: a title, lines of text below it, and where it leads."""

    name: str
    title: str
    lines: tuple[str, ...] = ()
    #: classes of console.css: its kind, and `failing`
    kind: str = ""
    href: str | None = None


@dataclass(frozen=True)
class Arrow:
    """An edge of a graph."""

    source: str
    target: str
    label: str = ""
    dashed: bool = False


def graph(boxes: Sequence[Box], arrows: Sequence[Arrow], about: str) -> Markup:
    """Return a graph in columns: what feeds others comes first."""
    places = _places(boxes, arrows)
    width = max((x for x, _ in places.values()), default=0) + _BOX_WIDTH + _MARGIN
    height = max((y for _, y in places.values()), default=0) + _BOX_HEIGHT + _MARGIN
    drawn = Markup("").join(
        [
            *(_arrow(one, places) for one in arrows if {one.source, one.target} <= places.keys()),
            *(_box(one, *places[one.name]) for one in boxes),
        ]
    )
    return Markup(
        '<svg class="graph" viewBox="0 0 {0} {1}" width="{0}" height="{1}" role="group" '
        'aria-label="{2}"><defs><marker id="tip" class="tip" markerWidth="9" markerHeight="9" '
        'refX="8" refY="4" orient="auto"><path d="M0,0 L8,4 L0,8 z"/></marker></defs>{3}</svg>'
    ).format(width, height, about, drawn)


def _places(boxes: Sequence[Box], arrows: Sequence[Arrow]) -> dict[str, tuple[float, float]]:
    columns = _columns([one.name for one in boxes], arrows)
    tallest = max((len(column) for column in columns), default=0)
    places: dict[str, tuple[float, float]] = {}
    for x, column in enumerate(columns):
        top = (tallest - len(column)) / 2
        for y, name in enumerate(column):
            places[name] = (
                _MARGIN + x * (_BOX_WIDTH + _GAP_X),
                _MARGIN + (top + y) * (_BOX_HEIGHT + _GAP_Y),
            )
    return places


def _columns(names: Sequence[str], arrows: Iterable[Arrow]) -> list[list[str]]:
    """Return the names in columns; within one, ordered by the mean row of what feeds them."""
    feeds: dict[str, set[str]] = {name: set() for name in names}
    for one in arrows:
        if one.source in feeds and one.target in feeds and one.source != one.target:
            feeds[one.target].add(one.source)
    rows: dict[str, float] = {}
    found: list[list[str]] = []
    left = list(names)
    while left:
        # a ring that nothing feeds: its first
        ready = [name for name in left if feeds[name] <= rows.keys()] or left[:1]
        ready.sort(key=lambda name: _mean([rows[one] for one in feeds[name] if one in rows]))
        found.append(ready)
        rows.update((name, row - len(ready) / 2) for row, name in enumerate(ready))
        left = [name for name in left if name not in rows]
    return found


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _arrow(one: Arrow, places: Mapping[str, tuple[float, float]]) -> Markup:
    (x1, y1), (x2, y2) = places[one.source], places[one.target]
    x1, y1, y2 = x1 + _BOX_WIDTH, y1 + _BOX_HEIGHT / 2, y2 + _BOX_HEIGHT / 2
    bend = max(40.0, (x2 - x1) / 2)
    start, end = f"M{x1:.0f},{y1:.0f}", f"{x2 - 2:.0f},{y2:.0f}"
    curve = f"{start} C{x1 + bend:.0f},{y1:.0f} {x2 - bend:.0f},{y2:.0f} {end}"
    label = Markup("")
    if one.label:
        label = Markup('<text class="edge-label" x="{:.0f}" y="{:.0f}">{}</text>').format(
            (x1 + x2) / 2, (y1 + y2) / 2 - 6, _cut(one.label, 15)
        )
    kind = "edge dashed" if one.dashed else "edge"
    return Markup('<path class="{}" d="{}" marker-end="url(#tip)"/>{}').format(kind, curve, label)


def _box(one: Box, x: float, y: float) -> Markup:
    lines = Markup("").join(
        Markup('<text class="line-text" x="{:.0f}" y="{:.0f}">{}</text>').format(
            x + 14, y + 42 + 16 * index, _cut(line, 28)
        )
        for index, line in enumerate(one.lines[:3])
    )
    drawn = Markup(
        '<g class="box {}"><title>{}</title><rect x="{:.0f}" y="{:.0f}" width="{}" height="{}" '
        'rx="8"/><rect class="stripe" x="{:.0f}" y="{:.0f}" width="4" height="{}" rx="2"/>'
        '<text class="box-title" x="{:.0f}" y="{:.0f}">{}</text>{}</g>'
    ).format(
        *(one.kind, one.title, x, y, _BOX_WIDTH, _BOX_HEIGHT),
        *(x, y + 8, _BOX_HEIGHT - 16, x + 14, y + 23, _cut(one.title, 24), lines),
    )
    return drawn if one.href is None else Markup('<a href="{}">{}</a>').format(one.href, drawn)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
