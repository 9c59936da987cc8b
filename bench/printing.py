"""A run as text: a table for each comparison, in the terminal and, as Markdown, in the docs."""

from __future__ import annotations

from collections.abc import Sequence

from bench.results import Comparison, Figure, Ratio, Run, Setting

FIGURES = ("", "median", "middle half", "unit")
RATIOS = ("ratio", "median", "middle half", "aim", "verdict")
AIMS = ("what", "ratio", "median", "aim", "verdict")


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


def aim_rows(run: Run) -> list[tuple[str, ...]]:
    """Return a row for each aim of a run."""
    return [
        (where(comparison), one.name, times(one.median), one.aim, verdict(one))
        for comparison, one in run.aimed
    ]


def setting_line(setting: Setting) -> str:
    """Return a setting of the server for the terminal."""
    default = "" if setting.value == setting.default else f" (default {setting.default})"
    return f"{setting.name} = {setting.value}{default}"


def verdicts(run: Run) -> str:
    """Return one sentence: how many aims were met, and which were not."""
    missed = [_told(comparison, one) for comparison, one in run.aimed if one.verdict == "missed"]
    met = aims_met(run)
    return f"{met} Behind: {'; '.join(missed)}." if missed else met


def aims_met(run: Run) -> str:
    """Return the sentence that counts the aims."""
    met = sum(one.verdict == "met" for _, one in run.aimed)
    return f"{met} of {len(run.aimed)} aims met."


def behind(run: Run) -> list[str]:
    """Return a line for each aim that was missed, then for each contender that is ahead of ours."""
    missed = [_told(comparison, one) for comparison, one in run.aimed if one.verdict == "missed"]
    ahead = [
        _told(comparison, one)
        for comparison, one in run.ratios
        if one.verdict != "missed" and _is_ahead_of_ours(one)
    ]
    return missed + ahead


def where(comparison: Comparison) -> str:
    """Return what was measured and at which sizes."""
    return f"{comparison.title} ({comparison.sizes})" if comparison.sizes else comparison.title


def verdict(ratio: Ratio) -> str:
    """Return the verdict with the number of rounds that agree with it; empty without an aim."""
    if not ratio.aim:
        return ""
    agreeing = ratio.rounds_met if ratio.verdict == "met" else ratio.rounds - ratio.rounds_met
    return f"{ratio.verdict}{_in_rounds(agreeing, ratio.rounds)}"


def times(value: float) -> str:
    """Return a ratio so that a small one does not look like none."""
    return f"{value:.2g}" if 0 < value < 0.1 else f"{value:.2f}"


def _is_ahead_of_ours(ratio: Ratio) -> bool:
    """Whether the contender that ours is compared with does better, aim or no aim."""
    one, _, other = ratio.name.partition(" / ")
    is_against_theirs = one.startswith("ours") and not other.startswith("ours")
    return is_against_theirs and ratio.at_most is None and ratio.median < 1


def _told(comparison: Comparison, ratio: Ratio) -> str:
    found = f"{where(comparison)}: {ratio.name} is {times(ratio.median)}"
    if ratio.verdict == "missed":
        return f"{found}, aim {ratio.aim}, {verdict(ratio)}"
    aim = f"aim {ratio.aim}, {verdict(ratio)}" if ratio.aim else "no aim"
    slower = _in_rounds(ratio.rounds - ratio.rounds_ahead, ratio.rounds)
    return f"{found}, {aim}, behind{slower}"


def _in_rounds(some: int, rounds: int) -> str:
    return f" in {some} of {rounds} rounds" if rounds > 1 else ""


def _figure_row(figure: Figure) -> tuple[str, ...]:
    low, high = figure.middle_half
    spread = f"{_number(low)} to {_number(high)}" if len(figure.values) > 1 else ""
    return (figure.name, _number(figure.median), spread, figure.unit)


def _ratio_row(ratio: Ratio) -> tuple[str, ...]:
    low, high = ratio.middle_half
    spread = f"{times(low)} to {times(high)}" if len(ratio.values) > 1 else ""
    return (ratio.name, times(ratio.median), spread, ratio.aim, verdict(ratio))


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2f}"


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  "
        + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
