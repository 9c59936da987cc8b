"""What of a run is drawn: curves against a size that the names tell; and the charts themselves."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from bench import peers, report
from bench.comparisons import growth
from bench.plots import past_aim, plots
from bench.results import Comparison, Figure, Ratio, Run, ratio


def run_of(*compared: Comparison) -> Run:
    return Run(datetime(2026, 1, 2, tzinfo=UTC), True, 1.0, {}, {}, list(compared))


def figure(name: str, *values: float) -> Figure:
    return Figure(name, "µs", list(values))


def test_contenders_of_different_sizes_are_one_curve() -> None:
    small, large = figure("at 10,000 messages", 1), figure("at 100,000 messages", 2)

    (plot,) = plots(run_of(Comparison("A write", [small, large], [])))

    assert (plot.title, plot.along) == ("A write", "messages in the log")
    assert plot.curves == {"": [(10_000, small), (100_000, large)]}


def test_comparisons_of_different_sizes_are_one_plot_with_a_curve_for_each_contender() -> None:
    one = Comparison("write, 1 writer", [figure("ours", 1), figure("theirs", 2)], [])
    eight = Comparison("write, 8 writers", [figure("ours", 3), figure("theirs", 4)], [])

    (plot,) = plots(run_of(one, eight))

    assert (plot.title, plot.along) == ("write", "clients")
    assert [size for size, _ in plot.curves["theirs"]] == [1, 8]


def test_a_single_point_and_a_name_without_a_size_are_not_drawn() -> None:
    single = Comparison("append, 8 clients", [figure("ours", 1)], [])
    batches = Comparison("writes", [figure("batches of 100", 1), figure("at rest", 2)], [])

    assert plots(run_of(single, batches)) == []


@pytest.mark.parametrize(
    ("unit", "better"), [("messages/s", "higher"), ("µs/write", "lower"), ("ms", "lower")]
)
def test_a_plot_says_which_direction_is_better(unit: str, better: str) -> None:
    points = [Figure("at 1 messages", unit, [1]), Figure("at 10 messages", unit, [2])]

    (plot,) = plots(run_of(Comparison("A write", points, [])))

    assert plot.better == better


@pytest.mark.parametrize(
    ("aim", "value", "times"),
    [({"at_least": 2}, 4, 2), ({"at_most": 1.5}, 3, 0.5), ({"at_most": 0}, 0, 1)],
)
def test_a_ratio_is_drawn_as_a_multiple_of_its_aim(
    aim: dict[str, float], value: float, times: float
) -> None:
    assert past_aim(Ratio("ours / theirs", [value], **aim), value) == times


def test_every_operation_is_measured_as_the_log_grows() -> None:
    assert {operation.__name__ for operation, _ in growth.OPERATIONS.values()} == {
        "write",
        "append",
        "claim_and_ack",
        "read",
    }


def has_matplotlib() -> bool:
    mark = peers.FOLDER / "requirements.sha256"
    wanted = hashlib.sha256(peers.REQUIREMENTS.read_bytes()).hexdigest()
    return mark.exists() and mark.read_text() == wanted


@pytest.mark.skipif(not has_matplotlib(), reason="no bench/.venv: `make bench` makes it")
def test_the_page_comes_with_charts_of_ratios_and_curves(tmp_path: Path) -> None:
    small, large = figure("at 1 messages", 1, 2), figure("at 10 messages", 2, 3)
    compared = Comparison("$all, read", [small, large], [ratio(large, small, at_most=2)])
    (tmp_path / "run.json").write_bytes(msgspec.json.encode(run_of(compared)))

    page = report.write(tmp_path / "run.json", tmp_path)

    for name in ("aims", "by-messages-1"):
        chart = tmp_path / "images" / f"benchmarks-{name}.png"
        assert f"(images/{chart.name})" in page.read_text(encoding="utf-8")
        assert chart.read_bytes().startswith(b"\x89PNG")
