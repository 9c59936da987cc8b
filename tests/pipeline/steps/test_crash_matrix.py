"""A driver killed at any point of any step: after a restart all is as if it had not been.

The points are statements on the wire, so nothing of the code that is tested is replaced; see
`counted_wire` and `matrix`. In `make test` one driver is killed, with a pipeline at a point of each
kind, in both shapes of a step. In `make chaos` as many points as there is time for, in
`make crash-matrix` all of them.
"""

from __future__ import annotations

import platform
import random
import time
from datetime import UTC, datetime

import psycopg
import pytest
from pyspark.sql import SparkSession

from tests.conftest import Server
from tests.pipeline.steps import crash_report
from tests.pipeline.steps.counted_wire import READS, name_of
from tests.pipeline.steps.crash_report import Report, by_kind, by_pipeline
from tests.pipeline.steps.matrix import (
    CASES,
    KINDS,
    STEPS,
    Case,
    Kill,
    Matrix,
    in_rounds,
)

#: pipelines that pass points of every kind
VARIED = (
    *("one_input", "error_column", "sink_with_upsert", "projection"),
    *("table_append", "table_upsert", "table_overwrite"),
)
EACH_KIND = {(step, kind) for step in STEPS for kind in KINDS}


@pytest.fixture(scope="module")
def matrix(server: Server, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    return Matrix(server, spark, tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--chaos-seed") or random.randrange(10**6))


@pytest.fixture(scope="module")
def report() -> Report:
    """The run of the whole matrix that the repository keeps."""
    return crash_report.load()


@pytest.mark.chaos
@pytest.mark.timeout(900)  # it starts a driver of its own, and runs every pipeline twice
def test_killed_at_a_point_of_each_kind_and_at_all_that_there_is_time_for(
    matrix: Matrix, seed: int, chaos_seconds: float, request: pytest.FixtureRequest
) -> None:
    whole = request.config.getoption("--crash-report")
    began, started = datetime.now(UTC), time.monotonic()
    killed: list[Kill] = []
    wrong: list[str] = []

    for drivers, kills in enumerate(in_rounds(matrix, VARIED, seed), start=1):
        wrong += matrix.killed(kills)
        killed += kills
        print(f"killed at {len(killed)} points, seed {seed}: {len(wrong)} wrong")
        if whole:  # also what a run found that is ended before its end
            crash_report.save(
                Report(
                    began, round(time.monotonic() - started, 1), seed, platform.python_version(),
                    _postgresql(matrix.server), drivers,
                    by_pipeline(matrix.all_kills(CASES)), by_kind(killed), wrong,
                )
            )  # fmt: skip
        elif time.monotonic() > started + chaos_seconds:
            break

    assert {(kill.case.step, kill.kind) for kill in killed} == EACH_KIND
    if whole:
        assert sorted(killed) == sorted(matrix.all_kills(CASES))
    assert wrong == [], f"seed {seed}"


def test_the_run_that_is_kept_covered_every_point_of_every_pipeline(report: Report) -> None:
    points = {step: sum(found.values()) for step, found in report.points.items()}
    killed = {step: sum(found.values()) for step, found in report.killed.items()}

    assert report.wrong == []
    assert killed == points
    assert {Case(step, name) for step in STEPS for name in report.points[step]} == set(CASES)
    assert {(step, kind) for step in STEPS for kind in report.killed[step]} == EACH_KIND


def test_the_page_says_what_the_run_found(report: Report) -> None:
    text = crash_report.PAGE.read_text(encoding="utf-8")

    assert "<!-- crash matrix -->" in text
    assert crash_report.filled(text, report) == text


def test_functions_that_are_no_points_write_nothing(database_url: str) -> None:
    calls = (
        "select penstock.archive_mark('a', 0, 9)",
        "select penstock.archived_to('a')",
        "select penstock.category_head('a')",
        "select penstock.messages_to_read('{p}', '{a}', '{0}', '{1}')",
        "select penstock.missed('a', 0, 9)",
        "select penstock.watermark()",
        "select message_store.category('a-1')",
        "select message_store.message_store_version()",
    )
    read_only = "-c default_transaction_read_only=on"

    with psycopg.connect(database_url, options=read_only, autocommit=True) as connection:
        for call in calls:
            connection.execute(call)  # it raises if it writes

    ours = {name for name in READS if name.startswith(("penstock.", "message_store."))}
    assert {name_of(call) for call in calls} == ours


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("select * from penstock.commit_step($1, $2)", "penstock.commit_step"),
        ("copy penstock.staged (token, type) from stdin", "copy penstock.staged"),
        ('create table if not exists "totals" ("n" int)', "create totals"),
        ('drop table if exists pg_temp."a"; create temp table "a"', "drop pg_temp.a"),
        ("update penstock.processor_progress p set n = 1", "update penstock.processor_progress"),
        ("insert into penstock.stagings (token) values ($1)", "insert penstock.stagings"),
        ("select a from iceberg_tables where n = $1 for update", "lock iceberg_tables"),
        ("COMMIT", "commit"),
        ("set timezone = 'UTC'", "set timezone"),
        ("vacuum full", "vacuum full"),
    ],
)
def test_a_statement_is_named_by_what_it_does(statement: str, name: str) -> None:
    assert name_of(statement) == name


def _postgresql(server: Server) -> str:
    with psycopg.connect(server.url("postgres")) as connection:
        return str(connection.info.server_version // 10_000)
