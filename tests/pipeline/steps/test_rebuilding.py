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
from tests.pipeline.steps.running import Workshop, numbered, numbers_in, renumbered
from tests.racing import wait_until_blocked


def fed_by_a_stream(*, type: str = "Numbered", stops_at: int | None = None) -> Pipeline:
    """Return a pipeline whose stream opens an account for each number of a type, in small steps."""
    pipe = Pipeline("shop")
    pipe.queue("number")

    @pipe.stream(inputs="number", output="account", types=[type], limit=1)
    def open_account(number: DataFrame) -> DataFrame:
        if stops_at in numbers_in(number):
            raise ValueError("no further")
        return renumbered(numbered(number))

    @pipe.project("account", into="accounts", columns="balance int")
    def count(state: State | None, message: RecordedMessage) -> State:
        return {"balance": (state["balance"] if state else 0) + 1}

    return pipe


def stop_when_rebuilt(workshop: Workshop, pipe: Pipeline, runner: Runner) -> None:
    deadline = monotonic() + 60
    while workshop.status(pipe, "count").rebuilding and monotonic() < deadline:
        sleep(0.05)
    runner.stop()


class TestRebuilding:
    """From scratch, a second table grows beside the live one and then takes its place."""

    @staticmethod
    def rebuild(workshop: Workshop, pipe: Pipeline) -> None:
        restart(workshop.bench(pipe).connection, pipe)

    def test_readers_see_the_old_table_until_the_new_one_has_caught_up(
        self, workshop: Workshop
    ) -> None:
        write_events(workshop.store, "account", [(n, "Changed", n) for n in (1, 2, 3)])
        workshop.steps(accounts("shop", "account", "accounts"))
        before = balances(workshop)
        pipe, seen = accounts("shop", "account", "accounts", limit=2), []
        self.rebuild(workshop, pipe)

        while workshop.step(pipe):
            seen.append((workshop.status(pipe).rebuilding, balances(workshop)))

        assert seen == [(True, before), (False, before)]
        assert workshop.rows("select to_regclass('accounts__next') is null") == [(True,)]

    def test_a_changed_fold_takes_the_place_of_the_old_one(self, workshop: Workshop) -> None:
        write_events(workshop.store, "account", [(1, "Changed", 5), (1, "Changed", 6)])
        workshop.steps(accounts("shop", "account", "accounts"))
        pipe = counting()
        self.rebuild(workshop, pipe)

        workshop.steps(pipe)
        write_events(workshop.store, "account", [(2, "Changed", 7)])
        workshop.steps(pipe)

        assert workshop.rows("select * from accounts order by 1") == [
            ("account-1", 2, 1),
            ("account-2", 1, 0),
        ]

    def test_events_that_come_meanwhile_do_not_put_it_off(self, workshop: Workshop) -> None:
        pipe = Pipeline("shop")
        pipe.queue("account")

        @pipe.project("account", into="accounts", columns="balance int")
        def count(state: State | None, message: RecordedMessage) -> State:
            workshop.store.write_message("account-1", "Changed")  # while it is folded
            return {"balance": (state["balance"] if state else 0) + 1}

        workshop.store.write_message("account-1", "Changed")
        workshop.step(pipe)
        self.rebuild(workshop, pipe)

        workshop.step(pipe)

        assert not workshop.status(pipe).rebuilding
        assert balances(workshop) == [("account-1", 2)]

    def test_nor_do_they_in_a_run_that_reads_no_further(self, workshop: Workshop) -> None:
        pipe, calls = Pipeline("shop"), []
        pipe.queue("account")

        @pipe.project("account", into="accounts", columns="balance int", limit=1)
        def count(state: State | None, message: RecordedMessage) -> State:
            calls.append(workshop.store.write_message("account-1", "Changed"))
            return {"balance": (state["balance"] if state else 0) + 1}

        workshop.store.write_message("account-1", "Changed")
        workshop.run(pipe)
        runner = Runner(pipe, workshop.store, workshop.spark)
        runner.from_scratch()

        runner.once()

        assert not workshop.status(pipe, "count").rebuilding
        assert balances(workshop) == [("account-1", 2)]
        assert len(calls) == 3

    def test_events_that_it_does_not_take_do_not_put_it_off_either(
        self, workshop: Workshop
    ) -> None:
        pipe = counting(types=("Changed",), limit=1)
        write_events(workshop.store, "account", [(1, "Changed", 5), (1, "Closed", 0)])
        workshop.steps(pipe)
        self.rebuild(workshop, pipe)

        workshop.steps(pipe)

        assert not workshop.status(pipe).rebuilding
        assert balances(workshop) == [("account-1", 1)]

    def test_to_begin_again_while_rebuilding_forgets_what_was_rebuilt(
        self, workshop: Workshop
    ) -> None:
        pipe = counting(limit=1)
        write_events(workshop.store, "account", [(1, "Changed", 5), (1, "Changed", 6)])
        workshop.steps(pipe)
        self.rebuild(workshop, pipe)
        workshop.step(pipe)

        self.rebuild(workshop, pipe)
        workshop.steps(pipe)

        assert balances(workshop) == [("account-1", 2)]

    @pytest.mark.parametrize("follows", [False, True])
    def test_readers_see_the_old_table_until_those_that_feed_it_have_caught_up(
        self, workshop: Workshop, follows: bool
    ) -> None:
        seen: list[int] = []
        pipe = fed_by_a_stream()
        workshop.write("number", *range(5))
        workshop.run(pipe)

        def look(report: StepReport) -> None:
            seen.append(len(balances(workshop)))

        runner = Runner(pipe, workshop.store, workshop.spark, on_step=look)
        runner.from_scratch()
        if follows:
            watch = Thread(target=stop_when_rebuilt, args=(workshop, pipe, runner))
            watch.start()
            runner.follow()
            watch.join()
        else:
            runner.once()

        assert set(seen) == {5}
        assert len(balances(workshop)) == 5
        assert not workshop.status(pipe, "count").rebuilding
        assert workshop.rows("select to_regclass('accounts__next') is null") == [(True,)]

    def test_they_keep_it_while_one_that_feeds_it_cannot_go_on(self, workshop: Workshop) -> None:
        workshop.write("number", *range(5))
        workshop.run(fed_by_a_stream())
        before = balances(workshop)
        stopping = Runner(fed_by_a_stream(stops_at=3), workshop.store, workshop.spark)
        stopping.from_scratch()

        stopped = stopping.once(check=False)
        between = balances(workshop)
        workshop.run(fed_by_a_stream())

        assert not stopped.succeeded
        assert len(before) == 5
        assert between == before
        assert workshop.status(fed_by_a_stream(), "count").rebuilding is False

    def test_a_queue_that_became_empty_makes_an_empty_table(self, workshop: Workshop) -> None:
        workshop.write("number", 1, 2)
        workshop.run(fed_by_a_stream())
        runner = Runner(fed_by_a_stream(type="Odd"), workshop.store, workshop.spark)
        runner.from_scratch()

        runner.once()

        assert balances(workshop) == []

    def test_a_reader_in_the_middle_of_a_transaction_keeps_its_table(
        self, workshop: Workshop
    ) -> None:
        pipe = counting()
        write_events(workshop.store, "account", [(1, "Changed", 5)])
        workshop.steps(pipe)
        self.rebuild(workshop, pipe)
        url = workshop.store.settings.conninfo()
        with psycopg.connect(url) as reader:
            first = reader.execute("select balance from accounts").fetchall()
            step = Thread(target=workshop.step, args=(pipe,))
            step.start()
            wait_until_blocked(url)
            second = reader.execute("select balance from accounts").fetchall()
        step.join()

        assert first == second == [(1,)] == workshop.rows("select balance from accounts")
