"""Do something later: a reservation that is not paid in time lapses."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import penstock
from penstock import ClaimedMessage, Dispatcher, Store, WrongExpectedVersion

RUN = penstock.new_id().hex
TOPIC = f"lapse {RUN}"


def main() -> None:
    with penstock.connect() as store:
        for seat in (1, 2):
            reserve(store, seat, hold=timedelta(milliseconds=50))
        reserve(store, 3, hold=timedelta(days=1))
        store.write_message(stream_name(2), "Paid", expected_version=0)

        dispatcher = make_dispatcher(store)
        while len(store.outbox.list(topic=TOPIC, state="ready")) > 1:
            dispatcher.run_until_idle()

        for seat in (1, 2, 3):
            print(
                f"seat {seat}:", [message.type for message in store.read_stream(stream_name(seat))]
            )
        (waiting,) = store.outbox.list(topic=TOPIC, state="ready")
        print("due tomorrow:", waiting.payload)


def reserve(store: Store, seat: int, hold: timedelta) -> None:
    """Reserve a seat, and enqueue a check for when its time is up: both, or neither."""
    with store.transaction() as tx:
        tx.write_message(stream_name(seat), "Reserved", expected_version=-1)
        tx.outbox.enqueue(TOPIC, {"seat": seat}, due=datetime.now(UTC) + hold)


def make_dispatcher(store: Store) -> Dispatcher:
    dispatcher = Dispatcher(store)

    @dispatcher.handler(TOPIC)
    def lapse(message: ClaimedMessage) -> None:
        """Give the seat up unless something has happened to it since. May run twice."""
        assert isinstance(message.payload, dict)
        with suppress(WrongExpectedVersion):  # it was paid
            store.write_message(
                stream_name(message.payload["seat"]), "Lapsed", id=message.id, expected_version=0
            )

    return dispatcher


def stream_name(seat: int) -> str:
    return f"seat-{RUN}+{seat}"


if __name__ == "__main__":
    main()

# Output:
# seat 1: ['Reserved', 'Lapsed']
# seat 2: ['Reserved', 'Paid']
# seat 3: ['Reserved']
# due tomorrow: {'seat': 3}
