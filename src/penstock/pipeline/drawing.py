"""Drawing a graph: as text for a terminal, as SVG for a page.

Processors are drawn in columns: those that feed others come first.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from penstock.pipeline.graph import Pipeline, Processor

_SIGNS = {
    "source": "▷", "stream": "▶", "sink": "▣", "projection": "▤", "table": "▦",
    "archive": "▥",
}  # fmt: skip
_COLOURS = {
    "source": "#2e7d32", "stream": "#1565c0", "sink": "#6a1b9a", "projection": "#ad6800",
    "table": "#00695c", "archive": "#546e7a",
}  # fmt: skip
_WIDTH, _HEIGHT, _GAP_X, _GAP_Y = 170, 46, 90, 26


def as_text(pipeline: Pipeline) -> str:
    """Return the graph for a terminal: a line for each processor, in the order messages flow."""
    lines = [f"pipeline {pipeline.name}"]
    for column in columns(pipeline):
        for one in column:
            lines.append(f"  {_SIGNS[one.kind]} {one.name}  ({one.kind}, {one.location})")
            lines += [f"      {line}" for line in _details(one)]
    return "\n".join(lines)


def as_svg(pipeline: Pipeline) -> str:
    """Return the graph as an SVG image."""
    positions = _positions(pipeline)
    width = max(x for x, _ in positions.values()) + _WIDTH + 20
    height = max(y for _, y in positions.values()) + _HEIGHT + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13">',
        '<defs><marker id="tip" markerWidth="9" markerHeight="9" refX="8" refY="4" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#777"/></marker></defs>',
        *_arrows(pipeline, positions),
        *(_box(one, *positions[one.name]) for one in pipeline.processors.values()),
        *(_label(queue, *positions[f"queue {queue}"]) for queue in _outside(pipeline)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def columns(pipeline: Pipeline) -> list[list[Processor]]:
    """Return the processors in columns, each column fed by those before it."""
    done: set[str] = set(_outside(pipeline))
    left = dict(pipeline.processors)
    found: list[list[Processor]] = []
    while left:
        ready = [one for one in left.values() if done.issuperset((*one.reads, *one.looks_up))]
        ready = ready or list(left.values())  # a cycle that something feeds
        found.append(ready)
        for one in ready:
            done.update(one.publishes)
            del left[one.name]
    return found


def _outside(pipeline: Pipeline) -> list[str]:
    """Return the queues that are read and that no processor writes."""
    written = {queue for one in pipeline.processors.values() for queue in one.publishes}
    read = [q for one in pipeline.processors.values() for q in (*one.reads, *one.looks_up)]
    return [queue for queue in dict.fromkeys(read) if queue not in written]


def _details(one: Processor) -> Iterable[str]:
    kept = one.keeps.table if one.keeps else one.lake and one.lake.name
    parts = {
        "rows of": one.from_table,
        "inputs": ", ".join(one.inputs),
        "alts": " | ".join(one.alts),
        "tables": ", ".join(one.looks_up),
        "output": ", ".join(one.outputs),
        "errors": one.errors,
        "table": kept,
        "archives": one.archives
        and f"{one.archives.category}, older than {one.archives.older_than}",
    }
    return [f"{name:<8}{text}" for name, text in parts.items() if text]


def _positions(pipeline: Pipeline) -> dict[str, tuple[int, int]]:
    outside = [f"queue {queue}" for queue in _outside(pipeline)]
    named = [[one.name for one in column] for column in columns(pipeline)]
    stacked = [outside, *named] if outside else named
    return {
        name: (20 + x * (_WIDTH + _GAP_X), 20 + y * (_HEIGHT + _GAP_Y))
        for x, column in enumerate(stacked)
        for y, name in enumerate(column)
    }


def _arrows(pipeline: Pipeline, positions: dict[str, tuple[int, int]]) -> Iterable[str]:
    writers: dict[str, list[str]] = {queue: [f"queue {queue}"] for queue in _outside(pipeline)}
    for one in pipeline.processors.values():
        for queue in one.publishes:
            writers.setdefault(queue, []).append(one.name)
    for one in pipeline.processors.values():
        for queue in (*one.reads, *one.looks_up):
            for writer in writers.get(queue, ()):
                dashed = queue in one.looks_up
                yield _arrow(positions[writer], positions[one.name], queue, dashed=dashed)


def _arrow(start: tuple[int, int], end: tuple[int, int], text: str, *, dashed: bool) -> str:
    x1, y1 = start[0] + _WIDTH, start[1] + _HEIGHT // 2
    x2, y2 = end[0] - 2, end[1] + _HEIGHT // 2
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    return (
        f'<path d="M{x1},{y1} C{x1 + 45},{y1} {x2 - 45},{y2} {x2},{y2}" fill="none" stroke="#777"'
        f'{dash} marker-end="url(#tip)"/><text x="{(x1 + x2) // 2}" y="{(y1 + y2) // 2 - 5}" '
        f'text-anchor="middle" fill="#555" font-size="11">{escape(text)}</text>'
    )


def _box(one: Processor, x: int, y: int) -> str:
    middle = x + _WIDTH // 2
    return (
        f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="7" '
        f'fill="{_COLOURS[one.kind]}"/><text x="{middle}" y="{y + 20}" text-anchor="middle" '
        f'fill="white" font-weight="bold">{escape(one.name)}</text><text x="{middle}" '
        f'y="{y + 36}" text-anchor="middle" fill="white" font-size="11">{one.kind}</text>'
    )


def _label(queue: str, x: int, y: int) -> str:
    return (
        f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="7" fill="none" '
        f'stroke="#777"/><text x="{x + _WIDTH // 2}" y="{y + 28}" text-anchor="middle">'
        f"{escape(queue)}</text>"
    )
