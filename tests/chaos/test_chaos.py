"""Everything at once, through many faults: nothing is lost, doubled, disordered or miscounted.

Short in `make test`. With a minute or more, as in `make chaos`, a pipeline on Spark runs as well.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.chaos import report
from tests.chaos.run import ACTORS, run
from tests.chaos.server import Server
from tests.servers import copy_data, own_folder

LONG = 60  # seconds


@pytest.fixture
def server() -> Iterator[Server]:
    with own_folder() as folder:
        copy_data(folder)
        server = Server(folder)
        yield server
        server.stop()


@pytest.mark.chaos
def test_faults_break_no_promise(
    server: Server,
    tmp_path: Path,
    chaos_seconds: float,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = request.config.getoption("--chaos-seed")
    seed = random.randrange(10**6) if given is None else given
    is_long = chaos_seconds >= LONG

    def log(text: str) -> None:
        if not is_long:
            print(text)  # shown if the test fails
            return
        with capsys.disabled():
            print(text)

    log(f"\n--chaos-seed={seed}")
    began = datetime.now(UTC)
    actors = [*ACTORS, "pipeline-0"] if is_long else ACTORS
    outcome = run(server, tmp_path, seed=seed, seconds=chaos_seconds, actors=actors, log=log)
    log(outcome.table())
    if request.config.getoption("--chaos-report"):
        report.write(report.report(outcome, began=began, seed=seed, seconds=chaos_seconds))

    assert outcome.complaints == [], f"repeat with --chaos-seed={seed}"
