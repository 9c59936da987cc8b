"""What of a run is drawn: its aims by groups, and curves against a size that the names tell."""

from __future__ import annotations

import hashlib

import pytest

from bench import peers
from bench.comparisons import COMPARISONS, growth
from bench.plots import GROUPS, charts, past_aim, plots
from bench.results import Comparison, Figure, Ratio, ratio
from tests.bench.runs import run_with


def figure(name: str, *values: float) -> Figure:
    return Figure(name, "µs", list(values))


def compared(title: str, *figures: Figure) -> Comparison:
    return Comparison(title, list(figures), [], part="growth")


def test_every_part_of_a_run_is_in_one_group() -> None:
    assert sorted(part for parts in GROUPS.values() for part in parts) == sorted(COMPARISONS)


def test_contenders_of_different_sizes_are_one_curve() -> None:
    points = [figure("at 10,000 messages", 1), figure("at 20,000 messages", 2)]
    last = figure("at 100,000 messages", 2)

    (plot,) = plots(run_with(compared("A write", *points, last)))

    assert (plot.title, plot.along) == ("A write", "messages in the log")
    assert plot.curves == {"": [(10_000, points[0]), (20_000, points[1]), (100_000, last)]}


def test_comparisons_that_share_the_end_of_their_titles_are_one_plot() -> None:
    points = [figure(f"at {size} messages", 1) for size in (1, 10, 100)]

    (plot,) = plots(
        run_with(
            compared("A write, as the log grows", *points),
            compared("A read, as the log grows", *points),
        )
    )

    assert (plot.title, list(plot.curves)) == ("As the log grows", ["A write", "A read"])


def test_comparisons_of_different_sizes_are_one_plot_with_a_curve_for_each_contender() -> None:
    sides = figure("ours", 1), figure("theirs", 2)

    (plot,) = plots(
        run_with(
            compared("write, 1 writer", *sides),
            compared("write, 8 writers", *sides),
            compared("write, 32 writers", *sides),
        )
    )

    assert (plot.title, plot.along) == ("write", "clients")
    assert [size for size, _ in plot.curves["theirs"]] == [1, 8, 32]


def test_two_points_and_a_name_without_a_size_are_not_drawn() -> None:
    two = [compared(f"append, {clients} clients", figure("ours", 1)) for clients in (2, 8)]
    batches = compared("writes", figure("batches of 100", 1), figure("at rest", 2))

    assert plots(run_with(*two, batches)) == []


@pytest.mark.parametrize(
    ("unit", "better"), [("messages/s", "higher"), ("µs/write", "lower"), ("ms", "lower")]
)
def test_a_plot_says_which_direction_is_better(unit: str, better: str) -> None:
    points = [Figure(f"at {size} messages", unit, [1]) for size in (1, 10, 100)]

    (plot,) = plots(run_with(compared("A write", *points)))

    assert plot.heading == f"A write: {unit}; {better} is better"


def test_the_aims_of_each_group_are_a_chart_that_says_which_direction_is_better() -> None:
    small, large = figure("small", 1), figure("large", 1)
    aimed = Comparison("A write", [small, large], [ratio(large, small, at_most=2)], part="growth")
    without = Comparison("A claim", [small, large], [ratio(large, small)], part="claims")

    (chart,) = charts(run_with(aimed, without))

    assert chart.name == "aims-as-the-log-grows.png"
    assert chart.heading == ("As the log grows: times as good as the aim; further right is better")


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
