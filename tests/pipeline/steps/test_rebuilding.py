"""From scratch, a second table grows beside the live one and then takes its place."""

from __future__ import annotations

from threading import Thread
from time import monotonic, sleep

import psycopg
import pytest
from pyspark.sql import DataFrame

from penstock import RecordedMessage
from penstock.pipeline import Pipeline, Runner, StepReport
from penstock.pipeline.restart import restart
from tests.pipeline.steps.accounts import State, accounts, balances, counting, write_events
from tests.pipeline.steps.running import Harness, numbered, numbers_in, renumbered
from tests.racing import wait_until_blocked


def fed_by_a_stream(*, type: str = "Numbered", stops_at: int | None = None) -> Pipeline:
    """Return a pipeline whose stream opens an account for each number of a type, in small steps."""
    pipe = Pipeline("shop")
    pipe.schema("number")

    @pipe.stream(inputs="number", output="account", types=[type], limit=1)
    def open_account(number: DataFrame) -> DataFrame:
        if stops_at in numbers_in(number):
            raise ValueError("no further")
        return renumbered(numbered(number))

    @pipe.project("account", into="accounts", columns="balance int")
    def count(state: State | None, message: RecordedMessage) -> State:
        return {"balance": (state["balance"] if state else 0) + 1}

    return pipe


def stop_when_rebuilt(harness: Harness, pipe: Pipeline, runner: Runner) -> None:
    deadline = monotonic() + 60
    while harness.status(pipe, "count").rebuilding and monotonic() < deadline:
        sleep(0.05)
    runner.stop()


