"""The charts of a run: `python -m bench.charts RESULTS.json PREFIX` draws PREFIX-*.png.

It runs in bench/.venv, which has matplotlib. A chart is as wide as a phone, so that its text has
its true size there, and says which direction is better. The axis of a cost or a speed begins at
zero, so that nothing looks larger than it is.
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure as Sheet

from bench.plots import Aims, Plot, charts, past_aim
from bench.results import Run, load

COLORS = {"met": "#2a7f62", "missed": "#c0392b"}
WIDTH = 3.9  # inches, at 100 pixels each the width of a phone
SHARP = 200  # pixels to the inch: phones have two or three for each that they speak of
TEXT = 9
LINE = 54  # characters
ROW = 0.62  # inches


def draw(run: Run, prefix: Path) -> list[Path]:
    """Draw all charts of a run and return their files."""
    drawn = []
    for chart in charts(run):
        sheet = _aims(chart) if isinstance(chart, Aims) else _curves(chart)
        drawn.append(_saved(sheet, prefix.with_name(f"{prefix.name}-{chart.name}")))
    return drawn


def _aims(chart: Aims) -> Sheet:
    """Draw each ratio as a multiple of its aim, so that one axis holds for all."""
    head, foot = 0.55, 0.5
    height = ROW * len(chart.aimed) + head + foot
    sheet, axis = plt.subplots(figsize=(WIDTH, height))
    for row, (comparison, ratio) in enumerate(chart.aimed):
        factor, low, high = (past_aim(ratio, one) for one in (ratio.median, *ratio.middle_half))
        axis.barh(row, factor - 1, 0.26, left=1, color=COLORS[ratio.verdict])
        axis.plot([low, high], [row, row], color="#333333", linewidth=1.5)
        axis.plot([1, 1], [row - 0.2, row + 0.2], color="black", linewidth=1.5)
        found = f"{ratio.median:.3g} ({ratio.aim})"
        name = _shortened(ratio.name, LINE - len(found))
        label = f"{_shortened(comparison.title)}\n{name}: {found}"
        axis.text(
            0, row - 0.2, label, transform=axis.get_yaxis_transform(), fontsize=TEXT, va="bottom"
        )
    axis.set_xscale("log", base=2)
    axis.set_xlim(min(0.5, axis.get_xlim()[0]), max(2, axis.get_xlim()[1]))
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_yticks([])
    axis.set_ylim(len(chart.aimed) - 0.7, -0.9)
    axis.set_xlabel("times as good as the aim", fontsize=TEXT)
    axis.tick_params(labelsize=TEXT)
    axis.spines[["top", "right", "left"]].set_visible(False)
    _title(sheet, f"{chart.group}, against the aims:\nfurther right is better", height)
    sheet.subplots_adjust(left=0.03, right=0.97, top=1 - head / height, bottom=foot / height)
    return sheet


def _curves(plot: Plot) -> Sheet:
    height = 3.6 + 0.2 * len(plot.curves)
    sheet, axis = plt.subplots(figsize=(WIDTH, height))
    for name, points in plot.curves.items():
        sizes = [size for size, _ in points]
        halves = [figure.middle_half for _, figure in points]
        (line,) = axis.plot(sizes, [figure.median for _, figure in points], "o-", label=name)
        lows, highs = [low for low, _ in halves], [high for _, high in halves]
        axis.fill_between(sizes, lows, highs, color=line.get_color(), alpha=0.2)
    axis.set_xscale("log")
    sizes = sorted({size for points in plot.curves.values() for size, _ in points})
    axis.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axis.minorticks_off()
    axis.set_ylim(0, 1.1 * axis.get_ylim()[1])
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axis.tick_params(labelsize=TEXT)
    axis.set_xlabel(plot.along, fontsize=TEXT)
    axis.spines[["top", "right"]].set_visible(False)
    _title(sheet, f"{plot.title}: {plot.unit},\n{plot.better} is better", height)
    legend = 0.2 * len(plot.curves) if any(plot.curves) else 0.0
    if legend:
        sheet.legend(fontsize=TEXT, frameon=False, loc="lower left", borderaxespad=0.3)
    sheet.tight_layout(rect=(0, legend / height, 1, 1 - 0.5 / height))
    return sheet


def _title(sheet: Sheet, text: str, height: float) -> None:
    at = 1 - 0.08 / height
    sheet.text(
        0.03, at, _shown(text), fontsize=TEXT + 1, fontweight="bold", va="top", linespacing=1.3
    )


def _shortened(text: str, width: int = LINE) -> str:
    return _shown(textwrap.shorten(text, width, placeholder=" …"))


def _shown(text: str) -> str:
    return text.replace("$", r"\$")  # no formula begins there


def _saved(sheet: Sheet, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.savefig(path, dpi=SHARP)
    plt.close(sheet)
    return path


if __name__ == "__main__":
    for drawn in draw(load(Path(sys.argv[1])), Path(sys.argv[2])):
        print(drawn)
