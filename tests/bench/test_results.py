"""What a benchmark reports: medians, ratios round by round, and an honest verdict."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec
import pytest

from bench import report, results
from bench.measuring import Contender, measure
from bench.printing import as_text, behind, verdicts
from bench.results import Comparison, Figure, Ratio, Run, ratio

OURS = Figure("ours", "messages/s", [200.0, 100.0, 400.0])
THEIRS = Figure("theirs", "messages/s", [100.0, 100.0, 100.0])


def run_of(*ratios: Ratio, title: str = "writes") -> Run:
    compared = Comparison(title, [OURS, THEIRS], list(ratios), ["One writer."])
    settings = {"fsync": "on"}
    return Run(datetime(2026, 1, 2, tzinfo=UTC), True, 12.5, {"cores": "2"}, settings, [compared])


def later(run: Run) -> Run:
    began = datetime(2026, 1, 3, tzinfo=UTC)
    return msgspec.structs.replace(run, began=began, machine={"cores": "4"})


def test_contenders_take_turns_and_the_first_round_does_not_count() -> None:
    turns: list[str] = []

    def slice_of(name: str) -> float:
        turns.append(name)
        return float(len(turns))

    contenders = [Contender(name, partial(slice_of, name)) for name in "ab"]
    figures = measure("a and b", "turns", contenders, rounds=3)

    assert "".join(turns) == "baabbaab"
    assert figures["a"].values == [3.0, 6.0, 7.0]


def test_a_figure_is_its_median_and_the_middle_half() -> None:
    figure = Figure("ours", "µs", [9.0, 1.0, 3.0, 2.0, 100.0])

    assert (figure.median, figure.middle_half) == (3.0, (2.0, 9.0))


def test_a_ratio_is_taken_round_by_round() -> None:
    found = ratio(OURS, THEIRS)

    assert (found.name, found.values, found.median) == ("ours / theirs", [2.0, 1.0, 4.0], 2.0)


@pytest.mark.parametrize(
    ("at_least", "at_most", "verdict"),
    [
        (None, None, ""),
        (2.0, None, "met"),
        (2.1, None, "behind"),
        (None, 2.0, "met"),
        (None, 1.9, "behind"),
    ],
)
def test_the_verdict_is_that_of_the_median(
    at_least: float | None, at_most: float | None, verdict: str
) -> None:
    found = ratio(OURS, THEIRS, at_least=at_least, at_most=at_most)

    assert found.verdict == verdict


def test_the_summary_names_what_is_behind() -> None:
    run = run_of(ratio(OURS, THEIRS, at_least=1.5), ratio(OURS, THEIRS, at_least=3))

    assert verdicts(run) == (
        "1 of 2 aims met. Behind: writes: ours / theirs is 2.00, aim at least 3."
    )


def test_what_is_behind_names_missed_aims_and_contenders_that_are_ahead() -> None:
    missed = ratio(OURS, THEIRS, at_least=3)
    slower = Ratio("ours / bare", [0.7])
    met = ratio(OURS, THEIRS, at_least=1.5)

    assert behind(run_of(missed, slower, met)) == [
        "writes: ours / theirs is 2.00, aim at least 3",
        "writes: ours / bare is 0.70",
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
        "  ours / theirs  2.00    1.50 to 3.00  at least 1.5  met\n"
    )


def test_the_page_says_what_was_measured_where_and_how_it_ended() -> None:
    page = report.page(run_of(ratio(OURS, THEIRS, at_least=3)))

    assert "began on 02 January 2026, in its quick form" in page
    assert "0 of 1 aims met." in page
    assert "## Where Penstock is behind\n\n- writes: ours / theirs is 2.00, aim at least 3" in page
    assert "| ours / theirs | 2.00 | 1.50 to 3.00 | at least 3 | behind |" in page
    assert "| fsync | on |" in page


def test_the_page_shows_its_charts() -> None:
    charts = ["benchmarks-aims.png", "benchmarks-by-clients-1.png", "benchmarks-by-messages-2.png"]

    page = report.page(run_of(), charts)

    assert "![Aims](images/benchmarks-aims.png)\n\n![By clients](images/benchmarks-by-cl" in page
    assert "-1.png)\n![By messages](images/benchmarks-by-messages-2.png)\n\n" in page


def test_a_run_comes_back_from_json_as_it_was() -> None:
    run = run_of(ratio(OURS, THEIRS, at_most=3))

    assert msgspec.json.decode(msgspec.json.encode(run), type=Run) == run


def test_runs_of_a_part_each_are_joined_into_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    early, late = run_of(ratio(OURS, THEIRS)), later(run_of(ratio(THEIRS, OURS), title="reads"))

    run = results.load(results.joined([early.save(whole=False), late.save(whole=False)]))

    assert [one.title for one in run.comparisons] == ["writes", "reads"]
    assert (run.began, run.seconds, run.machine) == (early.began, 25.0, {"cores": "2, 4"})


def test_what_was_measured_again_replaces_what_was_measured_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    early, late = run_of(ratio(OURS, THEIRS)), later(run_of(ratio(THEIRS, OURS)))

    run = results.load(results.joined([early.save(whole=False), late.save(whole=False)]))

    assert [one.ratios[0].name for one in run.comparisons] == ["theirs / ours"]
