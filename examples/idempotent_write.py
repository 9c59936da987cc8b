"""Write as often as you like: with the same id, a message is written once."""

from __future__ import annotations

from uuid import UUID, uuid5

import penstock
from penstock import Message, Store
from penstock.errors import DuplicateMessageId

COMMAND = penstock.new_id()
ACCOUNT = f"account-{penstock.new_id()}"


def main() -> None:
    with penstock.connect() as store:
        print("first:", handle(store, COMMAND, ACCOUNT))
        print("again:", handle(store, COMMAND, ACCOUNT))
        print("messages in the stream:", len(store.get_stream_messages(ACCOUNT)))

        batch = [Message("Deposited", {"amount": amount}) for amount in (1, 2, 3)]
        print("batch:", store.write_messages(ACCOUNT, batch, expected_version=0))
        print("again:", store.write_messages(ACCOUNT, batch, expected_version=0))

        try:
            store.write_message("account-other", "Deposited", id=batch[0].id)
        except DuplicateMessageId as error:
            print("an id is one message's:", error.stream_name == ACCOUNT)


def handle(store: Store, command: UUID, account: str) -> int:
    """Deposit once, however often the command is delivered: its id decides the event's id."""
    event = uuid5(command, account)
    return store.write_message(account, "Deposited", {"amount": 50}, id=event, expected_version=-1)


if __name__ == "__main__":
    main()

# Output:
# first: 0
# again: 0
# messages in the stream: 1
# batch: [1, 2, 3]
# again: [1, 2, 3]
# an id is one message's: True
