"""Commands and their replies: a service reads only the events that answer its own commands."""

from __future__ import annotations

import penstock
from penstock import Message, Store

RUN = penstock.new_id().hex
COMMANDS = f"transfer{RUN}:command"  # categories of this run's own
ACCOUNTS = f"account{RUN}"


def main() -> None:
    with penstock.connect() as store:
        command = Message("Withdraw", {"account": "123", "amount": 50}).with_metadata(
            correlation_id="transfer-1", reply_stream_name="transfer:reply-1"
        )
        store.write_messages(f"{COMMANDS}-1", [command])
        store.write_message(f"{ACCOUNTS}-123", "Deposited", {"amount": 70})  # not ours

        handle_commands(store)

        for event in store.get_category_messages(ACCOUNTS, correlation=COMMANDS):
            print("correlated:", event.type, event.data["amount"])
            print("  correlation:", event.correlation_id)
            print("  caused by the command:", event.causation_id == str(command.id))
            print("  reply to:", event.reply_stream_name)


def handle_commands(store: Store) -> None:
    """The other service: each event follows from its command, and carries its correlation on."""
    for command in store.read_category(COMMANDS):
        event = command.follow("Withdrawn", {"amount": command.data["amount"]})
        store.write_messages(f"{ACCOUNTS}-{command.data['account']}", [event])


if __name__ == "__main__":
    main()

# Output:
# correlated: Withdrawn 50
#   correlation: transfer-1
#   caused by the command: True
#   reply to: transfer:reply-1
