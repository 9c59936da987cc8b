"""A projection: events of each account folded into a row of a table, then folded anew."""

from __future__ import annotations

from typing import Any

import psycopg

import penstock
from penstock import RecordedMessage, Store
from penstock.pipeline import Pipeline, Runner
from penstock.spark import session

CATEGORY = f"purse{penstock.new_id().hex}"
TABLE = f"balances_{penstock.new_id().hex}"

pipe = Pipeline(TABLE)
pipe.schema(CATEGORY)


@pipe.project(CATEGORY, into=TABLE, columns="owner string, balance long")
def balances(state: dict[str, Any] | None, message: RecordedMessage) -> dict[str, Any] | None:
    """Return the row of an account after one more event; None once it is closed."""
    match message.type:
        case "Opened":
            return {"owner": message.data["owner"], "balance": 0}
        case "Deposited" if state is not None:
            return state | {"balance": state["balance"] + message.data["amount"]}
        case "Closed":
            return None
    return state


def main() -> None:
    with penstock.connect() as store, session() as spark:
        runner = Runner(pipe, store, spark)
        write(store, 1, ("Opened", {"owner": "Ada"}), ("Deposited", {"amount": 50}))
        write(store, 2, ("Opened", {"owner": "Ben"}), ("Deposited", {"amount": 9}))
        runner.run_until_idle()
        print("at first:", rows(store))

        write(store, 1, ("Deposited", {"amount": 20}))
        write(store, 2, ("Closed", {}))
        runner.run_until_idle()
        print("two events later:", rows(store))

        runner.from_scratch()
        print("not yet rebuilt, and the old table is there:", rows(store))
        runner.run_until_idle()
        print("rebuilt:", rows(store))


def write(store: Store, number: int, *events: tuple[str, dict[str, Any]]) -> None:
    for type, data in events:
        store.write_message(f"{CATEGORY}-{number}", type, data)


def rows(store: Store) -> list[tuple[Any, ...]]:
    query = f"select owner, balance, position from {TABLE} order by owner"  # noqa: S608
    with psycopg.connect(store.settings.conninfo()) as connection:
        return connection.execute(query.encode()).fetchall()


if __name__ == "__main__":
    main()

# Output:
# at first: [('Ada', 50, 1), ('Ben', 9, 1)]
# two events later: [('Ada', 70, 2)]
# not yet rebuilt, and the old table is there: [('Ada', 70, 2)]
# rebuilt: [('Ada', 70, 2)]
