"""A consumer: handlers by type, a failure that is parked and tried again, and resuming."""

from __future__ import annotations

import logging
from collections.abc import Callable

import penstock
from penstock import Consumer, FailurePolicy, RecordedMessage, Store, handles

CATEGORY = f"order{penstock.new_id().hex}"  # a category of this run's own


class Mailer:
    """Sends a mail for each order, if it can."""

    def __init__(self) -> None:
        self.works = False

    @handles("Placed")
    def confirm(self, message: RecordedMessage) -> None:
        if message.data["number"] == 2 and not self.works:
            raise ConnectionError("the mail server does not answer")
        print(f"  mail: order {message.data['number']} was placed")

    @handles("Shipped")
    def announce(self, message: RecordedMessage) -> None:
        print(f"  mail: order {message.data['number']} is on its way")


def main() -> None:
    with penstock.connect() as store:
        for number in (1, 2, 3):
            store.write_message(f"{CATEGORY}-{number}", "Placed", {"number": number})
        mailer = Mailer()

        print("without a mail server for order 2")
        consumer_of(store, mailer).run_once()
        (waiting,) = store.admin.parked(CATEGORY, "mailer")
        print(f"  parked: {waiting.error}, {waiting.attempts} attempts")

        print("with one")
        mailer.works = True
        store.write_message(f"{CATEGORY}-1", "Shipped", {"number": 1})
        store.admin.retry_parked(CATEGORY, "mailer", waiting.message.global_position)
        consumer = consumer_of(store, mailer, stop_after=2)
        consumer.run()  # a service runs until SIGTERM; this one until two mails are sent
        print(f"parked now: {len(store.admin.parked(CATEGORY, 'mailer'))}")


def consumer_of(store: Store, mailer: Mailer, stop_after: int = 0) -> Consumer:
    """Return a consumer; one with the same id resumes where the last one was."""
    calls = 0

    def count(message: RecordedMessage, call: Callable[[RecordedMessage], None]) -> None:
        nonlocal calls
        call(message)
        calls += 1
        if calls == stop_after:
            consumer.stop()

    consumer = Consumer(
        store,
        CATEGORY,
        "mailer",
        handlers=mailer,
        on_failure=FailurePolicy.park(attempts=2, delay=0.01),
        middleware=[count],
    )
    return consumer


if __name__ == "__main__":
    logging.getLogger("penstock").setLevel(logging.ERROR)  # failures are shown below
    main()

# Output:
# without a mail server for order 2
#   mail: order 1 was placed
#   mail: order 3 was placed
#   parked: ConnectionError: the mail server does not answer, 2 attempts
# with one
#   mail: order 1 is on its way
#   mail: order 2 was placed
# parked now: 0
