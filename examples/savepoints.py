"""A part of a transaction may fail and be undone alone; the rest is committed."""

from __future__ import annotations

import penstock
from penstock import Store, WrongExpectedVersion

RUN = penstock.new_id()
VOUCHER = f"voucher-{RUN}"


def main() -> None:
    with penstock.connect() as store:
        store.write_message(VOUCHER, "Issued")

        for number in (1, 2):
            place(store, number)
            order = store.read_stream(stream_name(number))
            print(f"order {number}:", [message.type for message in order])
        print("voucher:", [message.type for message in store.read_stream(VOUCHER)])


def place(store: Store, number: int) -> None:
    """Place an order and redeem the voucher with it, if nobody has done so before."""
    with store.transaction() as tx:
        tx.write_message(stream_name(number), "Placed")
        try:
            with tx.nested():
                tx.write_message(stream_name(number), "Reduced")
                tx.write_message(VOUCHER, "Redeemed", expected_version=0)
        except WrongExpectedVersion:
            tx.write_message(stream_name(number), "VoucherRefused")


def stream_name(number: int) -> str:
    return f"order-{RUN}+{number}"


if __name__ == "__main__":
    main()

# Output:
# order 1: ['Placed', 'Reduced']
# order 2: ['Placed', 'VoucherRefused']
# voucher: ['Issued', 'Redeemed']
