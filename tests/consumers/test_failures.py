"""When a handler fails, the consumer stops, retries, or parks the message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import Consumer, FailurePolicy, RecordedMessage, Store, Transaction
from penstock.admin import ParkedMessage
from penstock.errors import HandlerFailed, ParkedMessageNotFound, PositionConflict, ValidationError
from tests.both_ways import Way
from tests.consumers.consuming import consume, fill, new_category, new_consumer

PARK = FailurePolicy.park(attempts=2, delay=0)
RETRY = FailurePolicy.retry(attempts=3, delay=0)


class Failing(list[int]):
    """A handler that records each call, and fails on number 1 for so many calls."""

    def __init__(self, times: int = 10**9, done: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.times = times
        self._done = done

    def __call__(self, message: RecordedMessage, *transaction: Transaction) -> None:
        number = message.data["number"]
        self.append(number)
        if number == 1 and self.count(1) <= self.times:
            raise RuntimeError(f"attempt {self.count(1)}")
        self._done()


def consumer_of(store: Store, category: str, handler: Any, **options: Any) -> Consumer:
    return new_consumer(store, category, handlers={"Placed": handler}, **options)


def parked_at(parked: list[ParkedMessage]) -> list[int]:
    return [one.message.data["number"] for one in parked]


class TestStop:
    def test_it_stops_at_the_message_and_resumes_with_it(self, shared_store: Store) -> None:
        category = new_category()
        places = fill(shared_store, category, 3)
        handler = Failing()

        with pytest.raises(HandlerFailed, match="RuntimeError: attempt 1") as raised:
            consumer_of(shared_store, category, handler).run()

        assert handler == [0, 1]
        assert isinstance(raised.value.__cause__, RuntimeError)
        assert (raised.value.global_position, raised.value.attempts) == (places[1], 1)
        assert consume(shared_store, category) == [1, 2]

    def test_an_interrupt_is_no_failure(self, way: Way, shared_store: Store) -> None:
        category = new_category()
        fill(shared_store, category, 3)

        def interrupt(message: RecordedMessage) -> None:
            if message.data["number"] == 1:
                raise way.interruption

        with pytest.raises(way.interruption):
            consumer_of(shared_store, category, interrupt, on_failure=PARK).run()

        assert shared_store.admin.parked(category, "mailer") == []
        assert consume(shared_store, category) == [1, 2]


class TestRetry:
    def test_it_goes_on_when_one_try_succeeds(self, shared_store: Store) -> None:
        category = new_category()
        fill(shared_store, category, 3)
        handler = Failing(times=2)

        consumer_of(shared_store, category, handler, on_failure=RETRY).run_once()

        assert handler == [0, 1, 1, 1, 2]

    def test_it_stops_when_all_failed(self, shared_store: Store) -> None:
        category = new_category()
        fill(shared_store, category, 3)
        handler = Failing()

        with pytest.raises(HandlerFailed, match="after 3 attempts"):
            consumer_of(shared_store, category, handler, on_failure=RETRY).run()

        assert handler == [0, 1, 1, 1]

    def test_stop_does_not_wait_for_the_next_try(self, shared_store: Store) -> None:
        category = new_category()
        fill(shared_store, category, 3)
        patient = FailurePolicy.retry(attempts=2, delay=3600, longest_delay=3600)
        calls: list[int] = []

        def fail(message: RecordedMessage) -> None:
            calls.append(message.data["number"])
            consumer.stop()
            raise RuntimeError

        consumer = consumer_of(shared_store, category, fail, on_failure=patient)
        consumer.run()

        assert calls == [0]
        assert consume(shared_store, category) == [0, 1, 2]

    def test_what_a_failed_try_wrote_in_its_transaction_is_gone(self, shared_store: Store) -> None:
        category, done = new_category(), new_category("done")
        fill(shared_store, category, 2)
        failing = Failing(times=2)

        def handler(message: RecordedMessage, transaction: Transaction) -> None:
            transaction.write_message(f"{done}-1", "Done", message.data)
            failing(message)

        consumer_of(
            shared_store, category, handler, on_failure=RETRY, transactional=True
        ).run_once()

        assert [one.data["number"] for one in shared_store.read_category(done)] == [0, 1]


class TestPark:
    @pytest.mark.parametrize("positions", ["stream", "table", "hybrid"])
    @pytest.mark.parametrize("transactional", [False, True])
    def test_the_message_is_set_aside_and_the_rest_goes_on(
        self, shared_store: Store, positions: str, transactional: bool
    ) -> None:
        category = new_category()
        places = fill(shared_store, category, 3)
        handler = Failing()

        consumer_of(
            shared_store,
            category,
            handler,
            on_failure=PARK,
            positions=positions,
            transactional=transactional,
        ).run_once()

        (waiting,) = shared_store.admin.parked(category, "mailer")
        assert handler == [0, 1, 1, 2]
        assert waiting.message == shared_store.get_category_messages(category)[1]
        assert (waiting.error, waiting.attempts) == ("RuntimeError: attempt 2", 2)
        assert waiting.message.global_position == places[1]
        assert not waiting.retry_requested
        assert consume(shared_store, category, positions=positions) == []

    def test_twins_park_a_message_once(self, shared_store: Store) -> None:
        category = new_category()
        handler = Failing()
        one, other = (
            consumer_of(shared_store, category, handler, on_failure=PARK) for _ in range(2)
        )
        one.run_once()
        other.run_once()
        fill(shared_store, category, 2)
        one.run_once()

        with pytest.raises(PositionConflict):
            other.run_once()

        parked = shared_store.get_stream_messages(f"{category}:parked-mailer")
        assert [event.type for event in parked] == ["Parked"]

    def test_it_stands_in_the_parked_stream(self, any_store: Store) -> None:
        fill(any_store, "order", 2)
        consumer_of(any_store, "order", Failing(), on_failure=PARK).run_once()

        (event,) = any_store.get_stream_messages("order:parked-mailer")

        assert event.type == "Parked"
        assert event.data["message"]["data"] == {"number": 1}

    def test_a_retry_is_done_when_the_consumer_is_idle(self, shared_store: Store) -> None:
        category = new_category()
        places = fill(shared_store, category, 3)
        handler = Failing(times=2)
        consumer = consumer_of(shared_store, category, handler, on_failure=PARK)
        consumer.run_once()
        shared_store.admin.retry_parked(category, "mailer", places[1])
        requested = shared_store.admin.parked(category, "mailer")[0].retry_requested

        handler._done = consumer.stop
        consumer.run()

        assert requested
        assert handler == [0, 1, 1, 2, 1]
        assert shared_store.admin.parked(category, "mailer") == []

    def test_a_retry_and_what_it_writes_are_one_transaction(self, shared_store: Store) -> None:
        category, done = new_category(), new_category("done")
        places = fill(shared_store, category, 2)
        failing = Failing(times=2)

        def handler(message: RecordedMessage, transaction: Transaction) -> None:
            transaction.write_message(f"{done}-1", "Done", message.data)
            failing(message)

        consumer = consumer_of(shared_store, category, handler, on_failure=PARK, transactional=True)
        consumer.run_once()
        shared_store.admin.retry_parked(category, "mailer", places[1])
        failing._done = consumer.stop
        consumer.run()

        assert [one.data["number"] for one in shared_store.read_category(done)] == [0, 1]
        assert shared_store.admin.parked(category, "mailer") == []

    def test_a_retry_that_fails_is_parked_anew(self, shared_store: Store) -> None:
        category = new_category()
        places = fill(shared_store, category, 2)
        handler = Failing()
        consumer = consumer_of(
            shared_store, category, handler, on_failure=PARK, polling_interval_ms=10
        )
        consumer.run_once()
        shared_store.admin.retry_parked(category, "mailer", places[1])
        shared_store.write_message(f"{category}-9", "Placed", {"number": 9})
        consumer.run_until_idle()

        (waiting,) = shared_store.admin.parked(category, "mailer")
        assert handler == [0, 1, 1, 9, 1, 1]
        assert (waiting.attempts, waiting.retry_requested) == (4, False)

    def test_stopped_in_a_retry_it_stays_requested(self, shared_store: Store) -> None:
        category = new_category()
        places = fill(shared_store, category, 2)
        handler = Failing()
        consumer = consumer_of(shared_store, category, handler, on_failure=PARK)
        consumer.run_once()
        shared_store.admin.retry_parked(category, "mailer", places[1])

        def fail(message: RecordedMessage) -> None:
            again.stop()
            raise RuntimeError

        again = consumer_of(shared_store, category, fail, on_failure=PARK)
        again.run()

        (waiting,) = shared_store.admin.parked(category, "mailer")
        assert (waiting.attempts, waiting.retry_requested) == (2, True)

    def test_dropped_it_waits_no_more(self, shared_store: Store) -> None:
        category = new_category()
        places = fill(shared_store, category, 2)
        consumer_of(shared_store, category, Failing(), on_failure=PARK).run_once()

        shared_store.admin.drop_parked(category, "mailer", places[1])

        assert shared_store.admin.parked(category, "mailer") == []

    def test_dropped_and_replayed_it_is_parked_again(self, shared_store: Store) -> None:
        category = new_category()
        places = fill(shared_store, category, 2)
        consumer_of(shared_store, category, Failing(), on_failure=PARK).run_once()
        shared_store.admin.drop_parked(category, "mailer", places[1])
        shared_store.admin.seek(category, "mailer", 0)

        consumer_of(shared_store, category, Failing(), on_failure=PARK).run_once()

        assert parked_at(shared_store.admin.parked(category, "mailer")) == [1]

    def test_it_outlives_the_original(self, store: Store) -> None:
        places = fill(store, "order", 5, streams=1)
        consumer_of(store, "order", Failing(), on_failure=PARK).run_once()

        store.admin.retain("order", keep_count=1)

        assert [one.global_position for one in store.get_category_messages("order")] == places[-1:]
        assert parked_at(store.admin.parked("order", "mailer")) == [1]

    @pytest.mark.parametrize("type", ["Parked", "Handled", "RetryRequested", "Dropped"])
    @pytest.mark.parametrize(
        "garbage", [{}, {"message": None}, {"message": {"id": 7}}, {"global_position": [1]}]
    )
    def test_what_tells_of_no_parked_message_is_passed_over(
        self, shared_store: Store, type: str, garbage: dict[str, Any]
    ) -> None:
        category = new_category()
        fill(shared_store, category, 2)
        consumer = consumer_of(shared_store, category, Failing(), on_failure=PARK)
        consumer.run_once()
        shared_store.write_message(f"{category}:parked-mailer", type, garbage)

        consumer.run_until_idle()

        assert parked_at(shared_store.admin.parked(category, "mailer")) == [1]

    def test_an_error_is_not_kept_at_any_length(self, shared_store: Store) -> None:
        category = new_category()
        fill(shared_store, category, 1)

        def fail(message: RecordedMessage) -> None:
            raise RuntimeError("x" * 100_000)

        consumer_of(shared_store, category, fail, on_failure=PARK).run_once()

        (waiting,) = shared_store.admin.parked(category, "mailer")
        assert len(waiting.error) == 10_000

    @pytest.mark.parametrize(
        "wrong", [(1.5, "mailer"), ("order-1", "mailer"), ("order", None), ("order", "")]
    )
    def test_who_parked_it_is_a_category_and_an_id(self, shared_store: Store, wrong: Any) -> None:
        with pytest.raises(ValidationError):
            shared_store.admin.parked(*wrong)

    def test_a_parked_stream_whose_beginning_is_gone_is_read_on(self, store: Store) -> None:
        for number in range(3):
            store.write_message(f"order-{number}", "Placed", {"number": 1})
        consumer_of(store, "order", Failing(), on_failure=PARK).run_once()

        store.admin.retain("order:parked-mailer", keep_count=2)

        assert len(store.admin.parked("order", "mailer")) == 2

    def test_there_may_be_more_than_a_page(self, shared_store: Store) -> None:
        category = new_category()
        for _ in range(5):
            shared_store.write_message(f"{category}-1", "Placed", {"number": 1})
        consumer_of(shared_store, category, Failing(), on_failure=PARK).run_once()
        for one in shared_store.admin.parked(category, "mailer")[:4]:
            shared_store.admin.retry_parked(category, "mailer", one.message.global_position)

        requested = [one.retry_requested for one in shared_store.admin.parked(category, "mailer")]

        assert requested == [True] * 4 + [False]

    def test_the_last_ones_are_listed_up_to_a_limit(self, shared_store: Store) -> None:
        category = new_category()
        for number in range(5):
            shared_store.write_message(f"{category}-{number}", "Placed", {"number": 1})
        consumer_of(shared_store, category, Failing(), on_failure=PARK).run_once()

        every = shared_store.admin.parked(category, "mailer", None)
        last = shared_store.admin.parked(category, "mailer", 2)

        assert (len(every), last) == (5, every[3:])
        with pytest.raises(ValidationError, match="limit"):
            shared_store.admin.parked(category, "mailer", 0)

    def test_a_retry_is_requested_once(self, shared_store: Store) -> None:
        category = new_category()
        places = fill(shared_store, category, 2)
        consumer_of(shared_store, category, Failing(), on_failure=PARK).run_once()

        first = shared_store.admin.retry_parked(category, "mailer", places[1])
        second = shared_store.admin.retry_parked(category, "mailer", places[1])

        assert (first, second) == (True, False)
        assert shared_store.stream_version(f"{category}:parked-mailer") == 1

    @pytest.mark.parametrize("action", ["retry_parked", "drop_parked"])
    def test_a_message_that_does_not_wait_is_reported(
        self, shared_store: Store, action: str
    ) -> None:
        category = new_category()
        places = fill(shared_store, category, 2)
        consumer_of(shared_store, category, Failing(), on_failure=PARK).run_once()

        with pytest.raises(ParkedMessageNotFound, match=str(places[0])):
            getattr(shared_store.admin, action)(category, "mailer", places[0])


class TestPolicy:
    @pytest.mark.parametrize(
        "wrong",
        [{"attempts": 0}, {"attempts": 1.5}, {"delay": -1}, {"delay": 2, "longest_delay": 1}],
    )
    def test_bad_input(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(ValidationError):
            FailurePolicy.retry(**wrong)

    def test_pauses_double_up_to_the_longest(self) -> None:
        policy = FailurePolicy.retry(attempts=9, delay=1, longest_delay=4)

        pauses = [policy.pause(attempt) for attempt in (1, 2, 3, 4, 2000)]

        for pause, highest in zip(pauses, [1, 2, 4, 4, 4], strict=True):
            assert highest / 2 <= pause <= highest
