"""What a benchmark reports: medians, ratios round by round, and an honest verdict."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from bench import __main__ as command
from bench import results
from bench.measuring import Contender, Effort, measure
from bench.printing import as_text, behind, verdict, verdicts
from bench.results import Comparison, Figure, Ratio, Run, ratio
from bench.server import Server
from tests.bench.runs import OURS, THEIRS, run_of


def test_contenders_take_turns_and_the_first_round_does_not_count() -> None:
    turns: list[str] = []

    def slice_of(name: str) -> float:
        turns.append(name)
        return float(len(turns))

    contenders = [Contender(name, partial(slice_of, name)) for name in "abc"]
    figures = measure("a, b and c", "turns", contenders, rounds=20)

    rounds = ["".join(turns[start : start + 3]) for start in range(0, 3 * 21, 3)]
    assert all(sorted(one) == ["a", "b", "c"] for one in rounds)
    assert len(set(rounds)) == 6  # each order came
    counted = [number + 1 for number, name in enumerate(turns) if name == "a" and number >= 3]
    assert figures["a"].values == counted


def test_a_figure_is_its_median_and_the_middle_half() -> None:
    figure = Figure("ours", "µs", [9.0, 1.0, 3.0, 2.0, 100.0])

    assert (figure.median, figure.middle_half) == (3.0, (2.0, 9.0))


def test_a_ratio_is_taken_round_by_round() -> None:
    found = ratio(OURS, THEIRS)

    assert (found.name, found.values, found.median) == ("ours / theirs", [2.0, 1.0, 4.0], 2.0)


@pytest.mark.parametrize(
    ("at_least", "at_most", "expected"),
    [
        (None, None, ""),
        (2.0, None, "met in 2 of 3 rounds"),
        (2.1, None, "missed in 2 of 3 rounds"),
        (None, 2.0, "met in 2 of 3 rounds"),
        (None, 0.9, "missed in 3 of 3 rounds"),
    ],
)
def test_the_verdict_is_that_of_the_median_with_the_rounds_that_agree(
    at_least: float | None, at_most: float | None, expected: str
) -> None:
    found = ratio(OURS, THEIRS, at_least=at_least, at_most=at_most)

    assert verdict(found) == expected


def test_the_summary_names_what_is_behind() -> None:
    run = run_of(ratio(OURS, THEIRS, at_least=1.5), ratio(OURS, THEIRS, at_least=3))

    assert verdicts(run) == (
        "1 of 2 aims met. Behind: writes (100 messages): ours / theirs is 2.00, aim at least 3, "
        "missed in 2 of 3 rounds."
    )


def test_what_is_behind_names_missed_aims_first_then_contenders_that_are_ahead() -> None:
    slower = Ratio("ours / bare", [0.7, 0.6, 1.1])
    met_but_slower = Ratio("ours / bare", [0.8, 0.9, 1.1], at_least=0.7)
    met = ratio(OURS, THEIRS, at_least=1.5)
    ours_too = Ratio("ours, held back / ours", [0.9, 0.9, 0.9], at_least=0.8)
    missed = ratio(OURS, THEIRS, at_least=3)

    assert behind(run_of(slower, met_but_slower, met, ours_too, missed)) == [
        "writes (100 messages): ours / theirs is 2.00, aim at least 3, missed in 2 of 3 rounds",
        "writes (100 messages): ours / bare is 0.70, no aim, behind in 2 of 3 rounds",
        "writes (100 messages): ours / bare is 0.90, aim at least 0.7, met in 3 of 3 rounds, "
        "behind in 2 of 3 rounds",
    ]


def test_a_small_loss_does_not_look_like_none() -> None:
    lost = Ratio("missed / written", [0.0048])
    comparison = Comparison("loss", [Figure("at rest", "ms", [1.25])], [lost])

    text = as_text(comparison)

    assert "0.0048" in text
    assert "1.25" in text


def test_a_table_shows_figures_ratio_aim_and_verdict() -> None:
    (comparison,) = run_of(ratio(OURS, THEIRS, at_least=1.5)).comparisons

    assert as_text(comparison) == (
        "writes\n\n"
        "          median  middle half  unit\n"
        "  ours    200     150 to 300   messages/s\n"
        "  theirs  100     100 to 100   messages/s\n\n"
        "  ratio          median  middle half   aim           verdict\n"
        "  ours / theirs  2.00    1.50 to 3.00  at least 1.5  met in 2 of 3 rounds\n"
    )


def test_a_run_comes_back_from_its_file_as_it_was(tmp_path: Path) -> None:
    run = run_of(ratio(OURS, THEIRS, at_most=3))

    run.save(tmp_path / "run.json")

    assert results.load(tmp_path / "run.json") == run


class Disk:
    """A server of which only the disk is asked."""

    def sync_ms(self) -> float:
        return 0.5


def reads(server: Server, effort: Effort) -> Iterator[Comparison]:
    yield Comparison("read one", [OURS], [])
    yield Comparison("read two", [OURS], [])


def breaks(server: Server, effort: Effort) -> Iterator[Comparison]:
    yield Comparison("broken one", [OURS], [])
    raise RuntimeError("the disk is full\nand more")


def measured(run: Run, part: str, path: Path) -> Run:
    parts = {"breaks": breaks, "reads": reads}
    return command._with_part(run, part, Disk(), path, 0.0, parts)  # type: ignore[arg-type]


def test_a_part_that_fails_loses_neither_the_others_nor_what_it_had_measured(
    tmp_path: Path,
) -> None:
    run = msgspec.structs.replace(run_of(), parts=["breaks", "reads"], done=[], comparisons=[])

    run = measured(measured(run, "breaks", tmp_path / "run.json"), "reads", tmp_path / "run.json")

    kept = results.load(tmp_path / "run.json")
    assert kept == run
    assert [one.title for one in kept.comparisons] == ["broken one", "read one", "read two"]
    assert kept.comparisons[0].sync_ms == [0.5, 0.5]
    assert (kept.failed, kept.done) == ({"breaks": "RuntimeError: the disk is full"}, ["reads"])
    assert kept.left == []


def test_a_run_that_broke_off_goes_on_with_the_parts_that_are_not_whole(tmp_path: Path) -> None:
    parts = ["breaks", "reads", "writes"]
    run = msgspec.structs.replace(run_of(), parts=parts, done=[], comparisons=[])
    run = measured(measured(run, "reads", tmp_path / "run.json"), "breaks", tmp_path / "run.json")

    resumed = command._resumed(run)

    assert resumed.left == ["breaks", "writes"]
    assert [one.title for one in resumed.comparisons] == ["read one", "read two"]
    assert len(resumed.resumed) == 1
