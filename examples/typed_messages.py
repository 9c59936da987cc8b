"""A class for each message: checked when made, found by its attributes, upgraded when read."""

from __future__ import annotations

import penstock
from penstock import TypedMessage, typed
from penstock.errors import ValidationError

RUN = str(penstock.new_id())


class RoomBooked(TypedMessage, type="room.booked", unindexed=["note"]):
    hotel: str
    guest: str
    note: str | None = None


class VoucherRedeemed(
    TypedMessage,
    type="voucher.redeemed",
    schema_version="2",
    upcasters={None: lambda data: {"hotel": data["hotel"], "guest": data["name"]}},
):
    """The messages of before had no schema version, and called the guest `name`."""

    hotel: str
    guest: str


def main() -> None:
    with penstock.connect() as store:
        store.append([RoomBooked(hotel=RUN, guest=guest) for guest in ("ada", "ben")])
        messages, _ = store.read(RoomBooked.to_conditions(hotel=RUN, guest="ben"))
        print("found by hotel and guest:", [message.data["guest"] for message in messages])

        try:
            RoomBooked(hotel=RUN, guest=7)  # type: ignore[arg-type]
        except ValidationError:
            print("refused: a guest is a text")

        stream_name = f"voucher-{RUN}"
        store.write_message(stream_name, "voucher.redeemed", {"hotel": RUN, "name": "eve"})
        store.write_message(stream_name, VoucherRedeemed(hotel=RUN, guest="joe"))
        for message in store.read_stream(stream_name):
            redeemed = typed(message)
            assert isinstance(redeemed, VoucherRedeemed)
            print(f"written with {sorted(message.data)}, read as", redeemed.guest)


if __name__ == "__main__":
    main()

# Output:
# found by hotel and guest: ['ben']
# refused: a guest is a text
# written with ['hotel', 'name'], read as eve
# written with ['guest', 'hotel'], read as joe
