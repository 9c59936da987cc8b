"""Remove the oldest messages: what a consumer still needs stays, and so does each stream's last."""

from __future__ import annotations

from datetime import timedelta

import penstock
from penstock import Consumer, Store
from penstock.admin import Retained

CATEGORY = f"reading{penstock.new_id().hex}"  # a category of this run's own


def main() -> None:
    with penstock.connect() as store:
        for value in range(5):
            for sensor in ("a", "b"):
                store.write_message(f"{CATEGORY}-{sensor}", "Measured", {"value": value})

        print("of the last 30 days:", store.admin.retain(CATEGORY, keep_for=timedelta(days=30)))

        average = Consumer(
            store, CATEGORY, "average", handlers={"Measured": lambda message: None}, batch_size=4
        )
        average.run_once()
        retained = store.admin.retain(CATEGORY, keep_count=2)
        print("keep 2:", retained.removed, "removed;", held_back(retained))

        while average.run_once():
            pass
        print("keep 2:", store.admin.retain(CATEGORY, keep_count=2))
        print("left:", left(store), "and the next position is", next_position(store))


def held_back(retained: Retained) -> str:
    by = retained.held_back_by
    return f"{by.kind} {by.name} needs {by.needs}" if by else "nobody needs the rest"


def left(store: Store) -> list[tuple[str, int]]:
    return [
        (message.stream_name[-1], message.position) for message in store.read_category(CATEGORY)
    ]


def next_position(store: Store) -> int:
    return store.write_message(f"{CATEGORY}-a", "Measured", {"value": 5})


if __name__ == "__main__":
    main()

# Output:
# of the last 30 days: Retained(removed=0, held_back_by=None)
# keep 2: 4 removed; consumer average needs ...
# keep 2: Retained(removed=4, held_back_by=None)
# left: [('a', 4), ('b', 4)] and the next position is 5