class TestRebuilding:
    """From scratch, a second table grows beside the live one and then takes its place."""

    @staticmethod
    def rebuild(harness: Harness, pipe: Pipeline) -> None:
        restart(harness.context(pipe).connection, pipe)

    def test_readers_see_the_old_table_until_the_new_one_has_caught_up(
        self, harness: Harness
    ) -> None:
        write_events(harness.store, "account", [(n, "Changed", n) for n in (1, 2, 3)])
        harness.steps(accounts("shop", "account", "accounts"))
        before = balances(harness)
        pipe, seen = accounts("shop", "account", "accounts", limit=2), []
        self.rebuild(harness, pipe)

        while harness.step(pipe):
            seen.append((harness.status(pipe).rebuilding, balances(harness)))

        assert seen == [(True, before), (False, before)]
        assert harness.rows("select to_regclass('accounts__next') is null") == [(True,)]

    def test_a_changed_fold_takes_the_place_of_the_old_one(self, harness: Harness) -> None:
        write_events(harness.store, "account", [(1, "Changed", 5), (1, "Changed", 6)])
        harness.steps(accounts("shop", "account", "accounts"))
        pipe = counting()
        self.rebuild(harness, pipe)

        harness.steps(pipe)
        write_events(harness.store, "account", [(2, "Changed", 7)])
        harness.steps(pipe)

        assert harness.rows("select * from accounts order by 1") == [
            ("account-1", 2, 1),
            ("account-2", 1, 0),
        ]

    def test_events_that_come_meanwhile_do_not_put_it_off(self, harness: Harness) -> None:
        pipe = Pipeline("shop")
        pipe.schema("account")

        @pipe.project("account", into="accounts", columns="balance int")
        def count(state: State | None, message: RecordedMessage) -> State:
            harness.store.write_message("account-1", "Changed")  # while it is folded
            return {"balance": (state["balance"] if state else 0) + 1}

        harness.store.write_message("account-1", "Changed")
        harness.step(pipe)
        self.rebuild(harness, pipe)

        harness.step(pipe)

        assert not harness.status(pipe).rebuilding
        assert balances(harness) == [("account-1", 2)]

    def test_nor_do_they_in_a_run_that_reads_no_further(self, harness: Harness) -> None:
        pipe, calls = Pipeline("shop"), []
        pipe.schema("account")

        @pipe.project("account", into="accounts", columns="balance int", limit=1)
        def count(state: State | None, message: RecordedMessage) -> State:
            calls.append(harness.store.write_message("account-1", "Changed"))
            return {"balance": (state["balance"] if state else 0) + 1}

        harness.store.write_message("account-1", "Changed")
        harness.run(pipe)
        runner = Runner(pipe, harness.store, harness.spark)
        runner.from_scratch()

        runner.run_until_idle()

        assert not harness.status(pipe, "count").rebuilding
        assert balances(harness) == [("account-1", 2)]
        assert len(calls) == 3

    def test_events_that_it_does_not_take_do_not_put_it_off_either(self, harness: Harness) -> None:
        pipe = counting(types=("Changed",), limit=1)
        write_events(harness.store, "account", [(1, "Changed", 5), (1, "Closed", 0)])
        harness.steps(pipe)
        self.rebuild(harness, pipe)

        harness.steps(pipe)

        assert not harness.status(pipe).rebuilding
        assert balances(harness) == [("account-1", 1)]

    def test_to_begin_again_while_rebuilding_forgets_what_was_rebuilt(
        self, harness: Harness
    ) -> None:
        pipe = counting(limit=1)
        write_events(harness.store, "account", [(1, "Changed", 5), (1, "Changed", 6)])
        harness.steps(pipe)
        self.rebuild(harness, pipe)
        harness.step(pipe)

        self.rebuild(harness, pipe)
        harness.steps(pipe)

        assert balances(harness) == [("account-1", 2)]

    @pytest.mark.parametrize("follows", [False, True])
    def test_readers_see_the_old_table_until_those_that_feed_it_have_caught_up(
        self, harness: Harness, follows: bool
    ) -> None:
        seen: list[int] = []
        pipe = fed_by_a_stream()
        harness.write("number", *range(5))
        harness.run(pipe)

        def look(report: StepReport) -> None:
            seen.append(len(balances(harness)))

        runner = Runner(pipe, harness.store, harness.spark, on_step=look)
        runner.from_scratch()
        if follows:
            watch = Thread(target=stop_when_rebuilt, args=(harness, pipe, runner))
            watch.start()
            runner.run()
            watch.join()
        else:
            runner.run_until_idle()

        assert set(seen) == {5}
        assert len(balances(harness)) == 5
        assert not harness.status(pipe, "count").rebuilding
        assert harness.rows("select to_regclass('accounts__next') is null") == [(True,)]

    def test_they_keep_it_while_one_that_feeds_it_cannot_go_on(self, harness: Harness) -> None:
        harness.write("number", *range(5))
        harness.run(fed_by_a_stream())
        before = balances(harness)
        stopping = Runner(fed_by_a_stream(stops_at=3), harness.store, harness.spark)
        stopping.from_scratch()

        stopped = stopping.run_until_idle(check=False)
        between = balances(harness)
        harness.run(fed_by_a_stream())

        assert not stopped.succeeded
        assert len(before) == 5
        assert between == before
        assert harness.status(fed_by_a_stream(), "count").rebuilding is False

    def test_a_queue_that_became_empty_makes_an_empty_table(self, harness: Harness) -> None:
        harness.write("number", 1, 2)
        harness.run(fed_by_a_stream())
        runner = Runner(fed_by_a_stream(type="Odd"), harness.store, harness.spark)
        runner.from_scratch()

        runner.run_until_idle()

        assert balances(harness) == []

    def test_a_reader_in_the_middle_of_a_transaction_keeps_its_table(
        self, harness: Harness
    ) -> None:
        pipe = counting()
        write_events(harness.store, "account", [(1, "Changed", 5)])
        harness.steps(pipe)
        self.rebuild(harness, pipe)
        url = harness.store.settings.conninfo()
        with psycopg.connect(url) as reader:
            first = reader.execute("select balance from accounts").fetchall()
            step = Thread(target=harness.step, args=(pipe,))
            step.start()
            wait_until_blocked(url)
            second = reader.execute("select balance from accounts").fetchall()
        step.join()

        assert first == second == [(1,)] == harness.rows("select balance from accounts")
