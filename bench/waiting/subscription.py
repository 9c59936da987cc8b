"""eventsourcing: the subscription of its PostgreSQL application recorder, which listens."""

import sys
import threading
import time
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

from eventsourcing.persistence import StoredEvent
from eventsourcing.postgres import PostgresFactory
from eventsourcing.utils import Environment


def recorder(url: str) -> Any:
    parts = urlsplit(url)
    asked = parse_qs(parts.query)
    environment = {
        "POSTGRES_DBNAME": parts.path.strip("/"),
        "POSTGRES_HOST": asked["host"][0],
        "POSTGRES_PORT": asked["port"][0],
        "POSTGRES_USER": parts.username or "postgres",
        "POSTGRES_PASSWORD": "none",
    }
    return PostgresFactory(Environment(env=environment)).application_recorder()


def main(url: str, what: str, kind: str = "", count: str = "0", pause: str = "0") -> None:
    events = recorder(url)
    if what == "install":
        return
    if what == "wait":
        threading.Timer(2.0, lambda: print("ready", flush=True)).start()
        with events.subscribe() as subscription:
            for _ in subscription:
                print(time.monotonic(), flush=True)
    for number in range(int(count)):
        time.sleep(float(pause))
        events.insert_events([StoredEvent(uuid4(), number, "Sold", b"{}")])
        print(time.monotonic(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
