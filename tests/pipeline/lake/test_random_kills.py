"""Tables of each mode while drivers, tasks and server processes are killed at random moments.

Meanwhile a reader opens the tables again and again, each with the steps that are recorded in the
same snapshot of PostgreSQL, and compares it with what these steps must have made of the messages.
So it would see a part of a step, a step twice, and a step that is in the table and not in the log.

In `make test` one driver is killed, with a few of its parts before. In `make chaos` at least 30
processes are.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import psutil
import psycopg
import pytest
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

import penstock
from penstock import Message, Store
from penstock.pipeline import Runner
from tests.forked_python import ROOT, ForkedProcess, spark_server
from tests.pipeline.lake.killed_driver import DELETES, KEYS, MODES, PARTITIONS, QUEUE, pipeline

PATIENCE = 600  # seconds, until a driver has committed a step
KILLS_PER_DRIVER = 4
LEAST_KILLS = 30

Row = tuple[Any, ...]
_STATE = """
select m.data->>'hash', m.type = 'Snapshot', m.data->'ranges'->%(queue)s,
       (select metadata_location from iceberg_tables
         where table_namespace = 'killed' and table_name = %(mode)s)
  from message_store.messages m
 where m.stream_name = 'killed:try-' || %(mode)s
 order by m.position
"""


@dataclass
class Reader:
    """Reads tables and the steps behind them, in one snapshot of the database."""

    url: str
    #: how many steps were in a table when it was read, by mode
    seen: dict[str, set[int]] = field(default_factory=lambda: {mode: set() for mode in MODES})
    wrong: list[str] = field(default_factory=list)

    def read(self, mode: str) -> int:
        """Compare a table with its steps. Return up to which position they have read."""
        with psycopg.connect(self.url) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            records = _records(connection, mode)
            steps = _committed(records)
            messages = connection.execute(
                "select global_position, (data->>'n')::bigint from message_store.messages"
                " where message_store.category(stream_name) = %s order by 1", (QUEUE,)
            ).fetchall()  # fmt: skip
        location = records[0][3] if records else None
        if location is None:
            return -1
        rows = StaticTable.from_metadata(location).scan().to_arrow().to_pylist()
        found = Counter(tuple(one.values()) for one in rows)
        expected = recomputed(mode, steps, messages)
        if found != Counter(expected):
            self.wrong.append(f"{mode} after {len(steps)} steps: {found - Counter(expected)} more,"
                              f" {Counter(expected) - found} less")  # fmt: skip
        self.seen[mode].add(len(steps))
        return steps[-1][2] if steps else -1

    def keep_reading(self, stop: Event) -> None:
        """Read each table again whenever it or what is recorded of its steps has changed."""
        last: dict[str, list[Row]] = {}
        with psycopg.connect(self.url, autocommit=True) as connection:
            while not stop.is_set():
                for mode in MODES:
                    records = _records(connection, mode)
                    if records != last.get(mode):
                        self.read(mode)
                        last[mode] = records
                stop.wait(0.05)


def _records(connection: psycopg.Connection[Any], mode: str) -> list[Row]:
    """Return what is recorded of the steps into a table, with where the table is."""
    try:
        found = connection.execute(_STATE.encode(), {"queue": QUEUE, "mode": mode}).fetchall()
    except psycopg.errors.UndefinedTable:
        connection.rollback()
        return []
    return found


def _committed(records: list[Row]) -> list[tuple[str, int, int]]:
    """Return the committed steps: hash, after which position, up to which."""
    ranges = {name: (after, until) for name, begun, (after, until), _ in _with_ranges(records)}
    done = [name for name, is_snapshot, _, _ in records if not is_snapshot]
    assert len(done) == len(set(done)), "a step was committed twice"
    return [(name, *ranges[name]) for name in done]


def _with_ranges(records: list[Row]) -> Iterator[Row]:
    return (one for one in records if one[1])


def recomputed(
    mode: str, steps: list[tuple[str, int, int]], messages: list[tuple[int, int]]
) -> list[Row]:
    """Return what a table must hold after these steps, without any code of ours."""
    groups: dict[Any, list[Row]] = {}
    for step, after, until in steps:
        rows: list[Row] = []
        for position, n in messages:
            if after < position <= until:
                kept = (n % PARTITIONS, n, step) if n % DELETES else (None, None, None)
                rows.append((n % KEYS, position, *kept))
        if mode == "append":
            groups[step] = rows
        elif mode == "upsert":
            groups |= {row[0]: [row] if row[3] is not None else [] for row in rows}
        else:
            groups |= {
                part: [row for row in rows if row[2] == part] for part in {row[2] for row in rows}
            }
    return [row for group in groups.values() for row in group]


def send(store: Store, numbers: range) -> None:
    messages = [Message("Happened", {"n": number}) for number in numbers]
    store.write_messages(f"{QUEUE}-1", messages)


@contextmanager
def driver(url: str, warehouse: str, driver_rows: int) -> Iterator[ForkedProcess]:
    """Lend a driver, and kill it with all that belongs to it."""
    arguments = (url, warehouse, str(driver_rows))
    with spark_server().start(
        *("-m", "tests.pipeline.lake.killed_driver", *arguments),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        stdout=subprocess.DEVNULL,
    ) as process:
        try:
            yield process
        finally:
            assert process.poll() is None, "the driver ended before it was killed"
            others = psutil.Process(process.pid).children(recursive=True)
            process.kill()
            for one in others:
                with suppress(psutil.NoSuchProcess):
                    one.kill()
            psutil.wait_procs(others, timeout=60)


def kill_a_server_process(url: str, chosen: random.Random) -> bool:
    """End the session of a processor, in whatever it does."""
    with psycopg.connect(url, autocommit=True) as connection:
        pids = connection.execute(
            "select pid from pg_stat_activity where datname = current_database()"
            " and pid <> pg_backend_pid() and application_name ~ 'step'"
        ).fetchall()
        if not pids:
            return False
        connection.execute("select pg_terminate_backend(%s)", chosen.choice(pids))
    return True


def kill_a_task(process: ForkedProcess, chosen: random.Random) -> bool:
    """Kill a Python process of Spark, in whatever it does."""
    servers = [one for one in psutil.Process(process.pid).children() if "java" not in one.name()]
    workers = [one for server in servers for one in server.children(recursive=True)]
    if not workers:
        return False
    with suppress(psutil.NoSuchProcess):
        chosen.choice(workers).kill()
    return True


@pytest.fixture(scope="module")
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--chaos-seed") or random.randrange(10**6))


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_a_reader_sees_whole_steps_only_and_each_of_them_once(
    database_url: str, spark: SparkSession, tmp_path: Path, seed: int, chaos_seconds: float
) -> None:
    chosen, reader, stop = random.Random(seed), Reader(database_url), Event()
    is_brief = chaos_seconds <= 5
    kills: Counter[str] = Counter()
    sent = 0

    warehouse = f"file://{tmp_path}"
    with (
        penstock.connect(database_url, warehouse=warehouse) as store,
        ThreadPoolExecutor(1) as thread,
    ):
        reading = thread.submit(reader.keep_reading, stop)
        try:
            while not kills or (not is_brief and kills.total() < LEAST_KILLS):
                with driver(database_url, warehouse, chosen.choice([0, 10_000])) as process:
                    for _ in range(1 + chosen.randrange(KILLS_PER_DRIVER)):
                        send(store, range(sent, sent := sent + 60))
                        _wait_for_a_step(reader, process)
                        time.sleep(chosen.uniform(0, 1.5))
                        if chosen.random() < 0.7:
                            kills["server process"] += kill_a_server_process(database_url, chosen)
                        else:
                            kills["task"] += kill_a_task(process, chosen)
                    send(store, range(sent, sent := sent + 60))
                    time.sleep(chosen.uniform(0, 3))
                kills["driver"] += 1
            Runner(pipeline(), store, spark).run_until_idle(wait=True)
        finally:
            stop.set()
        reading.result()
        end = max(one.global_position for one in store.read_category(QUEUE))

    assert {reader.read(mode) for mode in MODES} == {end}
    steps = {mode: len(seen) for mode, seen in reader.seen.items()}
    print(f"seed {seed}: killed {dict(kills)}; read after so many numbers of steps: {steps}")
    assert reader.wrong == [], f"seed {seed}"
    assert min(steps.values()) > 1


def _wait_for_a_step(reader: Reader, process: ForkedProcess) -> None:
    """Return once a driver has committed another step."""
    before = {mode: reader.read(mode) for mode in MODES}
    deadline = time.monotonic() + PATIENCE
    with psycopg.connect(reader.url, autocommit=True) as connection:
        while all(_read_up_to(connection, mode) == before[mode] for mode in MODES):
            assert process.poll() is None, "the driver ended before it was killed"
            assert time.monotonic() < deadline, "the driver commits nothing"
            time.sleep(0.05)


def _read_up_to(connection: psycopg.Connection[Any], mode: str) -> int:
    """Return up to which position the committed steps into a table have read."""
    steps = _committed(_records(connection, mode))
    return steps[-1][2] if steps else -1
