"""A start from scratch that is requested in the log: a run does it, once, or says why not."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import psycopg
import pytest
from pyspark.sql import DataFrame

from penstock.admin import restarts
from penstock.admin.processors import PROCESSOR
from penstock.admin.restarts import RestartRequest, last_request, request_stream
from penstock.pipeline import Pipeline
from penstock.pipeline.connection import try_lock
from penstock.pipeline.restart import restart
from tests.pipeline.steps.accounts import balances, counting, write_events
from tests.pipeline.steps.following import Follow
from tests.pipeline.steps.following import follow as follow  # a fixture
from tests.pipeline.steps.running import Harness, numbered, renumbered
from tests.spark.faults.waiting import wait_until, wait_until_blocked

GENERATIONS = "select processor, generation from penstock.processors order by 1"
RESTARTED = "select bool_and(generation = 1) from penstock.processors"

#: that a run has found the request: it asks for nothing else before the steps have ended
NOTICED = """
select a.query ~ 'l.type = ' and a.query_start > m.time at time zone 'UTC'
from pg_stat_activity a, message_store.messages m
where a.application_name ~ '^penstock run shop' and a.datname = current_database()
  and m.stream_name = 'shop:restart-requests'"""

#: that a run wants to begin again
WAITS = """
select count(*) > 0 from pg_stat_activity
where application_name ~ '^penstock step shop on ' and datname = current_database()"""


def doubling(calls: list[list[int]] | None = None) -> Pipeline:
    """Return a pipeline that doubles numbers, and then adds one to each."""
    pipe = Pipeline("shop")
    pipe.schema("number")

    @pipe.stream(inputs="number", output="double")
    def double(number: DataFrame) -> DataFrame:
        if calls is not None:
            calls.append([row.n for row in numbered(number).collect()])
        return renumbered(numbered(number), "n * 2")

    @pipe.stream(inputs="double", output="odd")
    def add(double: DataFrame) -> DataFrame:
        return renumbered(numbered(double), "n + 1")

    return pipe


def request(harness: Harness, pipeline: str = "shop") -> None:
    data = {"requested_by": "ada"}
    harness.store.write_message(request_stream(pipeline), restarts.REQUESTED, data)


def answer(harness: Harness, pipeline: str = "shop") -> RestartRequest:
    found = harness.store.run(last_request(pipeline))
    assert found is not None
    return found


def test_the_next_run_does_it_once_before_its_first_step(harness: Harness) -> None:
    pipe = doubling()
    harness.write("number", 1, 2)
    harness.run(pipe)
    request(harness)
    before = answer(harness)

    harness.run(pipe)
    harness.run(pipe)

    assert (before.state, before.requested_by) == ("open", "ada")
    assert (answer(harness).state, answer(harness).requested_by) == ("done", "ada")
    assert harness.numbers("odd") == [3, 5, 3, 5]
    assert harness.rows(GENERATIONS) == [("add", 1), ("double", 1)]


def test_a_table_is_rebuilt_by_it(harness: Harness) -> None:
    write_events(harness.store, "account", [(1, "Changed", 5), (1, "Changed", 6)])
    harness.run(counting())
    harness.execute("update accounts set balance = 77")
    request(harness)

    harness.run(counting())

    assert balances(harness) == [("account-1", 2)]


def test_a_run_that_follows_does_it_between_two_steps_and_goes_on(
    harness: Harness, database_url: str, follow: Follow
) -> None:
    pipe = doubling()
    harness.write("number", 1, 2)
    harness.run(pipe)
    following = follow(pipe)

    request(harness)
    wait_until(database_url, RESTARTED)
    wait_for_odds(database_url, 4)
    harness.write("number", 3)
    wait_for_odds(database_url, 5)

    assert following.stop().progress["add"].messages_in == 3  # of both rounds
    assert harness.numbers("odd") == [3, 5, 3, 5, 7]
    assert answer(harness).state == "done"


def test_the_step_under_way_is_finished_first(
    harness: Harness, database_url: str, follow: Follow
) -> None:
    begun, may_end, calls = Event(), Event(), list[list[int]]()
    pipe = Pipeline("shop")
    pipe.schema("number")

    @pipe.stream(inputs="number", output="odd")
    def add(number: DataFrame) -> DataFrame:
        calls.append([row.n for row in numbered(number).collect()])
        begun.set()
        may_end.wait(60)
        return renumbered(numbered(number), "n + 1")

    harness.write("number", 1)
    following = follow(pipe)
    assert begun.wait(60)
    request(harness)
    wait_until(database_url, NOTICED)
    during = harness.rows(GENERATIONS)
    may_end.set()
    wait_for_odds(database_url, 2)

    following.stop()
    assert during == [("add", 0)]
    assert calls == [[1], [1]]
    assert harness.numbers("odd") == [2, 2]
    assert harness.rows(GENERATIONS) == [("add", 1)]


def test_a_run_that_is_stopped_before_it_can_leaves_the_request_open(
    harness: Harness, database_url: str, follow: Follow
) -> None:
    pipe = doubling()
    harness.write("number", 1)
    harness.run(pipe)
    request(harness)
    step = harness.context(pipe).connection  # of another run, not finished yet
    assert step.run(try_lock(PROCESSOR, "shop.double"))

    following = follow(pipe)
    wait_until(database_url, WAITS)
    following.stop()

    assert answer(harness).state == "open"
    assert harness.rows(GENERATIONS) == [("add", 0), ("double", 0)]


def test_one_that_cannot_be_done_is_refused_and_the_run_goes_on(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    pipe = doubling()
    harness.write("number", 1)
    harness.run(pipe)
    harness.write("double", 10)  # not of this pipeline: it would be skipped
    request(harness)

    harness.run(pipe)

    refused = answer(harness)
    assert refused.state == "refused"
    assert refused.reason is not None
    assert "add cannot begin again: double has messages of this pipeline" in refused.reason
    assert any("shop does not begin from scratch" in one for one in caplog.messages)
    assert harness.numbers("odd") == [3, 11]
    assert harness.rows(GENERATIONS) == [("add", 0), ("double", 0)]


def test_one_that_is_withdrawn_has_no_effect(harness: Harness) -> None:
    pipe = doubling()
    harness.write("number", 1)
    harness.run(pipe)
    request(harness)
    withdrawn = harness.store.run(restarts.answer("shop", restarts.WITHDRAWN))

    harness.run(pipe)

    assert withdrawn
    assert not harness.store.run(restarts.answer("shop", restarts.WITHDRAWN))
    assert answer(harness).state == "withdrawn"
    assert harness.rows(GENERATIONS) == [("add", 0), ("double", 0)]


def test_one_that_is_withdrawn_while_a_run_begins_it_is_not_done(
    harness: Harness, database_url: str
) -> None:
    pipe = doubling()
    harness.write("number", 1)
    harness.run(pipe)
    request(harness)
    withdraw = (
        "select message_store.write_message(gen_random_uuid()::varchar, %s, %s, '{}', null, 0)"
    )

    with psycopg.connect(database_url) as other, ThreadPoolExecutor(1) as thread:
        other.execute(withdraw, (request_stream("shop"), restarts.WITHDRAWN))
        running = thread.submit(harness.run, pipe)  # it finds the request
        wait_until_blocked(database_url, 1, running)
        other.commit()
        running.result()

    assert answer(harness).state == "withdrawn"
    assert harness.rows(GENERATIONS) == [("add", 0), ("double", 0)]


def test_a_start_from_scratch_on_the_command_line_answers_it_too(harness: Harness) -> None:
    pipe = doubling()
    harness.write("number", 1)
    harness.run(pipe)
    request(harness)
    runner = harness.runner(pipe)

    runner.from_scratch()
    runner.run_until_idle()

    assert answer(harness).state == "done"
    assert harness.rows(GENERATIONS) == [("add", 1), ("double", 1)]


def test_a_run_that_ends_amid_it_has_done_nothing(harness: Harness) -> None:
    pipe = doubling()
    harness.write("number", 1)
    harness.run(pipe)
    request(harness)
    connection = harness.context(pipe).connection

    def end_amid_it() -> None:
        with connection.raw.transaction():
            restart(connection, pipe)
            connection.raw.execute("select pg_terminate_backend(pg_backend_pid())")

    with pytest.raises(psycopg.OperationalError):
        end_amid_it()

    assert answer(harness).state == "open"
    assert harness.rows(GENERATIONS) == [("add", 0), ("double", 0)]


def test_another_pipeline_is_left_alone(harness: Harness) -> None:
    harness.write("number", 1)
    harness.run(doubling())
    request(harness, "other")

    harness.run(doubling())

    assert answer(harness, "other").state == "open"
    assert harness.rows(GENERATIONS) == [("add", 0), ("double", 0)]


def wait_for_odds(url: str, count: int) -> None:
    sql = "select count(*) >= %s from message_store.messages where stream_name ~ '^odd(-|$)'"
    wait_until(url, sql, (count,))
