"""Filter on the server, with SQL that you wrote: off unless it is switched on."""

from __future__ import annotations

import penstock
from penstock.errors import ConditionNotActivated

ACCOUNT = f"account-{penstock.new_id()}"
LARGE = "type = 'Withdrawn' and (data ->> 'amount')::numeric > 100"


def main() -> None:
    with penstock.connect() as store:
        for type, amount in (("Deposited", 500), ("Withdrawn", 20), ("Withdrawn", 200)):
            store.write_message(ACCOUNT, type, {"amount": amount})
        try:
            store.get_stream_messages(ACCOUNT, condition=LARGE)
        except ConditionNotActivated:
            print("refused: SQL conditions are off")

    with penstock.connect(sql_condition=True) as store:
        for message in store.get_stream_messages(ACCOUNT, condition=LARGE):
            print(message.position, message.type, message.data["amount"])


if __name__ == "__main__":
    main()

# Output:
# refused: SQL conditions are off
# 2 Withdrawn 200
