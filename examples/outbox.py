"""Mails that are sent if, and only if, their order is committed."""

from __future__ import annotations

import penstock
from penstock import ClaimedMessage, Dispatcher, FailurePolicy, Store
from penstock.errors import PermanentFailure

RUN = penstock.new_id()


def main() -> None:
    with penstock.connect() as store:
        place(store, 1, "ada@example.org")
        place(store, 2, "nobody")
        try:
            place(store, 3, "bob@example.org", total=-5)
        except ValueError as error:
            print("refused:", error)

        make_dispatcher(store).run_until_idle()

        for number in (1, 2, 3):
            for message in store.get_stream_messages(f"order-{RUN}+{number}"):
                print(f"order {number}: {message.type}")
        for failed in store.outbox.list(topic=f"mail {RUN}", state="failed"):
            print("failed:", failed.last_error)


def place(store: Store, number: int, address: str, total: int = 120) -> None:
    """Place an order and enqueue a mail to its buyer: both are committed, or neither."""
    stream_name = f"order-{RUN}+{number}"
    with store.transaction() as tx:
        tx.write_message(stream_name, "Placed", {"total": total})
        tx.outbox.enqueue(f"mail {RUN}", {"to": address}, dedupe_key=stream_name)
        tx.outbox.enqueue(f"Announced {RUN}", {"order": stream_name})
        if total < 0:
            raise ValueError(f"an order over {total}")


def make_dispatcher(store: Store) -> Dispatcher:
    """Return a dispatcher. A program of yours calls its `run()`."""
    dispatcher = Dispatcher(store, on_failure=FailurePolicy.retry(attempts=5, delay=0.1))

    @dispatcher.handler(f"mail {RUN}")
    def send(message: ClaimedMessage) -> None:
        assert isinstance(message.payload, dict)
        address = message.payload["to"]
        if "@" not in address:
            raise PermanentFailure(f"{address} is no address")
        print("mail to", address)

    dispatcher.publish(f"Announced {RUN}", to_stream=_stream_of, type="Announced")
    return dispatcher


def _stream_of(message: ClaimedMessage) -> str:
    assert isinstance(message.payload, dict)
    return str(message.payload["order"])


if __name__ == "__main__":
    main()

# Output:
# refused: an order over -5
# mail to ada@example.org
# order 1: Placed
# order 1: Announced
# order 2: Placed
# order 2: Announced
# failed: PermanentFailure: nobody is no address
