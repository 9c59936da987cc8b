"""A consumer reads a category, resumes from its position, and stops after the current message."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import pytest

from penstock import (
    AsyncConsumer,
    AsyncStore,
    Call,
    Consumer,
    FailurePolicy,
    Interceptor,
    RecordedMessage,
    Store,
    Transaction,
    handles,
)
from penstock.consumers.positions import (
    Positions,
    StoredPosition,
    StreamPositions,
    TablePositions,
)
from penstock.database.operation import Operation, Row
from penstock.errors import (
    ConditionNotActivated,
    DecodingError,
    HandlerFailed,
    UnsupportedEdition,
    ValidationError,
)
from penstock.log.context import LogContext
from penstock.message.serializer import JsonSerializer
from tests.both_ways import Way
from tests.consumers.consuming import (
    AN_HOUR,
    Numbers,
    consume,
    fill,
    new_category,
    new_consumer,
    run_until,
)


class TestReading:
    def test_messages_of_the_category_come_in_order(self, any_store: Store) -> None:
        fill(any_store, "order", 7)
        any_store.write_message("invoice-1", "Placed", {"number": 99})

        assert consume(any_store, "order", batch_size=3) == [0, 1, 2, 3, 4, 5, 6]

    def test_it_resumes_where_it_was(self, any_store: Store) -> None:
        fill(any_store, "order", 3)
        consume(any_store, "order")
        fill(any_store, "order", 2)

        assert consume(any_store, "order") == [0, 1]

    def test_consumers_with_different_ids_read_apart(self, shared_store: Store) -> None:
        category = new_category()
        fill(shared_store, category, 2)
        consume(shared_store, category, "mailer")

        assert consume(shared_store, category, "biller") == [0, 1]

    def test_after_a_full_page_the_next_is_read_at_once(self, shared_store: Store) -> None:
        category = new_category()
        fill(shared_store, category, 5)
        consumer = new_consumer(
            shared_store, category, "mailer", batch_size=2, polling_interval_ms=AN_HOUR
        )

        assert run_until(consumer, 5) == [0, 1, 2, 3, 4]

    def test_messages_that_are_written_while_it_runs_come_too(self, shared_store: Store) -> None:
        category = new_category()
        consumer = new_consumer(shared_store, category, "mailer", polling_interval_ms=10)
        numbers: list[int] = []

        @consumer.handler("Placed")
        def place_another(message: RecordedMessage) -> None:
            numbers.append(message.data["number"])
            if len(numbers) == 3:
                consumer.stop()
            shared_store.write_message(f"{category}-1", "Placed", {"number": len(numbers)})

        fill(shared_store, category, 1)
        consumer.run()

        assert numbers == [0, 1, 2]

    def test_a_message_of_an_open_transaction_is_waited_for(self, shared_store: Store) -> None:
        category = new_category()
        with shared_store.transaction() as slow:
            slow.write_message(f"{category}-1", "Placed", {"number": 0})
            shared_store.write_message(f"{category}-2", "Placed", {"number": 1})

            assert consume(shared_store, category) == []

        assert consume(shared_store, category) == [0, 1]

    def test_a_correlation_selects_the_answers(self, shared_store: Store) -> None:
        category, asking = new_category(), new_category("asking")
        for number, stream_name in enumerate([f"{asking}-1", "other-1", None]):
            metadata = {"correlationStreamName": stream_name} if stream_name else None
            shared_store.write_message(f"{category}-1", "Placed", {"number": number}, metadata)

        assert consume(shared_store, category, correlation=asking) == [0]

    def test_a_condition_selects_too(self, way: Way, shared_url: str, shared_store: Store) -> None:
        category = new_category()
        fill(shared_store, category, 3)

        with way.connect(shared_url, sql_condition=True) as store:
            numbers = consume(store, category, condition="data ->> 'number' = '1'")

        assert numbers == [1]

    def test_a_condition_has_to_be_switched_on(self, shared_store: Store) -> None:
        with pytest.raises(ConditionNotActivated):
            consume(shared_store, new_category(), condition="true")

    def test_what_a_filter_passes_over_is_passed_for_good(self, shared_store: Store) -> None:
        category = new_category()
        *_, head = fill(shared_store, category, 3)
        handlers = {"Placed": Numbers()}
        consumer = new_consumer(
            shared_store, category, "mailer", handlers=handlers, correlation="nobody"
        )

        consumer.run_once()

        assert consumer.position == head
        assert new_consumer(shared_store, category, "mailer", handlers=handlers).run_once() == 0

    def test_what_is_written_after_the_page_was_read_is_not_passed_over(
        self, way: Way, shared_url: str, shared_stores: dict[bool, Store]
    ) -> None:
        category = new_category()

        class AfterThePage(Interceptor):
            @contextmanager
            def around(self, call: Call) -> Iterator[None]:
                yield
                if call.name == "get_category_messages" and not handled:
                    handled.append(-1)
                    fill(shared_stores[False], category, 1)

        handled = Numbers()
        with way.connect(shared_url, interceptors=[AfterThePage()]) as store:
            consumer = new_consumer(
                store,
                category,
                "mailer",
                handlers={"Placed": handled},
                consumer_group_member=0,
                consumer_group_size=1,
            )
            consumer.run_once()
            consumer.run_once()

        assert handled == [-1, 0]


class TestWholeLog:
    def test_everything_comes(self, store: Store) -> None:
        fill(store, "order", 2)
        fill(store, "invoice", 2)

        assert consume(store, "$all") == [0, 1, 0, 1]

    def test_progress_of_consumers_of_the_whole_log_is_no_news_to_them(self, store: Store) -> None:
        fill(store, "order", 2)
        consume(store, "$all", "mailer")
        before = store.categories()

        for _ in range(3):
            consume(store, "$all", "mailer")
            consume(store, "$all", "biller", start="end")

        heads = {one.category: one.head for one in store.categories()}
        assert heads["$all:position"] <= before[0].head + 1

    @pytest.mark.parametrize(
        "options",
        [
            {"correlation": "nobody"},
            {"consumer_group_member": 0, "consumer_group_size": 2},
        ],
    )
    def test_with_a_filter_it_saves_what_it_passed_over_once(
        self, store: Store, options: dict[str, Any]
    ) -> None:
        fill(store, "order", 3)
        consumer = new_consumer(store, "$all", "mailer", handlers={"Placed": Numbers()}, **options)

        for _ in range(5):
            consumer.run_once()

        assert consumer.position == 3
        assert store.stream_version("$all:position-mailer") == 0

    def test_what_it_parked_does_not_come_back(self, store: Store) -> None:
        fill(store, "order", 1)
        consumer = new_consumer(store, "$all", "mailer", on_failure=FailurePolicy.park(attempts=1))
        seen: list[str] = []

        @consumer.handler()
        def fail(message: RecordedMessage) -> None:
            seen.append(message.type)
            raise RuntimeError

        while consumer.run_once():
            pass

        assert seen == ["Placed"]


class TestStart:
    def test_from_the_end(self, shared_store: Store) -> None:
        category = new_category()
        fill(shared_store, category, 2)
        first = consume(shared_store, category, start="end")
        shared_store.write_message(f"{category}-1", "Placed", {"number": 9})

        assert (first, consume(shared_store, category, start="end")) == ([], [9])

    @pytest.mark.parametrize("positions", ["stream", "table", "hybrid"])
    def test_from_the_end_of_an_empty_category(self, shared_store: Store, positions: str) -> None:
        category = new_category()
        first = consume(shared_store, category, start="end", positions=positions)
        fill(shared_store, category, 2)  # while it does not run

        again = consume(shared_store, category, start="end", positions=positions)

        assert (first, again) == ([], [0, 1])

    def test_from_a_position(self, shared_store: Store) -> None:
        category = new_category()
        positions = fill(shared_store, category, 3)

        assert consume(shared_store, category, start=positions[1]) == [1, 2]

    def test_only_a_consumer_without_a_position_begins_there(self, shared_store: Store) -> None:
        category = new_category()
        positions = fill(shared_store, category, 3)
        consume(shared_store, category)

        assert consume(shared_store, category, start=positions[1]) == []

    @pytest.mark.parametrize("start", ["end", 10**9])
    def test_moved_to_the_beginning_it_begins_there(
        self, shared_store: Store, start: str | int
    ) -> None:
        category = new_category()
        fill(shared_store, category, 2)
        shared_store.admin.seek(category, "mailer", 0)

        assert consume(shared_store, category, start=start) == [0, 1]


class TestStopping:
    def test_the_message_in_hand_is_finished_and_no_more(self, shared_store: Store) -> None:
        category = new_category()
        positions = fill(shared_store, category, 5)
        consumer = new_consumer(shared_store, category, "mailer")

        numbers = run_until(consumer, 2)

        assert numbers == [0, 1]
        assert consumer.position == positions[1]
        assert consume(shared_store, category) == [2, 3, 4]

    def test_an_idle_consumer_wakes_up(self, shared_store: Store) -> None:
        handlers = {"Placed": Numbers()}
        consumer = new_consumer(
            shared_store, new_category(), "mailer", polling_interval_ms=AN_HOUR, handlers=handlers
        )
        running = Thread(target=consumer.run)
        running.start()

        consumer.stop()

        running.join(timeout=60)
        assert not running.is_alive()

    def test_before_it_runs(self, shared_store: Store) -> None:
        category, numbers = new_category(), Numbers()
        fill(shared_store, category, 2)
        consumer = new_consumer(shared_store, category, "mailer", handlers={"Placed": numbers})
        consumer.stop()

        consumer.run()

        assert (consumer.position, numbers) == (0, [])

    def test_once_stopped_nothing_is_done_with(self, shared_store: Store) -> None:
        category = new_category()
        fill(shared_store, category, 3)
        consumer = new_consumer(shared_store, category, "mailer")
        consumer.handler("Placed")(Numbers(consumer, stop_after=2))

        counts = [consumer.run_once(), consumer.run_once()]

        assert counts == [2, 0]  # so `while consumer.run_once()` ends


class TestTransactional:
    def test_a_failure_leaves_neither_writes_nor_position(self, store: Store) -> None:
        store.write_message("order-1", "Placed")
        consumer = new_consumer(store, "order", "mailer", transactional=True)

        @consumer.handler("Placed")
        def bill(message: RecordedMessage, transaction: Transaction) -> None:
            transaction.write_message("invoice-1", "Billed")
            raise RuntimeError

        with pytest.raises(HandlerFailed):
            consumer.run()

        assert store.stream_version("invoice-1") is None
        assert consumer.position == 0


class TestUntilIdle:
    def test_handles_all_pages_saves_the_position_and_returns_how_many(
        self, any_store: Store
    ) -> None:
        *_, head = fill(any_store, "order", 7)
        numbers = Numbers()
        consumer = new_consumer(any_store, "order", handlers={"Placed": numbers}, batch_size=3)

        handled = consumer.run_until_idle()

        assert (handled, numbers) == (7, list(range(7)))
        assert consumer.position == head
        assert consume(any_store, "order") == []

    def test_of_nothing_is_0(self, any_store: Store) -> None:
        consumer = new_consumer(any_store, "order", handlers={"Placed": Numbers()})

        assert consumer.run_until_idle() == 0

    def test_leaves_what_is_written_meanwhile(self, shared_store: Store) -> None:
        category, numbers = new_category(), []
        fill(shared_store, category, 3)
        consumer = new_consumer(shared_store, category, batch_size=2)

        @consumer.handler("Placed")
        def place_another(message: RecordedMessage) -> None:
            numbers.append(message.data["number"])
            shared_store.write_message(f"{category}-1", "Placed", {"number": 9})

        handled = [consumer.run_until_idle(), consumer.run_until_idle()]

        assert handled == [3, 3]
        assert numbers == [0, 1, 2, 9, 9, 9]

    @pytest.mark.parametrize("category", ["order", "$all"])
    def test_with_a_filter_it_ends_at_the_head(self, store: Store, category: str) -> None:
        *_, head = fill(store, "order", 5)
        consumer = new_consumer(
            store, category, handlers={"Placed": Numbers()}, correlation="nobody", batch_size=1
        )

        assert (consumer.run_until_idle(), consumer.position) == (0, head)

    def test_ends_on_stop_after_the_current_message(self, shared_store: Store) -> None:
        category = new_category()
        fill(shared_store, category, 5)
        consumer = new_consumer(shared_store, category, batch_size=2)
        consumer.handler("Placed")(Numbers(consumer, stop_after=3))

        assert consumer.run_until_idle() == 3
        assert consume(shared_store, category) == [3, 4]

    def test_a_failure_is_raised_and_the_position_before_it_saved(
        self, shared_store: Store
    ) -> None:
        category = new_category()
        fill(shared_store, category, 3)

        def fail_at_1(message: RecordedMessage) -> None:
            if message.data["number"] == 1:
                raise RuntimeError

        with pytest.raises(HandlerFailed):
            new_consumer(shared_store, category, handlers={"Placed": fail_at_1}).run_until_idle()

        assert consume(shared_store, category) == [1, 2]

    def test_retries_parked_messages_that_were_requested(self, shared_store: Store) -> None:
        category, calls = new_category(), []
        positions = fill(shared_store, category, 2)
        consumer = new_consumer(
            shared_store, category, on_failure=FailurePolicy.park(attempts=1), batch_size=1
        )

        @consumer.handler("Placed")
        def fail_once(message: RecordedMessage) -> None:
            calls.append(message.data["number"])
            if calls == [0, 1]:
                raise RuntimeError

        first = consumer.run_until_idle()
        shared_store.admin.retry_parked(category, "mailer", positions[1])
        second = consumer.run_until_idle()

        assert (first, second) == (2, 1)
        assert calls == [0, 1, 1]
        assert shared_store.admin.parked(category, "mailer") == []


class BrokenOff:
    """Positions whose first save is committed and interrupted before the consumer sees that."""

    def __init__(self, positions: Positions, error: BaseException) -> None:
        self._positions = positions
        self._errors = [error]

    def load(self, context: LogContext) -> Operation[StoredPosition]:
        return self._positions.load(context)

    def save(
        self, context: LogContext, stored: StoredPosition, position: int, *, durable: bool = True
    ) -> Operation[StoredPosition]:
        saved = self._positions.save(context, stored, position, durable=durable)

        def decode(rows: list[Row]) -> StoredPosition:
            if self._errors:
                raise self._errors.pop()
            return saved.decode(rows)

        return Operation(saved.name, saved.statements, decode, saved.facts)


@pytest.mark.parametrize("kind", [StreamPositions, TablePositions])
def test_interrupted_while_it_saves_it_says_so_and_goes_on(
    way: Way, shared_store: Store, kind: type[StreamPositions | TablePositions]
) -> None:
    category = new_category()
    positions = fill(shared_store, category, 3)
    numbers = Numbers()
    consumer = new_consumer(
        shared_store,
        category,
        "mailer",
        handlers={"Placed": numbers},
        positions=BrokenOff(kind(category, "mailer"), way.interruption()),
        position_update_interval=2,
    )

    with pytest.raises(way.interruption):
        consumer.run()
    saved = shared_store.run(kind(category, "mailer").load(shared_store.context))
    consumer.run_once()

    assert saved.position == positions[1]
    assert numbers == [0, 1, 2]


class TestUndecodable:
    class Picky(JsonSerializer):
        def decode(self, type: str, text: str) -> dict[str, Any]:
            if '"number": 2' in text:
                raise ValueError("two")
            return super().decode(type, text)

    @pytest.mark.parametrize("options", [{}, {"correlation": "asking"}])
    def test_all_before_it_is_handled_then_it_stops(
        self, way: Way, shared_url: str, shared_store: Store, options: dict[str, Any]
    ) -> None:
        category = new_category()
        for number in range(5):
            metadata = {"correlationStreamName": "asking-1"}
            shared_store.write_message(f"{category}-1", "Placed", {"number": number}, metadata)
        numbers = Numbers()
        with way.connect(shared_url, serializer=self.Picky()) as store:
            consumer = new_consumer(
                store, category, "mailer", handlers={"Placed": numbers}, **options
            )

            with pytest.raises(DecodingError) as raised:
                consumer.run()

        assert numbers == [0, 1]
        assert raised.value.global_position == consumer.position + 1
        assert consume(shared_store, category) == [2, 3, 4]  # with a serializer that can


class Marked:
    @handles("Placed")
    def handle(self, message: RecordedMessage) -> None: ...


class TestBadInput:
    @pytest.mark.parametrize(
        "wrong",
        [
            {"category": "order-1"},
            {"category": ""},
            {"consumer_id": ""},
            {"consumer_id": "a\0b"},
            {"start": -1},
            {"start": "middle"},
            {"batch_size": 0},
            {"batch_size": -1},
            {"polling_interval_ms": 0},
            {"longest_polling_interval_ms": 0},
            {"position_update_interval": 0},
            {"idle_save_delay": -1},
            {"consumer_group_member": 3, "consumer_group_size": 3},
            {"consumer_group_member": 0},
            {"consumer_group_size": 3},
            {"positions": "file"},
            {"positions": object()},
            {"unknown": "panic"},
            {"handlers": object()},
            {"handlers": {"Placed": "print"}},
            {"handlers": {"": print}},
            {"middleware": ["log"]},
            {"middleware": None},
            {"transactional": ""},
            {"positions": TablePositions},
            {"handlers": Marked},
            {"store": None},
        ],
    )
    def test_is_refused_at_once(self, way: Way, shared_store: Store, wrong: dict[str, Any]) -> None:
        right: dict[str, Any] = {"category": "order", "consumer_id": "mailer"}

        with pytest.raises(ValidationError):
            way.Consumer(**{"store": shared_store, **right, **wrong})

    def test_a_store_for_other_code_is_refused(self, store: Any, async_store: Any) -> None:
        with pytest.raises(ValidationError, match=r"connect\(\)"):
            Consumer(async_store, "order", "mailer")
        with pytest.raises(ValidationError, match=r"connect_async\(\)"):
            AsyncConsumer(store, "order", "mailer")

    @pytest.mark.parametrize(
        "options", [{"transactional": True}, {"on_failure": FailurePolicy.park()}]
    )
    def test_so_is_one_that_cannot_begin_a_transaction(
        self, shared_store: Store, options: dict[str, Any]
    ) -> None:
        with shared_store.transaction() as transaction:
            borrowed: Any = shared_store.using(transaction.connection)

            with pytest.raises(ValidationError, match="transaction"):
                new_consumer(borrowed, "order", "mailer", **options)

    @pytest.mark.parametrize("positions", ["table", "hybrid"])
    def test_a_table_that_message_db_does_not_have(
        self, way: Way, new_database: Any, positions: str
    ) -> None:
        with (
            way.connect(new_database("genuine")) as store,
            pytest.raises(UnsupportedEdition),
        ):
            consume(store, "order", positions=positions)


class TestAsync:
    async def test_plain_and_async_handlers(self, async_store: AsyncStore) -> None:
        for number in range(4):
            await async_store.write_message(f"order-{number}", f"Type{number % 2}")
        consumer = AsyncConsumer(async_store, "order", "mailer")
        seen: list[str] = []

        @consumer.handler("Type0")
        def plain(message: RecordedMessage) -> None:
            seen.append(f"plain {message.stream_name}")

        @consumer.handler("Type1")
        async def awaited(message: RecordedMessage) -> None:
            await asyncio.sleep(0)
            seen.append(f"async {message.stream_name}")
            if message.stream_name == "order-3":
                consumer.stop()

        await consumer.run()

        assert seen == ["plain order-0", "async order-1", "plain order-2", "async order-3"]

    async def test_a_cancelled_one_saves_how_far_it_came(self, async_store: AsyncStore) -> None:
        await async_store.write_message("order-1", "Placed", {"number": 1})
        handled = asyncio.Event()
        consumer = AsyncConsumer(
            async_store, "order", "mailer", handlers={"Placed": lambda _: handled.set()}
        )
        running = asyncio.create_task(consumer.run())
        await handled.wait()

        running.cancel()
        await asyncio.wait([running])

        (status,) = await async_store.admin.consumers()
        assert status.position == 1

    async def test_middleware_goes_around_plain_and_async_handlers(
        self, async_store: AsyncStore
    ) -> None:
        await async_store.write_message("order-1", "Placed")
        seen: list[str] = []

        async def around(message: RecordedMessage, call: Any) -> None:
            seen.append("before")
            await call(message)
            seen.append("after")

        consumer = AsyncConsumer(async_store, "order", "mailer", middleware=[around])
        consumer.handler("Placed")(lambda message: seen.append(message.type))
        await consumer.run_once()

        assert seen == ["before", "Placed", "after"]

    async def test_plain_middleware_is_refused(self, async_store: AsyncStore) -> None:
        with pytest.raises(ValidationError, match="async"):
            AsyncConsumer(async_store, "order", "mailer", middleware=[lambda one, call: call(one)])


class Calls(Interceptor):
    def __init__(self) -> None:
        self.names: list[str] = []

    @contextmanager
    def around(self, call: Call) -> Iterator[None]:
        self.names.append(call.name)
        yield


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["get_category_messages"]),
        (
            {"consumer_group_member": 0, "consumer_group_size": 2},
            ["category_head", "get_category_messages"],
        ),
    ],
)
def test_an_idle_look_is_one_query_or_with_a_filter_two(
    way: Way, shared_url: str, options: dict[str, Any], expected: list[str]
) -> None:
    calls = Calls()
    with way.connect(shared_url, interceptors=[calls]) as store:
        handlers = {"Placed": Numbers()}
        consumer = new_consumer(store, new_category(), "mailer", handlers=handlers, **options)
        consumer.run_once()
        calls.names.clear()

        consumer.run_once()

    assert calls.names == expected
