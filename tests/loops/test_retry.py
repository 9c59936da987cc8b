"""Retrying: again when that may help, at once when it may not, and not for ever."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import penstock
from penstock import AsyncStore, Store, WrongExpectedVersion
from penstock.errors import DatabaseUnreachable, TransactionConflict, ValidationError

CONFLICT = TransactionConflict("a twin was first")


class Failing:
    """Raises each of some errors in turn, and then returns how often it was called."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.calls = 0

    def __call__(self) -> int:
        self.calls += 1
        if self._errors:
            raise self._errors.pop(0)
        return self.calls


class TestAFunction:
    def test_that_succeeds_runs_once(self) -> None:
        assert penstock.retry(Failing())() == 1

    def test_runs_again_after_errors_that_may_pass(self) -> None:
        work = Failing(WrongExpectedVersion("a-1", 1, 2), DatabaseUnreachable("x", "y"), CONFLICT)

        assert penstock.retry(delay=0.0001)(work)() == 4

    @pytest.mark.parametrize("error", [ValidationError("a", 1, "b"), KeyError("x")])
    def test_does_not_run_again_after_an_error_that_stays(self, error: Exception) -> None:
        work = Failing(error)

        with pytest.raises(type(error)) as caught:
            penstock.retry(work)()

        assert caught.value is error
        assert work.calls == 1

    @pytest.mark.parametrize("attempts", [1, 2, 5])
    def test_raises_the_last_error_when_attempts_run_out(self, attempts: int) -> None:
        errors = [TransactionConflict(str(number)) for number in range(10)]
        work = Failing(*errors)

        with pytest.raises(TransactionConflict) as caught:
            penstock.retry(attempts=attempts, delay=0.0001)(work)()

        assert caught.value is errors[attempts - 1]
        assert work.calls == attempts

    def test_may_have_any_number_of_attempts(self) -> None:
        work = Failing(*[CONFLICT] * 1100)

        assert penstock.retry(attempts=2000, delay=1e-9, longest_delay=1e-9)(work)() == 1101

    def test_runs_5_times_by_default(self) -> None:
        work = Failing(*[CONFLICT] * 9)

        with pytest.raises(TransactionConflict):
            penstock.retry(delay=0.0001)(work)()

        assert work.calls == 5

    def test_keeps_its_name_arguments_and_result(self) -> None:
        @penstock.retry
        def add(one: int, *, two: int) -> int:
            """Add."""
            return one + two

        assert (add.__name__, add.__doc__, add(1, two=2)) == ("add", "Add.", 3)

    @pytest.mark.parametrize(
        "options",
        [
            {"attempts": 0},
            {"attempts": 2.5},
            {"attempts": True},
            {"delay": -1},
            {"delay": "soon"},
            {"longest_delay": -0.5},
            {"longest_delay": float("nan")},
        ],
    )
    def test_is_not_made_with_numbers_that_make_no_sense(self, options: dict[str, Any]) -> None:
        ((name, value),) = options.items()

        with pytest.raises(ValidationError) as caught:
            penstock.retry(**options)

        assert (caught.value.name, repr(caught.value.value)) == (name, repr(value))

    def test_takes_delays_in_seconds_or_as_timedelta(self) -> None:
        work = Failing(CONFLICT)

        soon = timedelta(microseconds=100)
        assert penstock.retry(attempts=2, delay=soon, longest_delay=soon)(work)() == 2


class TestAnAsyncFunction:
    async def test_runs_again_after_errors_that_may_pass(self) -> None:
        work = Failing(CONFLICT, CONFLICT)

        @penstock.retry(delay=0.0001)
        async def run() -> int:
            return work()

        assert await run() == 3

    @pytest.mark.parametrize(("error", "calls"), [(CONFLICT, 2), (ValidationError("a", 1, "b"), 1)])
    async def test_raises_what_stays(self, error: Exception, calls: int) -> None:
        work = Failing(*[error] * 9)

        @penstock.retry(attempts=2, delay=0.0001)
        async def run() -> int:
            return work()

        with pytest.raises(type(error)):
            await run()

        assert work.calls == calls


def interfering(write: Callable[[], object]) -> Callable[[], None]:
    """Return a function that writes the first time it is called."""
    writes = [write]
    return lambda: writes and writes.pop()() and None  # type: ignore[return-value]


def test_a_decision_is_made_anew_on_what_is_true_then(any_store: Store) -> None:
    interfere = interfering(lambda: any_store.write_message("account-1", "Deposited"))
    seen: list[int | None] = []

    @penstock.retry(delay=0.0001)
    def withdraw() -> int:
        version = any_store.stream_version("account-1")
        seen.append(version)
        interfere()
        expected = -1 if version is None else version
        return any_store.write_message("account-1", "Withdrawn", expected_version=expected)

    assert withdraw() == 1
    assert seen == [None, 0]


async def test_a_transaction_runs_again_as_a_whole(async_store: AsyncStore) -> None:
    attempts = []

    @penstock.retry(delay=0.0001)
    async def transfer() -> None:
        async with async_store.transaction("repeatable read") as transaction:
            version = await transaction.stream_version("account-1")
            attempts.append(version)
            if version is None:
                await async_store.write_message("account-1", "Opened")
            await transaction.write_message("account-2", "Deposited")
            await transaction.write_message("account-1", "Withdrawn")

    await transfer()

    assert attempts == [None, 0]
    types = [m.type for m in await async_store.get_category_messages("account")]
    assert types == ["Opened", "Deposited", "Withdrawn"]
