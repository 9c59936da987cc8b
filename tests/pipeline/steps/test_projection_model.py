"""A projection that is kept up step by step equals a fold of everything, whatever the steps are."""

from __future__ import annotations

import itertools

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from penstock import Store
from penstock.pipeline.frames import DRIVER_ROWS
from tests.pipeline.steps.accounts import Event, accounts, folded, write_events
from tests.pipeline.steps.running import Harness

numbers = itertools.count(1)
events = st.lists(
    st.tuples(
        st.integers(1, 3), st.sampled_from(["Changed", "Changed", "Closed"]), st.integers(-9, 9)
    ),
    max_size=6,
)


def check(
    store: Store,
    spark: SparkSession,
    rounds: list[tuple[list[Event], int]],
    *,
    again: bool,
    driver_rows: int = DRIVER_ROWS,
) -> None:
    """Write events in rounds, take each up in steps of some size, and compare."""
    category = f"account{next(numbers)}"
    harness = Harness(store, spark, driver_rows=driver_rows)
    for written, limit in rounds:
        pipe = accounts(f"shop_{category}", category, f"t_{category}", limit=limit)
        write_events(store, category, written)
        harness.steps(pipe)
        if again:
            assert harness.step(pipe) is None

    found = {}
    if any(written for written, _ in rounds):
        rows = harness.rows(f"select * from t_{category}")
        found = {name: tuple(row) for name, *row in rows}
    assert found == folded(store, category)
    harness.close()


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(rounds=st.lists(st.tuples(events, st.integers(1, 4)), max_size=3), again=st.booleans())
def test_on_the_driver(
    shared_store: Store,
    spark: SparkSession,
    rounds: list[tuple[list[Event], int]],
    again: bool,
) -> None:
    check(shared_store, spark, rounds, again=again)


@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(rounds=st.lists(st.tuples(events, st.integers(3, 9)), min_size=1, max_size=2))
def test_on_the_executors(
    shared_store: Store, spark: SparkSession, rounds: list[tuple[list[Event], int]]
) -> None:
    check(shared_store, spark, rounds, again=False, driver_rows=0)
