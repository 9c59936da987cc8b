"""A small bank on Penstock, from nothing: `make demo`.

It starts a real PostgreSQL in the folder `.penstock`, writes, moves money in a transaction, loses a
race and retries, and lets eight writers write while a reader follows.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from dataclasses import dataclass

import psycopg

import penstock
from penstock import Message, Settings, Store, WrongExpectedVersion

WRITERS = 8
TRANSFERS = 40  # by each writer
ACCOUNT = f"account:{penstock.new_id().hex[-12:]}"  # a category of this run's own


def main() -> None:
    started = time.monotonic()
    # Settings() is all defaults: the embedded server, whatever PENSTOCK_URL may say
    with penstock.connect(Settings()) as store:
        heading(f"PostgreSQL is up in {store.settings.folder}/")
        said(f"the log ends at global position {store.category_head('$all')}")
        open_accounts(store)
        transfer_in_a_transaction(store)
        lose_a_race_and_retry(store)
        complete = write_and_follow(store)
        summary(store)
    print(f"\nDone in {time.monotonic() - started:.1f} s. Run it again: the log stays.")
    if not complete:
        raise SystemExit("The reader did not see every message once, in order: a bug!")


def account(owner: str) -> str:
    return f"{ACCOUNT}-{owner}"


def open_accounts(store: Store) -> None:
    heading("Open accounts")
    for owner, amount in [("ada", 1000), ("ben", 500)]:
        messages = [Message("Opened", {"owner": owner}), Message("Deposited", {"amount": amount})]
        positions = store.write_messages(account(owner), messages, expected_version=-1)
        said(f"{owner}: Opened, Deposited {amount} -> positions {positions}")


def transfer_in_a_transaction(store: Store) -> None:
    heading("Transfer 200 from ada to ben: both messages, or none")
    with store.transaction() as tx:
        tx.write_message(account("ada"), "Withdrawn", {"amount": 200})
        tx.write_message(account("ben"), "Deposited", {"amount": 200})
        said(f"before the commit, others see ada with {balance(store, 'ada').amount}")
    said(f"after it, {balance(store, 'ada').amount}; and ben has {balance(store, 'ben').amount}")


def lose_a_race_and_retry(store: Store) -> None:
    heading("Two clerks withdraw 600 from ada at once: only one may")
    seen = balance(store, "ada")
    store.write_message(account("ada"), "Withdrawn", {"amount": 600}, expected_version=seen.version)
    try:
        store.write_message(
            account("ada"), "Withdrawn", {"amount": 600}, expected_version=seen.version
        )
    except WrongExpectedVersion as error:
        said(f"the second decided on version {error.expected}, the stream is at {error.actual}")
    said(f"it retries, reads again, and {withdraw(store, 'ada', 600)}")


@penstock.retry
def withdraw(store: Store, owner: str, amount: int) -> str:
    """Read, decide, write; if somebody was faster, all of it again."""
    seen = balance(store, owner)
    if seen.amount < amount:
        return f"refuses: {seen.amount} is less than {amount}"
    store.write_message(
        account(owner), "Withdrawn", {"amount": amount}, expected_version=seen.version
    )
    return f"withdraws {amount}"


@dataclass
class Balance:
    amount: int = 0
    version: int = -1


def balance(store: Store, owner: str) -> Balance:
    """Project the account's messages onto its balance."""
    result = Balance()
    for message in store.read_stream(account(owner)):
        sign = {"Deposited": 1, "Withdrawn": -1}.get(message.type, 0)
        result = Balance(result.amount + sign * message.data.get("amount", 0), message.position)
    return result


