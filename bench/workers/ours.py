"""Penstock: `enqueue_many`, and a `Dispatcher`."""

import json
import sys
import time

import penstock
from penstock import Dispatcher, NewMessage

BATCH = 1000


def main(url: str, count: str, workers: str = "10") -> None:
    if count == "install":
        penstock.install(url)
        return
    with penstock.connect(url) as store:
        dispatcher = Dispatcher(store, concurrency=int(workers))
        dispatcher.handler("noop")(lambda message: None)
        began = time.perf_counter()
        for begin in range(0, int(count), BATCH):
            numbers = range(begin, min(begin + BATCH, int(count)))
            store.outbox.enqueue_many([NewMessage("noop", {"n": n}) for n in numbers])
        enqueued = time.perf_counter()
        handled = dispatcher.run_until_idle()
        ended = time.perf_counter()
    assert handled == int(count)
    print(json.dumps({"enqueue": enqueued - began, "process": ended - enqueued}))


if __name__ == "__main__":
    main(*sys.argv[1:])
