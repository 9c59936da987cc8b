"""Projections: a table of current states, in step with the log, rebuilt while it is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import RecordedMessage
from penstock.errors import StepFailed
from penstock.pipeline import Pipeline, load
from penstock.pipeline.restart import restart
from penstock.pipeline.step import run_step
from tests.pipeline.steps.accounts import State, accounts, balances, counting, write_events
from tests.pipeline.steps.running import Harness


class TestFold:
    def test_a_row_has_the_stream_its_columns_and_the_position_of_its_last_event(
        self, harness: Harness, shape: str
    ) -> None:
        pipe = accounts("shop", "account", "accounts")
        write_events(harness.store, "account", [(1, "Changed", 5), (2, "Changed", 4)])
        harness.steps(pipe)
        write_events(harness.store, "account", [(1, "Changed", -2)])
        harness.steps(pipe)

        assert harness.rows("select * from accounts order by 1") == [
            ("account-1", 3, [5, -2], "owner 5", 1),
            ("account-2", 4, [4], None, 0),
        ]

    def test_a_stream_whose_state_is_none_has_no_row_until_it_comes_back(
        self, harness: Harness, shape: str
    ) -> None:
        pipe = accounts("shop", "account", "accounts")
        write_events(harness.store, "account", [(1, "Changed", 5), (2, "Changed", 1)])
        harness.steps(pipe)
        write_events(harness.store, "account", [(1, "Closed", 0)])
        harness.steps(pipe)
        gone = balances(harness)
        write_events(harness.store, "account", [(1, "Changed", 7)])
        harness.steps(pipe)

        assert gone == [("account-2", 1)]
        assert balances(harness) == [("account-1", 7), ("account-2", 1)]

    def test_columns_that_a_state_leaves_out_are_null(self, harness: Harness) -> None:
        pipe = Pipeline("shop")
        pipe.schema("account")

        @pipe.project("account", into="accounts", columns="balance int, owner string")
        def count(state: State | None, message: RecordedMessage) -> State:
            return {"balance": 1}

        harness.write("account", 1)
        harness.step(pipe)

        assert harness.rows("select balance, owner from accounts") == [(1, None)]

    def test_a_map_is_a_dictionary_in_the_message_and_in_the_state(
        self, harness: Harness, shape: str
    ) -> None:
        pipe = Pipeline("shop")
        pipe.schema("account", "rates map<string, int>, deep struct<rates: map<string, int>>")

        @pipe.project("account", into="accounts", columns="rates map<string, int>", limit=1)
        def collect(state: State | None, message: RecordedMessage) -> State:
            before = state["rates"] if state else {}
            return {"rates": before | message.data["rates"] | message.data["deep"]["rates"]}

        for name in ("a", "b"):
            data = {"rates": {name: 1}, "deep": {"rates": {f"deep {name}": 2}}}
            harness.store.write_message("account-1", "Changed", data)
        harness.steps(pipe)

        [(rates,)] = harness.rows("select rates from accounts")
        assert rates == {"a": 1, "deep a": 2, "b": 1, "deep b": 2}

    def test_only_events_of_some_types_may_be_folded(self, harness: Harness) -> None:
        pipe = counting(types=("Changed",))
        write_events(harness.store, "account", [(1, "Changed", 5), (1, "Closed", 0)])

        harness.steps(pipe)

        assert balances(harness) == [("account-1", 1)]

    def test_the_table_changes_with_the_tailer_or_not_at_all(self, harness: Harness) -> None:
        pipe, seen = counting(), []
        write_events(harness.store, "account", [(1, "Changed", 5)])
        harness.steps(pipe)
        write_events(harness.store, "account", [(1, "Changed", 6)])
        run_step(harness.context(pipe, before_commit=lambda: seen.append(balances(harness))))

        assert [*seen, balances(harness)] == [[("account-1", 1)], [("account-1", 2)]]

    @pytest.mark.parametrize("into", ["Wide Table", "public.accounts"])
    def test_a_table_may_have_any_name(self, harness: Harness, into: str) -> None:
        pipe = counting(into=into)
        write_events(harness.store, "account", [(1, "Changed", 5)])
        harness.steps(pipe)
        restart(harness.context(pipe).connection, pipe)
        harness.steps(pipe)

        quoted = ".".join(f'"{part}"' for part in into.split("."))
        assert harness.rows(f"select balance from {quoted}") == [(1,)]


class TestFailing:
    def test_the_event_that_made_it_fail_is_named(self, harness: Harness, shape: str) -> None:
        pipe = Pipeline("shop")
        pipe.schema("account")

        @pipe.project("account", into="accounts", columns="balance int")
        def divide(state: State | None, message: RecordedMessage) -> State:
            return {"balance": 10 // message.data["amount"]}

        write_events(harness.store, "account", [(1, "Changed", 5), (2, "Changed", 0)])
        bad = harness.messages("account")[-1].global_position
        with pytest.raises(StepFailed) as caught:
            harness.step(pipe)

        where = f"(at event {bad} of account-2)"
        assert f"ZeroDivisionError: integer division or modulo by zero {where}" in str(caught.value)
        assert harness.rows("select to_regclass('accounts') is null") == [(True,)]
        assert where in (harness.status(pipe).error or "")

    @pytest.mark.parametrize("state", [{"colour": "red"}, 5, {"balance": 1, "x": 2}])
    def test_a_state_of_other_columns_is_refused(
        self, harness: Harness, shape: str, state: State
    ) -> None:
        pipe = Pipeline("shop")
        pipe.schema("account")

        @pipe.project("account", into="accounts", columns="balance int")
        def wrong(_: State | None, message: RecordedMessage) -> State:
            return state

        harness.write("account", 1)
        with pytest.raises(StepFailed, match="it has to return a dictionary of balance, or None"):
            harness.step(pipe)

    def test_a_value_of_another_type_is_refused(self, harness: Harness) -> None:
        pipe = Pipeline("shop")
        pipe.schema("account")

        @pipe.project("account", into="accounts", columns="balance int")
        def wrong(_: State | None, message: RecordedMessage) -> State:
            return {"balance": "many"}

        harness.write("account", 1)
        with pytest.raises(StepFailed, match="many"):
            harness.step(pipe)

        assert [one.position for one in harness.status(pipe).tailers] == [0]


FILE = """
from penstock.pipeline import Pipeline
from pyspark.sql import functions as f

pipe = Pipeline("shop")
pipe.schema("account")
STEP = 10

@f.udf("int")
def plus(number):
    return int(number) + STEP

@pipe.project("account", into="accounts", columns="balance bigint")
def count(state, message):
    return {"balance": (state["balance"] if state else 0) + STEP}

@pipe.stream(inputs="account", output="out")
def add(account):
    number = plus(f.get_json_object("data", "$.amount"))
    return account.withColumn("data", f.to_json(f.struct(number.alias("n"))))
"""


def test_functions_of_a_file_work_on_executors_too(harness: Harness, tmp_path: Path) -> None:
    harness.driver_rows = 0
    file = tmp_path / "own_shop.py"
    file.write_text(FILE)
    write_events(harness.store, "account", [(1, "Changed", 5), (1, "Changed", 6)])
    pipe = load(str(file))

    harness.step(pipe, "count")
    harness.step(pipe, "add")

    assert balances(harness) == [("account-1", 20)]
    assert harness.numbers("out") == [15, 16]