def write_and_follow(store: Store) -> bool:
    heading(f"{WRITERS} writers at once, and a reader that follows the category")
    done = threading.Event()
    followed: list[int] = []
    tailed: list[int] = []
    readers = [
        threading.Thread(target=follow, args=(store, done, followed)),
        threading.Thread(target=tail, args=(store, done, tailed)),
    ]
    writers = [threading.Thread(target=write_transfers, args=(store, n)) for n in range(WRITERS)]
    started = time.monotonic()
    for thread in [*readers, *writers]:
        thread.start()
    for thread in writers:
        thread.join()
    seconds = time.monotonic() - started
    done.set()
    for thread in readers:
        thread.join()

    written = [message.global_position for message in store.read_category(ACCOUNT)]
    said(f"{WRITERS * TRANSFERS} transfers, {len(written)} messages in all, {seconds:.1f} s")
    said(f"follow_category() missed {len(set(written) - set(followed))}")
    said(f"`select ... where global_position > last` missed {len(set(written) - set(tailed))}")
    return followed == written


def write_transfers(store: Store, number: int) -> None:
    """Transfers that take their time before they commit, and so commit out of order."""
    dice = random.Random(number)
    for _ in range(TRANSFERS):
        with store.transaction() as tx:
            tx.write_message(account(f"payer{number}"), "Withdrawn", {"amount": 1})
            tx.write_message(account(f"payee{dice.randrange(1000)}"), "Deposited", {"amount": 1})
            time.sleep(dice.uniform(0, 0.01))


def follow(store: Store, done: threading.Event, seen: list[int]) -> None:
    """Read on as messages come, and at the end what has come since the last look."""
    messages = store.follow_category(ACCOUNT, polling_interval_ms=5, stop=done.is_set)
    seen.extend(message.global_position for message in messages)
    seen.extend(rest.global_position for rest in store.read_category(ACCOUNT, seen[-1] + 1))


def tail(store: Store, done: threading.Event, seen: list[int]) -> None:
    """The same with plain SQL, as many a home-made event table is read: it passes over messages."""
    finished = False
    with psycopg.connect(store.settings.conninfo(), autocommit=True) as connection:
        while not finished:
            finished = done.is_set()
            rows = connection.execute(
                "select global_position from message_store.messages"
                " where message_store.category(stream_name) = %s and global_position > %s"
                " order by global_position",
                [ACCOUNT, seen[-1] if seen else 0],
            )
            seen.extend(position for (position,) in rows)
            time.sleep(0.005)


def summary(store: Store) -> None:
    heading("This run's messages by type")
    counts: dict[str, list[int]] = {}
    for message in store.read_category(ACCOUNT):
        counts.setdefault(message.type, []).append(message.data.get("amount", 0))
    rows = [(type, len(amounts), sum(amounts)) for type, amounts in sorted(counts.items())]
    table([("type", "messages", "amount"), *rows])


def heading(text: str) -> None:
    bold, plain = ("\033[1;36m", "\033[0m") if sys.stdout.isatty() else ("", "")
    print(f"\n{bold}{text}{plain}")


def said(text: str) -> None:
    print(f"  {text}", flush=True)


def table(rows: list[tuple[object, ...]]) -> None:
    """Print rows as columns; the first row is the heading."""
    widths = [max(len(str(row[column])) for row in rows) for column in range(len(rows[0]))]
    rows.insert(1, tuple("-" * width for width in widths))
    for first, *others in rows:
        numbers = [str(value).rjust(width) for value, width in zip(others, widths[1:], strict=True)]
        said("  ".join([str(first).ljust(widths[0]), *numbers]))


if __name__ == "__main__":
    main()

# Output:
# PostgreSQL is up in .penstock/
#   the log ends at global position ...
# Open accounts
#   ada: Opened, Deposited 1000 -> positions [0, 1]
#   ben: Opened, Deposited 500 -> positions [0, 1]
# Transfer 200 from ada to ben: both messages, or none
#   before the commit, others see ada with 1000
#   after it, 800; and ben has 700
# Two clerks withdraw 600 from ada at once: only one may
#   the second decided on version 2, the stream is at 3
#   it retries, reads again, and refuses: 200 is less than 600
# 8 writers at once, and a reader that follows the category
#   320 transfers, 647 messages in all, ... s
#   follow_category() missed 0
#   `select ... where global_position > last` missed ...
# This run's messages by type
#   type       messages  amount
#   ---------  --------  ------
#   Deposited       323    2020
#   Opened            2       0
#   Withdrawn       322    1120
# Done in ... s. Run it again: the log stays.
