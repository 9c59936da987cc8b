"""A process that writes a message, and is killed after the commit and before the notification."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import penstock
from penstock import Call, Interceptor


class Kill(Interceptor):
    @contextmanager
    def around(self, call: Call) -> Iterator[None]:
        yield
        if call.name == "write_message":
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    store = penstock.connect(sys.argv[1], interceptors=[Kill()])
    store.write_message("order-1", "Placed", {"number": 7})
