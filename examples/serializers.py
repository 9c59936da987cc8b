"""Values that JSON does not know: how to write them, and how to get them back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

import msgspec

import penstock
from penstock import SerializerByType
from penstock.errors import DecodingError

STAY = f"stay-{penstock.new_id()}"


class Booked(msgspec.Struct):
    room: int
    arrival: date


class BookedSerializer:
    """Gives the date back as a date. It is asked for the one type that it is registered for."""

    def encode(self, type: str, value: Mapping[str, Any]) -> str:
        return msgspec.json.encode(value).decode()

    def decode(self, type: str, text: str) -> dict[str, Any]:
        return msgspec.structs.asdict(msgspec.json.decode(text, type=Booked))


def main() -> None:
    serializer = SerializerByType({"Booked": BookedSerializer()})
    with penstock.connect(serializer=serializer) as store, penstock.connect() as plain:
        store.write_message(STAY, "Booked", {"room": 7, "arrival": date(2026, 1, 31)})
        (message,) = store.get_stream_messages(STAY)
        print("departure:", message.data["arrival"] + timedelta(days=1))
        (message,) = plain.get_stream_messages(STAY)
        print("as others see it:", message.data)

        plain.write_message(STAY, "Booked", {"room": "seven", "arrival": "soon"})
        try:
            store.get_stream_messages(STAY)
        except DecodingError as error:
            print(f"position {error.position}:", error.reason)


if __name__ == "__main__":
    main()

# Output:
# departure: 2026-02-01
# as others see it: {'room': 7, 'arrival': '2026-01-31'}
# position 1: Expected `int`, got `str` - at `$.room`
