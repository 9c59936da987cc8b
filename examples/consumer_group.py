"""Share a category among three readers: each stream goes to one of them, in order."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import penstock
from penstock import RecordedMessage, Store
from penstock.message import names

CATEGORY = f"order{penstock.new_id().hex}"  # a category of this run's own
SIZE = 3


def main() -> None:
    with penstock.connect() as store:
        for step in ("Placed", "Paid", "Shipped"):
            for number in range(12):
                store.write_message(f"{CATEGORY}-{number}", step)

        with ThreadPoolExecutor(SIZE) as members:
            shares = list(members.map(lambda member: read_share(store, member), range(SIZE)))

        for member, share in enumerate(shares):
            streams = sorted({int(names.id(message.stream_name) or 0) for message in share})
            print(f"member {member} read {len(share)} messages, of orders {streams}")
        print("all of them:", sum(len(share) for share in shares))
        print("order 7 belongs to member", names.group_member(f"{CATEGORY}-7", SIZE))


def read_share(store: Store, member: int) -> list[RecordedMessage]:
    """Read this member's streams. Each member would keep a position of its own."""
    return list(
        store.read_category(CATEGORY, consumer_group_member=member, consumer_group_size=SIZE)
    )


if __name__ == "__main__":
    main()

# Output:
# member 0 read 9 messages, of orders [1, 4, 5]
# member 1 read 15 messages, of orders [0, 2, 8, 9, 10]
# member 2 read 12 messages, of orders [3, 6, 7, 11]
# all of them: 36
# order 7 belongs to member 2
