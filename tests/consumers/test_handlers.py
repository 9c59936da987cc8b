"""Which handler gets a message, and middleware around handlers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import pytest

from penstock import Consumer, FailurePolicy, RecordedMessage, Store, handles
from penstock.errors import HandlerFailed, UnhandledMessageType, ValidationError
from tests.both_ways import Way
from tests.consumers.consuming import new_category, new_consumer


@pytest.fixture
def category(shared_store: Store) -> str:
    """A category with one message of each of three types."""
    name = new_category()
    for type in ("Placed", "Paid", "Shipped"):
        shared_store.write_message(f"{name}-1", type)
    return name


class Seen(list[str]):
    """Handlers that record their messages."""

    def by(self, name: str) -> Callable[..., None]:
        return lambda message, *more: self.append(f"{name} {message.type}")


class TestRoutes:
    def test_a_decorator_names_one_type_or_several(
        self, shared_store: Store, category: str
    ) -> None:
        seen, consumer = Seen(), new_consumer(shared_store, category, "mailer")
        consumer.handler("Placed")(seen.by("one"))
        consumer.handler("Paid", "Shipped")(seen.by("two"))

        consumer.run_once()

        assert seen == ["one Placed", "two Paid", "two Shipped"]

    def test_a_decorated_function_stays_what_it_was(self, shared_store: Store) -> None:
        def handler(message: RecordedMessage) -> None: ...

        assert new_consumer(shared_store, "order", "mailer").handler("Placed")(handler) is handler

    def test_a_mapping(self, shared_store: Store, category: str) -> None:
        seen = Seen()
        handlers = {"Placed": seen.by("placed"), "Paid": seen.by("paid")}

        new_consumer(shared_store, category, "mailer", handlers=handlers).run_once()

        assert seen == ["placed Placed", "paid Paid"]

    def test_an_object_with_marked_methods(self, shared_store: Store, category: str) -> None:
        class Mailer:
            def __init__(self) -> None:
                self.seen: list[str] = []

            @handles("Placed", "Paid")
            def mail(self, message: RecordedMessage) -> None:
                self.seen.append(f"mail {message.type}")

            @handles()
            def other(self, message: RecordedMessage) -> None:
                self.seen.append(f"other {message.type}")

            def unmarked(self, message: RecordedMessage) -> None:
                raise AssertionError

        mailer = Mailer()

        new_consumer(shared_store, category, "mailer", handlers=mailer).run_once()

        assert mailer.seen == ["mail Placed", "mail Paid", "other Shipped"]

    def test_a_catch_all_gets_what_no_other_takes(self, shared_store: Store, category: str) -> None:
        seen, consumer = Seen(), new_consumer(shared_store, category, "mailer")
        consumer.handler("Paid")(seen.by("paid"))
        consumer.handler()(seen.by("other"))

        consumer.run_once()

        assert seen == ["other Placed", "paid Paid", "other Shipped"]

    def test_one_type_has_one_handler(self, shared_store: Store) -> None:
        consumer = new_consumer(shared_store, "order", "mailer", handlers={"Placed": print})

        with pytest.raises(ValidationError, match="one handler only"):
            consumer.handler("Placed")(print)

    def test_there_is_one_catch_all(self, shared_store: Store) -> None:
        consumer = new_consumer(shared_store, "order", "mailer")
        consumer.handler()(print)

        with pytest.raises(ValidationError, match="the only one"):
            consumer.handler()(print)


class TestMistakes:
    """Mistakes that would make a consumer ignore every message without an error."""

    def test_a_decorator_without_parentheses_is_refused(self, shared_store: Store) -> None:
        consumer: Any = new_consumer(shared_store, "order", "mailer")

        with pytest.raises(ValidationError, match=r"write @handler\(\)"):
            consumer.handler(print)

    def test_so_is_a_mark_without_them(self) -> None:
        mark: Any = handles

        with pytest.raises(ValidationError, match=r"write @handles\(\)"):
            mark(print)

    @pytest.mark.parametrize("wrong", ["", 7, None])
    def test_a_type_that_is_none_is_refused_where_it_is_named(
        self, shared_store: Store, wrong: Any
    ) -> None:
        for decorator in (handles, new_consumer(shared_store, "order", "mailer").handler):
            with pytest.raises(ValidationError, match="type"):
                decorator(wrong)

    @pytest.mark.parametrize("handlers", [None, {}])
    def test_a_consumer_without_handlers_does_not_begin(
        self, shared_store: Store, category: str, handlers: Any
    ) -> None:
        consumer = new_consumer(shared_store, category, "mailer", handlers=handlers)

        for run in (consumer.run, consumer.run_once, consumer.run_until_idle):
            with pytest.raises(ValidationError, match="at least one"):
                run()

        assert consumer.position == 0

    def test_unless_it_refuses_what_no_handler_takes(
        self, shared_store: Store, category: str
    ) -> None:
        with pytest.raises(UnhandledMessageType):
            new_consumer(shared_store, category, "mailer", unknown="refuse").run_once()


def yielding(message: RecordedMessage, *more: Any) -> Iterator[None]:
    yield


async def yielding_later(message: RecordedMessage, *more: Any) -> AsyncIterator[None]:
    yield


class Yielding:
    def __call__(self, message: RecordedMessage, *more: Any) -> Iterator[None]:
        yield


class TestGenerators:
    @pytest.mark.parametrize("handler", [yielding, yielding_later, partial(yielding), Yielding()])
    def test_are_refused(self, way: Way, shared_store: Store, handler: Any) -> None:
        with pytest.raises(ValidationError, match="without yield"):
            new_consumer(shared_store, "order", handlers={"Placed": way.as_is(handler)})

    def test_as_middleware_too(self, way: Way, shared_store: Store) -> None:
        with pytest.raises(ValidationError, match="middleware"):
            new_consumer(shared_store, "order", middleware=[way.as_is(yielding)])

    @pytest.mark.parametrize("handler", [yielding, yielding_later])
    def test_one_in_disguise_is_not_taken_for_done(
        self, shared_store: Store, category: str, handler: Any
    ) -> None:
        handlers = {"Placed": lambda message: handler(message)}
        consumer = new_consumer(shared_store, category, "mailer", handlers=handlers)

        with pytest.raises(HandlerFailed, match="without yield"):
            consumer.run_once()

        assert consumer.position == 0


class TestUnknownTypes:
    def test_are_ignored(self, shared_store: Store, category: str) -> None:
        consumer = new_consumer(
            shared_store, category, "mailer", handlers={"Placed": lambda _: None}
        )

        assert consumer.run_once() == 3
        assert consumer.run_once() == 0

    def test_or_refused_after_all_before_them(self, shared_store: Store, category: str) -> None:
        seen = Seen()
        consumer = new_consumer(
            shared_store,
            category,
            "mailer",
            handlers={"Placed": seen.by("one")},
            unknown="refuse",
            on_failure=FailurePolicy.park(),
        )

        with pytest.raises(UnhandledMessageType, match="Paid") as raised:
            consumer.run()

        assert seen == ["one Placed"]
        assert raised.value.global_position > consumer.position


class TestMiddleware:
    def test_the_first_is_outermost(self, shared_store: Store, category: str) -> None:
        seen: list[str] = []

        def around(name: str, message: RecordedMessage, call: Callable[..., Any]) -> Any:
            seen.append(f"{name} before {message.type}")
            result = call(message)
            seen.append(f"{name} after")
            return result

        new_consumer(
            shared_store,
            category,
            "mailer",
            handlers={"Placed": lambda message: seen.append("handled")},
            middleware=[partial(around, "outer"), partial(around, "inner")],
        ).run_once()

        assert seen == [
            "outer before Placed",
            "inner before Placed",
            "handled",
            "inner after",
            "outer after",
        ]

    def test_it_sees_the_failure_and_may_not_hide_the_position(
        self, shared_store: Store, category: str
    ) -> None:
        failures: list[str] = []

        def measure(message: RecordedMessage, call: Callable[..., Any]) -> None:
            try:
                call(message)
            except ZeroDivisionError as error:
                failures.append(str(error))
                raise

        consumer = new_consumer(
            shared_store,
            category,
            "mailer",
            handlers={"Placed": lambda message: 1 / 0},
            middleware=[measure],
        )

        with pytest.raises(HandlerFailed):
            consumer.run_once()

        assert failures == ["division by zero"]
        assert consumer.position == 0

    def test_it_may_change_the_message_or_leave_it_out(
        self, shared_store: Store, category: str
    ) -> None:
        seen = Seen()

        def only_paid(message: RecordedMessage, call: Callable[..., Any]) -> None:
            if message.type == "Paid":
                call(message)

        consumer = new_consumer(shared_store, category, "mailer", middleware=[only_paid])
        consumer.handler()(seen.by("all"))

        assert consumer.run_once() == 3
        assert seen == ["all Paid"]
        assert consumer.run_once() == 0


async def later(message: RecordedMessage, *more: Any) -> None:
    raise AssertionError("nobody awaits it")


class Later:
    async def __call__(self, message: RecordedMessage, *more: Any) -> None:
        raise AssertionError("nobody awaits it")


class TestAsyncInABlockingConsumer:
    @pytest.fixture
    def blocking_store(self, shared_stores: dict[bool, Store]) -> Store:
        return shared_stores[False]

    @pytest.mark.parametrize("handler", [later, partial(later), Later()])
    def test_a_handler_is_refused(self, blocking_store: Store, handler: Any) -> None:
        consumer = Consumer(blocking_store, "order", "mailer", handlers={"Placed": handler})

        for run in (consumer.run, consumer.run_once, consumer.run_until_idle):
            with pytest.raises(ValidationError, match="AsyncConsumer takes async ones"):
                run()

    def test_one_in_disguise_is_not_taken_for_done(self, blocking_store: Store) -> None:
        category = new_category()
        blocking_store.write_message(f"{category}-1", "Placed")
        handlers = {"Placed": lambda message: later(message)}
        consumer = Consumer(blocking_store, category, "mailer", handlers=handlers)

        with pytest.raises(HandlerFailed, match="async form"):
            consumer.run_once()

        assert consumer.position == 0

    @pytest.mark.parametrize("middleware", [later, Later()])
    def test_middleware_is_refused(self, blocking_store: Store, middleware: Any) -> None:
        with pytest.raises(ValidationError, match="a plain function"):
            Consumer(blocking_store, "order", "mailer", middleware=[middleware])
