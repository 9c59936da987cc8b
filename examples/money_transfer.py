"""Move money between two accounts: read, decide and write in one transaction, or not at all."""

from __future__ import annotations

import penstock
from penstock import Message, Store, Transaction

RUN = penstock.new_id()


class InsufficientFunds(Exception):
    """The account holds less than was asked for."""


def main() -> None:
    ada, ben = f"account-{RUN}+ada", f"account-{RUN}+ben"
    with penstock.connect() as store:
        store.write_messages(ada, [Message("Opened"), Message("Deposited", {"amount": 100})])
        store.write_message(ben, "Opened")

        transfer(store, ada, ben, 70)
        print("transferred 70:", balance(store, ada), balance(store, ben))

        try:
            transfer(store, ada, ben, 70)
        except InsufficientFunds as error:
            print("not transferred:", error)
        print("as before:", balance(store, ada), balance(store, ben))


@penstock.retry  # if another transaction was faster, read and decide again
def transfer(store: Store, source: str, target: str, amount: int) -> None:
    transfer_id = penstock.new_id()
    debit = Message("Withdrawn", {"amount": amount, "transfer_id": transfer_id})
    credit = debit.follow("Deposited", debit.data)
    record = credit.follow(
        "Completed", {"amount": amount, "debit_id": debit.id, "credit_id": credit.id}
    )
    with store.transaction() as tx:
        version = tx.stream_version(source)
        if (available := balance(tx, source)) < amount:
            raise InsufficientFunds(f"{available} is less than {amount}")
        tx.write_messages(source, [debit], expected_version=version)
        tx.write_messages(target, [credit])
        tx.write_messages(f"transfer-{transfer_id}", [record], expected_version=-1)


def balance(store: Store | Transaction, account: str) -> int:
    signs = {"Deposited": 1, "Withdrawn": -1}
    return sum(
        signs[message.type] * message.data["amount"]
        for message in store.read_stream(account)
        if message.type in signs
    )


if __name__ == "__main__":
    main()

# Output:
# transferred 70: 30 70
# not transferred: 30 is less than 70
# as before: 30 70
