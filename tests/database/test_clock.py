"""All ages are by the server's clock, however wrong the application's is.

The application is a process whose Python believes that it is two days later, or earlier.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from penstock import Store, TypedMessage


class Seen(TypedMessage, type="clock.seen"):
    device_id: str


SKEW = """
import datetime, sys, time

days = float(sys.argv[1])

class Skewed(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return super().now(tz) + datetime.timedelta(days=days)

    @classmethod
    def utcnow(cls):
        return cls.now(datetime.UTC).replace(tzinfo=None)

datetime.datetime, real = Skewed, time.time
time.time = lambda: real() + 86_400 * days
time.time_ns = lambda: int(time.time() * 1_000_000_000)

"""

ASK = """
import json, penstock
from datetime import timedelta
with penstock.connect(sys.argv[2]) as store:
    print(json.dumps(eval(sys.argv[3])))
"""

COMMAND = """
from penstock.cli import main
sys.argv = ["penstock", *sys.argv[3:], "--url", sys.argv[2]]
main()
"""

ahead_and_behind = pytest.mark.parametrize("days", [2, -2])


def run(days: int, code: str, url: str, *arguments: str) -> str:
    """Return what an application prints whose clock is so many days ahead."""
    command = [sys.executable, "-c", SKEW + code, str(days), url, *arguments]
    return subprocess.check_output(command, text=True)


def ask(days: int, url: str, question: str) -> object:
    """Return what such an application finds."""
    return json.loads(run(days, ASK, url, question))


@ahead_and_behind
@pytest.mark.parametrize("target", ["order", "order-1"])
def test_retention_goes_by_the_servers(
    store: Store, database_url: str, days: int, target: str
) -> None:
    for _ in range(3):
        store.write_message("order-1", "Placed")
    with store.transaction() as transaction:
        transaction.connection.execute(
            "update message_store.messages set time = time - interval '30 hours' where position = 0"
        )

    removed = ask(
        days, database_url, f"store.admin.retain({target!r}, keep_for=timedelta(days=1)).removed"
    )

    assert removed == 1


@ahead_and_behind
def test_the_outbox_is_cleaned_up_by_the_servers(
    store: Store, database_url: str, days: int
) -> None:
    for _ in range(2):
        store.outbox.enqueue("mail", b"hello")
    first, second = store.outbox.claim("owner", limit=2)
    store.outbox.ack(first)
    store.outbox.ack(second)
    with store.transaction() as transaction:
        transaction.connection.execute(
            "update penstock.outbox set finished_at = finished_at - interval '30 hours'"
            " where id = %s",
            (first.id,),
        )

    removed = ask(days, database_url, "store.outbox.clean_up(timedelta(days=1))")

    assert removed == 1


@ahead_and_behind
def test_a_backlog_is_as_old_as_the_server_says(store: Store, database_url: str, days: int) -> None:
    store.write_message("order-1", "Placed")
    store.admin.seek("order", "mailer", 0)
    store.queue("mail").offer("hello")
    store.queue("mail").create_consumer("reader")

    seconds = ask(
        days,
        database_url,
        "[one.seconds_behind for one in [*store.admin.consumers(), *store.admin.sessions()]]",
    )

    assert isinstance(seconds, list)
    assert [0 < one < 3600 for one in seconds] == [True, True]
    assert " d " not in run(days, COMMAND, database_url, "consumers")


@ahead_and_behind
def test_what_is_enqueued_is_due_and_a_lease_lasts(
    store: Store, database_url: str, days: int
) -> None:
    store.outbox.enqueue("mail", b"hello")

    claimed = ask(
        days,
        database_url,
        "[len(store.outbox.claim('one', lease=60)), len(store.outbox.claim('two', lease=60))]",
    )

    assert claimed == [1, 0]
    assert store.outbox.claim("three") == []


@ahead_and_behind
def test_groups_wait_as_long_as_the_server_says(store: Store, database_url: str, days: int) -> None:
    store.append(Seen(device_id="1"))
    store.groups.register("devices")
    store.groups.claim_next("devices", partition_by="device_id", handled_types=[Seen])

    shown = run(days, COMMAND, database_url, "groups").splitlines()[1].split()

    assert shown[:2] == ["devices", "active"]
    assert shown[-1] == "s"
    assert 0 <= int(shown[-2]) < 3600
