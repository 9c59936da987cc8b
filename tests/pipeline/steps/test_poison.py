"""Seven bad messages among many: seven in the errors queue, all others processed, in one run."""

from __future__ import annotations

import random
import time

import psycopg
import pytest
from pyspark.sql import DataFrame

from penstock.pipeline import Pipeline
from tests.pipeline.steps.running import Harness, renumbered

BAD = 7


@pytest.mark.chaos
def test_seven_among_many(
    harness: Harness, chaos_seconds: float, request: pytest.FixtureRequest
) -> None:
    count = 100_000 if chaos_seconds >= 60 else 2_000
    seed = request.config.getoption("--chaos-seed") or 1
    bad = set(random.Random(seed).sample(range(count), BAD))
    write_many(harness, count, bad)
    pipe = Pipeline("shop")
    pipe.schema("number")

    @pipe.stream(inputs="number", output="out", errors="lost")
    def parse(number: DataFrame) -> DataFrame:
        return renumbered(number, "cast(get_json_object(data, '$.text') as int)")

    started = time.monotonic()
    summary = harness.run(pipe)
    print(f"{count} messages, {BAD} bad: {time.monotonic() - started:.1f} s, seed {seed}")

    progress = summary.progress["parse"]
    assert summary.succeeded
    assert (progress.messages_in, progress.messages_out) == (count, count - BAD)
    assert progress.failed == BAD
    assert set(harness.numbers("lost")) == bad
    assert harness.numbers("out") == [n for n in range(count) if n not in bad]


def write_many(harness: Harness, count: int, bad: set[int]) -> None:
    """Write numbers, some of them as text that is none, all at once."""
    with psycopg.connect(harness.store.settings.conninfo()) as connection:
        connection.execute(
            "insert into message_store.messages (stream_name, position, type, data, id)"
            " select 'number-' || n, 0, 'Numbered', jsonb_build_object('n', n, 'text',"
            "   case when n = any (%s) then 'bad' else n::text end), gen_random_uuid()"
            " from generate_series(0, %s - 1) n",
            (list(bad), count),
        )
