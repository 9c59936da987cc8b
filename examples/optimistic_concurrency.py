"""Many decide at once on one stream, and none decides on a stale view: `expected_version`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import penstock
from penstock import Store, WrongExpectedVersion

SHOW = f"show-{penstock.new_id()}"
SEATS = 10


def main() -> None:
    with penstock.connect() as store:
        store.write_message(SHOW, "Announced", {"seats": SEATS})

        stale = store.stream_version(SHOW)
        store.write_message(SHOW, "Booked", {"by": "ada"}, expected_version=stale)
        try:
            store.write_message(SHOW, "Booked", {"by": "ben"}, expected_version=stale)
        except WrongExpectedVersion as error:
            print(f"ben expected version {error.expected}, but ada has made it {error.actual}")

        with ThreadPoolExecutor(8) as clerks:
            answers = list(clerks.map(lambda number: book(store, f"guest {number}"), range(20)))
        print(f"20 guests at once for the other {SEATS - 1} seats: {sum(answers)} booked")


@penstock.retry(attempts=50)  # everybody wants the same stream: somebody always gets on
def book(store: Store, guest: str) -> bool:
    """Book a seat if there is one. Each attempt reads again, so it decides on what is true."""
    messages = list(store.read_stream(SHOW))
    booked = sum(message.type == "Booked" for message in messages)
    if booked == SEATS:
        return False
    store.write_message(SHOW, "Booked", {"by": guest}, expected_version=messages[-1].position)
    return True


if __name__ == "__main__":
    main()

# Output:
# ben expected version 0, but ada has made it 1
# 20 guests at once for the other 9 seats: 9 booked
