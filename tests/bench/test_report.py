"""The page of the benchmarks: what it says of a run, and that it is the page of the run kept."""

from __future__ import annotations

import re
import struct
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench import report, results
from bench.comparisons import COMPARISONS
from bench.plots import charts
from bench.results import Comparison, Figure, ratio
from bench.server import REASONS, running
from tests.bench.runs import OURS, THEIRS, run_of, run_with
from tests.bench.test_plots import has_matplotlib

PHONE = 390  # pixels


def sized(messages: int, *values: float) -> Figure:
    return Figure(f"at {messages} messages", "µs", list(values))


def test_the_page_is_the_one_that_its_data_make() -> None:
    written = (report.DOCS / "benchmarks.md").read_text(encoding="utf-8")

    assert written == report.current_page()


def test_the_page_has_exactly_the_charts_that_its_data_make() -> None:
    data = report.DOCS / report.DATA
    drawn = {path.name for path in (report.DOCS / "images").glob("benchmarks-*.png")}

    expected = (
        {f"benchmarks-{one.name}" for one in charts(results.load(data))} if data.exists() else set()
    )

    assert drawn == expected


def test_the_page_begins_with_where_it_was_measured_and_where_we_are_behind() -> None:
    page = report.page(run_of(ratio(OURS, THEIRS, at_least=3)))

    top, _, rest = page.partition("## How it is measured")
    assert "0 of 1 aims met." in top
    assert "one run of `make bench`, on 02 January 2026, 14:45 UTC;" in top
    assert "It took 30 minutes." in top
    assert "- **Machine:** processors 2." in top
    assert "took 0.07 to 0.25 ms" in top
    assert "autovacuum is on." in top
    assert (
        "## Where Penstock is behind\n\n- writes (100 messages): ours / theirs is 2.00, "
        "aim at least 3, missed in 2 of 3 rounds\n"
    ) in top
    assert "*100 messages; 3 rounds; one fdatasync 0.07 to 0.25 ms.*" in rest
    assert (
        "| ours / theirs | 2.00 | 1.50 to 3.00 | at least 3 | missed in 2 of 3 rounds |"
    ) in rest
    assert "| `max_wal_size` | 16GB | 1024 MB | No checkpoint in a slice. |" in rest


def test_the_page_says_what_failed_and_when_a_run_went_on() -> None:
    run = msgspec.structs.replace(
        run_of(),
        failed={"spark": "RuntimeError: no Java"},
        resumed=[datetime(2026, 1, 2, 15, 10, tzinfo=UTC)],
    )

    page = report.page(run)

    assert "It broke off and went on at 15:10 UTC." in page
    assert "**Not measured**, since it failed: spark (RuntimeError: no Java)." in page


def test_parts_of_a_later_run_take_the_place_of_the_same_ones() -> None:
    run = run_of()
    part = run.comparisons[0].part
    newer = msgspec.structs.replace(
        run,
        began=datetime(2026, 1, 3, 8, 30, tzinfo=UTC),
        parts=[part, "spark"],
        done=[part],
        comparisons=[msgspec.structs.replace(run.comparisons[0], title="Measured again")],
    )

    both = run.with_parts_of(newer)

    assert [one.title for one in both.comparisons if one.part == part] == ["Measured again"]
    assert len(both.comparisons) == 1 + sum(one.part != part for one in run.comparisons)
    assert f"A later run, on 03 January 2026, 08:30 UTC, has measured {part}." in report.page(both)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"quick": True}, "a quick run"),
        ({"done": [part for part in COMPARISONS if part != "spark"]}, "not measured yet: spark"),
    ],
)
def test_a_run_that_is_not_full_has_no_page_and_leaves_the_one_before(
    tmp_path: Path, changed: dict[str, Any], why: str
) -> None:
    msgspec.structs.replace(run_of(), **changed).save(tmp_path / "run.json")
    (tmp_path / "benchmarks.md").write_text("the one before")

    with pytest.raises(SystemExit, match=why):
        report.write(tmp_path / "run.json", tmp_path)

    assert (tmp_path / "benchmarks.md").read_text() == "the one before"
    assert not (tmp_path / report.DATA).exists()


def test_the_newest_full_run_is_reported(tmp_path: Path) -> None:
    run = run_of()
    run.save(results.file_of(run.began, "part", tmp_path))
    run.save(results.file_of(run.began, "quick", tmp_path))

    with pytest.raises(SystemExit, match="no full run"):
        results.newest(tmp_path)

    run.save(results.file_of(run.began, "full", tmp_path))
    assert results.newest(tmp_path).name == "2026-01-02T14-45-00-full.json"


@pytest.mark.skipif(not has_matplotlib(), reason="no bench/.venv: `make bench` makes it")
def test_the_page_comes_with_its_data_and_with_charts_that_fit_a_phone(tmp_path: Path) -> None:
    grown = [sized(1, 1, 2), sized(10, 2, 3), sized(100, 2, 2)]
    ratios = [ratio(grown[1], grown[0], at_most=2)]
    run = run_with(Comparison("A write, as $all grows", grown, ratios, part="growth"))
    run.save(tmp_path / "run.json")
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "benchmarks-old.png").touch()

    page = report.write(tmp_path / "run.json", tmp_path)

    text = page.read_text(encoding="utf-8")
    assert text == report.current_page(tmp_path)
    assert results.load(tmp_path / report.DATA) == run
    shown = set(re.findall(r"\(images/(.+?)\)", text))
    assert shown == {path.name for path in (tmp_path / "images").iterdir()}
    assert len(shown) == 2
    for name in shown:
        width, height = struct.unpack(">II", (tmp_path / "images" / name).read_bytes()[16:24])
        assert (width, height <= 1250) == (2 * PHONE, True), name


def test_every_setting_that_differs_from_the_default_has_a_reason() -> None:
    with running() as server:
        settings = {one.name: one for one in server.settings()}

    different = {name for name, one in settings.items() if one.value != one.default}
    assert different == {name for name, one in settings.items() if one.reason} == set(REASONS)
    assert settings["autovacuum"].value == settings["fsync"].value == "on"
    assert settings["shared_buffers"].value == "128MB"
