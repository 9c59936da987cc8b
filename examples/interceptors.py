"""Hooks around every operation: stamp what is written, upgrade what is read, trace and measure."""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import msgspec

import penstock
from penstock import (
    Call,
    Interceptor,
    Message,
    PenstockError,
    RecordedMessage,
    WrongExpectedVersion,
)

ACCOUNT = f"account-{penstock.new_id()}"
log = logging.getLogger("bank")


class Trace(Interceptor):
    """Puts the current trace into the metadata of every message that is written."""

    def on_write(self, stream_name: str, message: Message) -> Message:
        return message.with_metadata(trace_id="trace-42")


class Upgrade(Interceptor):
    """Shows messages of an old schema as the new one has them. The log stays as it is."""

    def on_read(self, message: RecordedMessage) -> RecordedMessage:
        if message.type == "Deposited" and "currency" not in message.data:
            return msgspec.structs.replace(message, data={**message.data, "currency": "EUR"})
        return message


class Log(Interceptor):
    """Logs each operation, its facts, and what came of it."""

    @contextmanager
    def around(self, call: Call) -> Iterator[None]:
        try:
            yield
        except PenstockError as error:
            log.warning("%s failed: %s", call.name, type(error).__name__)
            raise
        log.info("%s %s", call.name, sorted(call.facts))


@dataclass
class Metrics(Interceptor):
    """Counts the operations and adds up their time."""

    calls: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @contextmanager
    def around(self, call: Call) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.calls[call.name] += 1
            self.seconds[call.name] += time.perf_counter() - started


def main() -> None:
    logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s", level="INFO")
    metrics = Metrics()
    with penstock.connect(interceptors=[metrics, Log(), Trace(), Upgrade()]) as store:
        store.write_message(ACCOUNT, "Deposited", {"amount": 10})
        with suppress(WrongExpectedVersion):
            store.write_message(ACCOUNT, "Deposited", {"amount": 10}, expected_version=9)
        (message,) = store.get_stream_messages(ACCOUNT)
        print("read:", message.data, message.trace_id)
    print("measured:", dict(metrics.calls))


if __name__ == "__main__":
    main()

# Output:
# INFO write_message ['stream_name', 'type']
# WARNING write_message failed: WrongExpectedVersion
# INFO get_stream_messages ['stream_name']
# read: {'amount': 10, 'currency': 'EUR'} trace-42
# measured: {'write_message': 2, 'get_stream_messages': 1}
