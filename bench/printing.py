"""A run as text: a table for each comparison, in the terminal and, as Markdown, in the docs."""

from __future__ import annotations

from collections.abc import Sequence

from bench.results import Comparison, Figure, Ratio, Run

FIGURES = ("", "median", "middle half", "unit")
RATIOS = ("ratio", "median", "middle half", "aim", "verdict")


def as_text(comparison: Comparison) -> str:
    """Return the tables of a comparison for the terminal."""
    tables = [[FIGURES, *figure_rows(comparison)]]
    if comparison.ratios:
        tables.append([RATIOS, *ratio_rows(comparison)])
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
    aimed = [(c.title, r) for c in run.comparisons for r in c.ratios if r.verdict]
    missed = [_told(title, r) for title, r in aimed if r.verdict == "behind"]
    met = f"{len(aimed) - len(missed)} of {len(aimed)} aims met"
    return f"{met}. Behind: {'; '.join(missed)}." if missed else f"{met}."


def behind(run: Run) -> list[str]:
    """Return a line for each aim that was missed, and for each contender that is ahead of ours."""
    return [
        _told(comparison.title, one)
        for comparison in run.comparisons
        for one in comparison.ratios
        if one.verdict == "behind" or _is_ahead_of_ours(one)
    ]


def _is_ahead_of_ours(ratio: Ratio) -> bool:
    """Whether the contender that ours is compared with does better, aim or no aim."""
    return ratio.name.startswith("ours") and ratio.at_most is None and ratio.median < 1


def _told(title: str, ratio: Ratio) -> str:
    aim = f", aim {ratio.aim}" if ratio.aim else ""
    return f"{title}: {ratio.name} is {_times(ratio.median)}{aim}"


def _figure_row(figure: Figure) -> tuple[str, ...]:
    low, high = figure.middle_half
    spread = f"{_number(low)} to {_number(high)}" if len(figure.values) > 1 else ""
    return (figure.name, _number(figure.median), spread, figure.unit)


def _ratio_row(ratio: Ratio) -> tuple[str, ...]:
    low, high = ratio.middle_half
    spread = f"{_times(low)} to {_times(high)}" if len(ratio.values) > 1 else ""
    return (ratio.name, _times(ratio.median), spread, ratio.aim, ratio.verdict)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2f}"


def _times(value: float) -> str:
    """Return a ratio so that a small one does not look like none."""
    return f"{value:.2g}" if 0 < value < 0.1 else f"{value:.2f}"


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  "
        + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
