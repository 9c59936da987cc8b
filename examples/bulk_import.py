"""Import rows of a table into many streams: a thousand in a call, and safe to run again."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from uuid import NAMESPACE_URL, uuid5

import penstock
from penstock import Message

ACCOUNTS = 2500
RUN = penstock.new_id().hex


def main() -> None:
    with penstock.connect() as store:
        for attempt in ("first", "again"):
            written = [store.write_many(batch) for batch in batches(rows())]
            print(f"{attempt}: {len(written)} calls, {sum(map(len, written))} messages")
        print("the last stream:", store.stream_version(f"account-{RUN}{ACCOUNTS - 1}"))


def rows() -> Iterator[tuple[str, Message]]:
    """Return a stream and a message for each row. The same row gets the same id each time."""
    for number in range(ACCOUNTS):
        stream_name = f"account-{RUN}{number}"
        id = uuid5(NAMESPACE_URL, stream_name)
        yield stream_name, Message("Imported", {"number": number}, id=id)


def batches(all_rows: Iterator[tuple[str, Message]]) -> Iterator[list[tuple[str, Message]]]:
    while batch := list(islice(all_rows, 1000)):
        yield batch


if __name__ == "__main__":
    main()

# Output:
# first: 3 calls, 2500 messages
# again: 3 calls, 2500 messages
# the last stream: 0
