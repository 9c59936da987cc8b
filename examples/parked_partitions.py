"""Poison stops its partition and not the group: it is parked, mended, and resumed in order."""

from __future__ import annotations

import logging

import penstock
from penstock import Claim, FailurePolicy, TypedMessage, Worker

RUN = str(penstock.new_id())
GROUP = f"meters {RUN}"
BROKEN = {"kitchen"}


class MeterRead(TypedMessage, type="meter.read"):
    run: str
    meter: str
    value: int


def book(claim: Claim) -> None:
    """Book the values of one meter, in order."""
    meter = claim.partition_value["meter"]
    if meter in BROKEN:
        raise ValueError(f"the {meter} meter runs backwards")
    print(f"booked {meter}:", [message.data["value"] for message in claim.messages])


def main() -> None:
    with penstock.connect() as store:
        for value in (1, 2):
            store.append(
                [MeterRead(run=RUN, meter=meter, value=value) for meter in ("kitchen", "bath")]
            )
        worker = Worker(
            store,
            GROUP,
            lambda claim: book(claim) if claim.partition_value["run"] == RUN else None,
            partition_by=["run", "meter"],
            handled_types=[MeterRead],
            on_failure=FailurePolicy.park(attempts=1),
        )
        worker.run_until_idle()
        for parked in store.groups.parked(GROUP):
            print("parked:", parked.error)

        BROKEN.clear()
        print("resumed:", store.groups.resume(GROUP))
        worker.run_until_idle()


if __name__ == "__main__":
    logging.getLogger("penstock").setLevel(logging.ERROR)  # failures are shown above
    main()

# Output:
# booked bath: [1, 2]
# parked: ValueError: the kitchen meter runs backwards
# resumed: 1
# booked kitchen: [1, 2]
