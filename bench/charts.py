"""The charts of a run: `python -m bench.charts RESULTS.json PREFIX` draws PREFIX-*.png.

It runs in bench/.venv, which has matplotlib. All axes begin at zero, so that nothing looks larger
than it is; only the sizes that a cost is drawn against are on a logarithmic scale.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet

from bench.plots import Plot, plots
from bench.results import Comparison, Run, load

COLORS = {"met": "#2a7f62", "behind": "#c0392b", "": "#7f8c8d"}
WIDTH = 9.0  # inches


def draw(run: Run, prefix: Path) -> list[Path]:
    """Draw all charts of a run and return their files."""
    compared = [one for one in run.comparisons if one.ratios]
    drawn = [_saved(_ratios(compared), prefix, "ratios")] if compared else []
    found = plots(run)
    for along in dict.fromkeys(plot.along for plot in found):
        same = [plot for plot in found if plot.along == along]
        drawn.append(_saved(_growth(same), prefix, f"by-{along.split()[0]}"))
    return drawn


def _ratios(compared: list[Comparison]) -> Sheet:
    heights = [len(one.ratios) + 1.2 for one in compared]
    sheet, axes = plt.subplots(
        len(compared),
        figsize=(WIDTH, 0.42 * sum(heights) + 0.8),
        squeeze=False,
        height_ratios=heights,
    )
    for comparison, axis in zip(compared, axes[:, 0], strict=True):
        _draw_ratios(axis, comparison)
    handles = [plt.Rectangle((0, 0), 1, 1, color=color) for color in COLORS.values()]
    handles.append(plt.Line2D([], [], color="black", linewidth=2))
    names = ["aim met", "behind the aim", "no aim", "aim"]
    sheet.legend(handles, names, loc="upper right", ncols=4, frameon=False, fontsize=9)
    sheet.tight_layout(rect=(0, 0, 1, 1 - 0.35 / sheet.get_figheight()))
    return sheet


def _draw_ratios(axis: Axes, comparison: Comparison) -> None:
    for row, ratio in enumerate(comparison.ratios):
        low, high = ratio.middle_half
        spread = [[max(ratio.median - low, 0)], [max(high - ratio.median, 0)]]
        axis.barh(
            row, ratio.median, 0.7, xerr=spread, color=COLORS[ratio.verdict], ecolor="#333333"
        )
        axis.text(
            1.01,
            row,
            f"{ratio.median:.3g}",
            transform=axis.get_yaxis_transform(),
            va="center",
            fontsize=8,
        )
        aim = ratio.at_least if ratio.at_least is not None else ratio.at_most
        if aim is not None:
            axis.plot([aim, aim], [row - 0.45, row + 0.45], color="black", linewidth=2)
    names = [one.name.replace("$", r"\$") for one in comparison.ratios]  # no formula begins there
    axis.set_yticks(range(len(names)), names)
    axis.tick_params(labelsize=8)
    axis.invert_yaxis()
    axis.margins(x=0.12)
    axis.set_xlim(left=0)
    axis.set_title(comparison.title, loc="left", fontsize=9, fontweight="bold")
    axis.spines[["top", "right"]].set_visible(False)


def _growth(same: list[Plot]) -> Sheet:
    columns = min(2, len(same))
    rows = -(-len(same) // columns)
    sheet, axes = plt.subplots(rows, columns, figsize=(WIDTH, 3.2 * rows), squeeze=False)
    for plot, axis in zip(same, axes.flat, strict=False):
        _draw_curves(axis, plot)
    for axis in axes.flat[len(same) :]:
        axis.remove()
    sheet.tight_layout()
    return sheet


def _draw_curves(axis: Axes, plot: Plot) -> None:
    for name, points in plot.curves.items():
        sizes = [size for size, _ in points]
        halves = [figure.middle_half for _, figure in points]
        (line,) = axis.plot(sizes, [figure.median for _, figure in points], "o-", label=name)
        axis.fill_between(
            sizes,
            [low for low, _ in halves],
            [high for _, high in halves],
            color=line.get_color(),
            alpha=0.2,
        )
    axis.set_xscale("log")
    sizes = sorted({size for points in plot.curves.values() for size, _ in points})
    axis.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axis.minorticks_off()
    axis.set_ylim(bottom=0)
    axis.tick_params(labelsize=8)
    axis.set_xlabel(plot.along, fontsize=8)
    axis.set_ylabel(plot.unit, fontsize=8)
    axis.set_title(plot.title, loc="left", fontsize=9, fontweight="bold")
    axis.spines[["top", "right"]].set_visible(False)
    if any(plot.curves):
        axis.legend(fontsize=8, frameon=False)


def _saved(sheet: Sheet, prefix: Path, name: str) -> Path:
    path = prefix.with_name(f"{prefix.name}-{name}.png")
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.savefig(path, dpi=130)
    plt.close(sheet)
    return path


if __name__ == "__main__":
    for drawn in draw(load(Path(sys.argv[1])), Path(sys.argv[2])):
        print(drawn)
