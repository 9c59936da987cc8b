"""`penstock run` as a process: what it says, how it ends, and that there is one at a time."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from penstock import Store
from penstock.pipeline.connections import Place
from penstock.pipeline.run_lock import lock_run
from tests.cli.conftest import Start, run
from tests.cli.conftest import start as start  # a fixture
from tests.pipeline.faults.waiting import wait_until, wait_until_blocked

MASTER = ("--master", "local[1]")
ASKING = "penstock run shop on %"
GATE = 77
SECONDS = 250  # for a process to end

FILE = """
import os
import psycopg
from penstock.pipeline import Pipeline

pipe = Pipeline("shop")
pipe.queue("order", "n int")

@pipe.stream(inputs="order", output="bill", limit=1)
def bill(order):
    with psycopg.connect(os.environ["PENSTOCK_URL"]) as gate:
        gate.execute("select pg_advisory_xact_lock(77)")
    return order.selectExpr("id", "global_position", "'Billed' as type", "data")

@pipe.sink(inputs="order", types=["Odd"])
def refuse(order):
    raise RuntimeError("odd")
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "shop.py"
    path.write_text(FILE)
    return str(path)


@pytest.fixture
def gate(database_url: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """A gate in the way of `bill`, which opens when the connection is closed."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("select pg_advisory_lock(%s)", (GATE,))
        yield connection


def bills(store: Store) -> list[int]:
    return [one.data["n"] for one in store.read_category("bill")]


def test_waiting_for_another_run_and_told_to_end_it_finishes_the_step_in_hand(
    start: Start, store: Store, file: str, gate: psycopg.Connection[tuple[object, ...]]
) -> None:
    url = store.settings.conninfo()
    for number in (1, 2):
        store.write_message("order-1", "Placed", {"n": number})
    lock = lock_run(Place(store.settings), "shop")
    process = start("run", file, "--follow", "--wait", *MASTER, url=url)
    wait_until(url, "select count(*) = 2 from pg_stat_activity where application_name like %s",
               (ASKING,))  # fmt: skip
    before = bills(store)
    lock.release()
    wait_until_blocked(url, 1)

    process.send_signal(signal.SIGTERM)
    gate.close()

    output, errors = process.communicate(timeout=SECONDS)
    assert (before, bills(store)) == ([], [1])
    assert process.returncode == 0
    lines = [line.split() for line in output.splitlines()]
    assert lines[1][:5] == ["bill", "1", "1", "1", "0"]
    assert "bill: 1 in, 1 out, " in errors
    assert "shop: done, " in errors


def test_while_another_one_runs_it_is_refused_and_told_who(
    start: Start, store: Store, file: str
) -> None:
    lock = lock_run(Place(store.settings), "shop")

    process = start("run", file, *MASTER, url=store.settings.conninfo())

    output, errors = process.communicate(timeout=SECONDS)
    lock.release()
    assert (process.returncode, output) == (1, "")
    assert "penstock: pipeline shop runs already (penstock run shop on " in errors
    assert "wait for it with --wait" in errors


def test_an_error_is_told_and_the_others_go_on(start: Start, store: Store, file: str) -> None:
    url = store.settings.conninfo()
    store.write_message("order-1", "Odd", {"n": 1})

    process = start("run", file, "--from-scratch", *MASTER, url=url)

    output, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 1
    assert bills(store) == [1]
    refused = next(line for line in output.splitlines() if line.startswith("refuse"))
    assert "processor refuse (shop.py:15) failed: RuntimeError: odd" in refused
    assert "shop: stopped by an error; the next run goes on from here" in errors
    shown = json.loads(run("pipelines", "--json", url=url).stdout)
    assert [(one["processor"], one["generation"], one["error"]) for one in shown] == [
        ("bill", 1, None),
        ("refuse", 1, "RuntimeError: odd"),
    ]


def test_a_file_without_a_pipeline_is_refused_before_anything_starts(tmp_path: Path) -> None:
    file = tmp_path / "empty.py"
    file.write_text("")

    result = run("run", str(file), url="postgresql://127.0.0.1:1/nowhere")

    assert result.exit_code == 1
    assert result.stderr == (
        f"penstock: {file}: there is no pipeline in it: define pipe = Pipeline(name)\n"
    )
