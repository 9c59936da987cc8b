"""A run as text: a table for each comparison, in the terminal and, as Markdown, in the docs."""

from __future__ import annotations

from collections.abc import Sequence

from bench.results import Comparison, Figure, Ratio, Run

FIGURES = ("", "median", "middle half", "unit")
RATIOS = ("ratio", "median", "middle half", "aim", "verdict")


def as_text(comparison: Comparison) -> str:
    """Return the tables of a comparison for the terminal."""
    tables = [FIGURES, *figure_rows(comparison)], [RATIOS, *ratio_rows(comparison)]
    return "\n\n".join([comparison.title, *(_aligned(table) for table in tables)]) + "\n"


def as_markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def figure_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """Return a row for each contender."""
    return [_figure_row(figure) for figure in comparison.figures]


def ratio_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """Return a row for each ratio, with aim and verdict."""
    return [_ratio_row(ratio) for ratio in comparison.ratios]


def verdicts(run: Run) -> str:
    """Return one sentence: how many aims were met, and which were not."""
    ratios = [(c.title, r) for c in run.comparisons for r in c.ratios if r.verdict]
    behind = [(title, r) for title, r in ratios if r.verdict == "behind"]
    met = f"{len(ratios) - len(behind)} of {len(ratios)} aims met"
    if not behind:
        return f"{met}."
    listed = "; ".join(f"{title}: {r.name} is {r.median:.2f}, aim {r.aim}" for title, r in behind)
    return f"{met}. Behind: {listed}."


def _figure_row(figure: Figure) -> tuple[str, ...]:
    low, high = figure.middle_half
    return (figure.name, f"{figure.median:,.0f}", f"{low:,.0f} to {high:,.0f}", figure.unit)


def _ratio_row(ratio: Ratio) -> tuple[str, ...]:
    low, high = ratio.middle_half
    return (
        ratio.name,
        f"{ratio.median:.2f}",
        f"{low:.2f} to {high:.2f}",
        ratio.aim,
        ratio.verdict,
    )


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  "
        + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
