"""Follow a category as it grows, keep the position in the log, and resume where you stopped."""

from __future__ import annotations

import threading

import penstock
from penstock import RecordedMessage, Store

CATEGORY = f"order{penstock.new_id().hex}"  # a category of this run's own
POSITIONS = f"{CATEGORY}:position-mailer"


def main() -> None:
    with penstock.connect() as store:
        place_orders(store, 1, 3)
        follow_until(store, "order 3")

        place_orders(store, 4, 5)  # nobody follows now
        later = threading.Timer(0.2, place_orders, (store, 6, 6))
        later.start()
        follow_until(store, "order 6")


def follow_until(store: Store, last: str) -> None:
    """Handle each message, and remember the position in the same transaction as the effect."""
    saved = store.get_last_stream_message(POSITIONS)
    position = saved.data["position"] + 1 if saved else 1
    print(f"follow from {'the start' if saved is None else 'where I stopped'}")
    for message in store.follow_category(CATEGORY, position):
        with store.transaction() as tx:
            tx.write_message(f"mail-{message.id}", "Sent", {"text": text(message)})
            tx.write_message(POSITIONS, "Recorded", {"position": message.global_position})
        print(f"  mail: {text(message)}")
        if text(message).startswith(last):
            return


def place_orders(store: Store, first: int, last: int) -> None:
    for number in range(first, last + 1):
        store.write_message(f"{CATEGORY}-{number}", "Placed", {"number": number})


def text(message: RecordedMessage) -> str:
    return f"order {message.data['number']} was placed"


if __name__ == "__main__":
    main()

# Output:
# follow from the start
#   mail: order 1 was placed
#   mail: order 2 was placed
#   mail: order 3 was placed
# follow from where I stopped
#   mail: order 4 was placed
#   mail: order 5 was placed
#   mail: order 6 was placed
