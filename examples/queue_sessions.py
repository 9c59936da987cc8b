"""Read a queue with sessions: crash and read again, take over, skip what cannot be read."""

from __future__ import annotations

import penstock
from penstock import CommitMode, Queue
from penstock.errors import SessionFenced, UndecodableRecord

NAME = f"orders-{penstock.new_id()}"  # a queue of this run's own


def main() -> None:
    with penstock.connect() as store:
        orders = store.queue(NAME)
        offsets = orders.offer_many([{"sku": sku} for sku in ("A-1", "B-2", "C-3")])
        print("offered", offsets)

        crash_before_the_commit(orders)
        take_over(orders)

        store.write_message(orders.stream_name, "Surprise", {"not": "a record"})
        orders.offer({"sku": "D-4"})
        read_to_the_end(orders)


def crash_before_the_commit(orders: Queue) -> None:
    """What was not committed comes again."""
    try:
        with orders.create_consumer("billing", CommitMode.MANUAL_COMMIT) as session:
            record = session.poll()
            print("polled ", record and record.offset, "and crash")
            raise ConnectionError
    except ConnectionError:
        pass


def take_over(orders: Queue) -> None:
    """The newest session of a consumer id works; the one before it is fenced."""
    hanging = orders.create_consumer("billing", CommitMode.MANUAL_COMMIT)
    session = orders.create_consumer("billing", CommitMode.MANUAL_COMMIT)
    record = session.poll()
    session.commit()
    print("polled ", record and record.offset, "again, and committed")
    try:
        hanging.poll()
    except SessionFenced:
        print("the session before it is fenced")


def read_to_the_end(orders: Queue) -> None:
    """Handle each record, then commit it. A record that cannot be read is looked at and skipped."""
    with orders.create_consumer("billing", CommitMode.MANUAL_COMMIT) as session:
        while True:
            try:
                record = session.poll(timeout=0.1)
            except UndecodableRecord as error:
                print("skipped", error.offset, "-", error.reason)
                session.skip()
                continue
            if record is None:
                break
            print("handled", record.offset, record.value)
            session.commit()
        print("next is", session.committed_offset())


if __name__ == "__main__":
    main()

# Output:
# offered [0, 1, 2]
# polled  0 and crash
# polled  0 again, and committed
# the session before it is fenced
# handled 1 {'sku': 'B-2'}
# handled 2 {'sku': 'C-3'}
# skipped 3 - a message of type 'Surprise' is not a record
# handled 4 {'sku': 'D-4'}
# next is 5
