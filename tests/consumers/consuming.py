"""What tests of consumers share: categories, messages, handlers that record, and consumers."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from penstock import Consumer, RecordedMessage, Store
from tests.both_ways import way_of

#: so long that a test which waits for it fails
AN_HOUR = 3_600_000


def new_category(base: str = "order") -> str:
    """Return a category that no other test uses."""
    return f"{base}{uuid4().hex}"


def fill(store: Store, category: str, count: int, streams: int = 3) -> list[int]:
    """Write numbered messages to some streams of a category; return their global positions."""
    for number in range(count):
        store.write_message(f"{category}-{number % streams}", "Placed", {"number": number})
    return [one.global_position for one in store.read_category(category)][-count:]


def new_consumer(
    store: Store, category: str, consumer_id: str = "mailer", **options: Any
) -> Consumer:
    """Make a consumer of the store's form: blocking, or async behind a blocking facade."""
    consumer: Consumer = way_of(store).Consumer(store, category, consumer_id, **options)
    return consumer


class Numbers(list[int]):
    """A handler that records the number of each message. Stops its consumer after so many."""

    def __init__(self, consumer: Any = None, stop_after: int = 0) -> None:
        super().__init__()
        self._consumer = consumer
        self._stop_after = stop_after

    def __call__(self, message: RecordedMessage, *transaction: Any) -> None:
        self.append(message.data["number"])
        if self._consumer is not None and len(self) == self._stop_after:
            self._consumer.stop()


def consume(store: Store, category: str, consumer_id: str = "mailer", **options: Any) -> list[int]:
    """Run a consumer until there are no more messages, and return the numbers it handled."""
    numbers = Numbers()
    consumer = new_consumer(store, category, consumer_id, handlers={"Placed": numbers}, **options)
    while consumer.run_once():
        pass
    return numbers


def run_until(consumer: Consumer, count: int) -> list[int]:
    """Run a consumer until it has handled so many messages."""
    numbers = Numbers(consumer, count)
    consumer.handler("Placed")(numbers)
    consumer.run()
    return numbers
