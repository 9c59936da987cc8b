"""From scratch, a second table grows beside the live one and then takes its place."""

from __future__ import annotations

from threading import Thread

import psycopg

from penstock import RecordedMessage
from penstock.pipeline import Pipeline, Runner
from penstock.pipeline.restart import restart
from tests.pipeline.steps.accounts import State, accounts, balances, counting, write_events
from tests.pipeline.steps.workshop import Workshop
from tests.racing import wait_until_blocked


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
