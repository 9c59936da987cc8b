"""The charts of a run: `python -m bench.charts RESULTS.json PREFIX` draws PREFIX-*.png.

It runs in bench/.venv, which has matplotlib. Each chart says which direction is better. The axis of
a cost or a speed begins at zero, so that nothing looks larger than it is.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure as Sheet

from bench.plots import Plot, past_aim, plots
from bench.results import Comparison, Ratio, Run, load

COLORS = {"met": "#2a7f62", "behind": "#c0392b"}
WIDTH = 5.0  # inches: at the width of a phone the text can still be read


def draw(run: Run, prefix: Path) -> list[Path]:
    """Draw all charts of a run and return their files."""
    aimed = [(one, ratio) for one in run.comparisons for ratio in one.ratios if ratio.aim]
    drawn = [_saved(_aims(aimed), prefix, "aims")] if aimed else []
    for number, plot in enumerate(plots(run), start=1):
        drawn.append(_saved(_curves(plot), prefix, f"by-{plot.along.split()[0]}-{number}"))
    return drawn


def _aims(aimed: list[tuple[Comparison, Ratio]]) -> Sheet:
    """Draw each ratio as a multiple of its aim, so that one axis holds for all."""
    sheet, axis = plt.subplots(figsize=(1.2 * WIDTH, height := 0.3 * len(aimed) + 1.1))
    for row, (comparison, ratio) in enumerate(aimed):
        factor, low, high = (past_aim(ratio, one) for one in (ratio.median, *ratio.middle_half))
        axis.barh(row, factor - 1, 0.36, left=1, color=COLORS[ratio.verdict])
        axis.plot([low, high], [row, row], color="#333333", linewidth=1)
        name = _shown(f"{comparison.title}: {ratio.name}")
        label = f"{name}  {ratio.median:.3g} ({ratio.aim})"
        axis.text(
            0,
            row - 0.3,
            label,
            transform=axis.get_yaxis_transform(),
            fontsize=6.5,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
        )
    axis.axvline(1, color="black", linewidth=1.2)
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_yticks([])
    axis.set_ylim(len(aimed) - 0.4, -1)
    axis.set_xlabel("times as good as the aim", fontsize=8)
    axis.tick_params(labelsize=8)
    axis.set_title(
        "Against the aims: to the right is better", loc="left", fontsize=9, fontweight="bold"
    )
    axis.spines[["top", "right", "left"]].set_visible(False)
    sheet.subplots_adjust(left=0.03, right=0.97, top=1 - 0.35 / height, bottom=0.55 / height)
    return sheet


def _curves(plot: Plot) -> Sheet:
    sheet, axis = plt.subplots(figsize=(WIDTH, 2.9))
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
    axis.set_ylim(0, 1.1 * axis.get_ylim()[1])
    axis.tick_params(labelsize=8)
    axis.set_xlabel(plot.along, fontsize=9)
    axis.set_ylabel(f"{plot.unit}\n({plot.better} is better)", fontsize=9)
    axis.set_title(_shown(plot.title), loc="left", fontsize=10, fontweight="bold")
    axis.spines[["top", "right"]].set_visible(False)
    if any(plot.curves):
        axis.legend(fontsize=8, frameon=False)
    sheet.tight_layout()
    return sheet


def _shown(text: str) -> str:
    return text.replace("$", r"\$")  # no formula begins there


def _saved(sheet: Sheet, prefix: Path, name: str) -> Path:
    path = prefix.with_name(f"{prefix.name}-{name}.png")
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.savefig(path, dpi=130)
    plt.close(sheet)
    return path


if __name__ == "__main__":
    for drawn in draw(load(Path(sys.argv[1])), Path(sys.argv[2])):
        print(drawn)
