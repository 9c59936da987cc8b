"""Your tables and your messages in one transaction, on a psycopg connection that you own."""

from __future__ import annotations

import psycopg

import penstock
from penstock import Store

RUN = penstock.new_id()


def main() -> None:
    with (
        penstock.connect() as store,
        psycopg.connect(store.settings.conninfo()) as connection,
    ):
        connection.execute("create table if not exists invoices (id text primary key, total int)")
        connection.commit()

        send_invoice(store, connection, f"{RUN}+1", 100)
        try:
            send_invoice(store, connection, f"{RUN}+2", -1)
        except ValueError as error:
            print("refused:", error)

        for number in (1, 2):
            row = connection.execute("select from invoices where id = %s", [f"{RUN}+{number}"])
            message = store.get_last_stream_message(f"invoice-{RUN}+{number}")
            print(f"invoice {number}: row {row.rowcount}, message {message and message.type}")


def send_invoice(store: Store, connection: psycopg.Connection, id: str, total: int) -> None:
    """Insert the row and write the message: both are committed, or neither."""
    with connection.transaction():
        connection.execute("insert into invoices values (%s, %s)", [id, total])
        log = store.using(connection)
        log.write_message(f"invoice-{id}", "Sent", {"total": total}, expected_version=-1)
        if total < 0:
            raise ValueError(f"an invoice over {total}")


if __name__ == "__main__":
    main()

# Output:
# refused: an invoice over -1
# invoice 1: row 1, message Sent
# invoice 2: row 0, message None
