"""Messages that a consumer cannot handle are parked: look at them, retry one, give one up."""

from __future__ import annotations

import logging

import penstock
from penstock import Consumer, FailurePolicy, RecordedMessage, Store

CATEGORY = f"parcel{penstock.new_id().hex}"  # a category of this run's own
ADDRESSES = {1: "Bern", 3: "Zug"}


def main() -> None:
    with penstock.connect() as store:
        for number in (1, 2, 3, 4):
            store.write_message(f"{CATEGORY}-{number}", "Packed", {"number": number})

        shipper(store).run_once()
        for one in store.admin.parked(CATEGORY, "shipper"):
            print("parked:", one.message.stream_name[-1], one.error, f"({one.attempts} attempts)")

        second, fourth = (
            one.message.global_position for one in store.admin.parked(CATEGORY, "shipper")
        )
        ADDRESSES[2] = "Chur"
        store.admin.retry_parked(CATEGORY, "shipper", second)
        store.admin.drop_parked(CATEGORY, "shipper", fourth)
        shipper(store, until=2).run()
        print("still parked:", store.admin.parked(CATEGORY, "shipper"))


def shipper(store: Store, until: int = 0) -> Consumer:
    """Return a consumer; one that is to run stops after that parcel."""
    consumer = Consumer(
        store, CATEGORY, "shipper", on_failure=FailurePolicy.park(attempts=2, delay=0.01)
    )

    @consumer.handler("Packed")
    def ship(message: RecordedMessage) -> None:
        number = message.data["number"]
        if number not in ADDRESSES:
            raise LookupError("no address")
        print(f"parcel {number} to {ADDRESSES[number]}")
        if number == until:
            consumer.stop()

    return consumer


if __name__ == "__main__":
    logging.getLogger("penstock").setLevel(logging.ERROR)  # failures are shown above
    main()

# Output:
# parcel 1 to Bern
# parcel 3 to Zug
# parked: 2 LookupError: no address (2 attempts)
# parked: 4 LookupError: no address (2 attempts)
# parcel 2 to Chur
# still parked: []
