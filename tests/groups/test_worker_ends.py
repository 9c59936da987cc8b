"""How a worker ends (signals, exits, cancellation), and what only an async worker can do.

Both kinds of worker run in the main thread here, as programs run them.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import AsyncStore, AsyncWorker, Claim, FailurePolicy, Store, Worker
from penstock.errors import ValidationError
from tests.forked_python import ROOT, penstock_server
from tests.groups.school import DeviceRemoved, DeviceSeen, claim_device
from tests.outbox.outboxes import sql
from tests.racing import wait_until

Handler = Callable[[Claim], Any]
TERMS: dict[str, Any] = {
    "partition_by": "device_id",
    "handled_types": [DeviceSeen],
    "batch_size": 1,
}


def run(url: str, handler: Handler, call: str, **options: Any) -> Any:
    """Call a method of a worker."""
    with penstock.connect(url) as store:
        return getattr(Worker(store, "group", handler, **TERMS, **options), call)()


def run_async(url: str, handler: Handler, call: str, **options: Any) -> Any:
    """Call a method of an async worker, in an event loop of its own."""

    async def main() -> Any:
        async with await penstock.connect_async(url) as store:
            return await getattr(AsyncWorker(store, "group", handler, **TERMS, **options), call)()

    return asyncio.run(main())


both = pytest.mark.parametrize("run", [run, run_async], ids=["blocking", "async"])


@pytest.fixture
def group(store: Store) -> Store:
    store.groups.register("group")
    store.declare(DeviceSeen, DeviceRemoved)
    return store


def removed(store: Store) -> list[str]:
    return [message.data["device_id"] for message in store.read_category("device.removed")]


@pytest.mark.parametrize("form", ["blocking", "async"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("call", ["run", "run_until_idle"])
def test_a_signal_ends_a_worker_after_the_claim_in_hand(
    group: Store, database_url: str, form: str, call: str, number: signal.Signals
) -> None:
    group.append([DeviceSeen(device_id="a"), DeviceSeen(device_id="b")])

    program = penstock_server().start(
        *("-m", "tests.groups.signalled_worker", database_url, form, call, str(int(number))),
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    output, _ = program.communicate(timeout=60)

    assert (output, program.returncode) == ("ended\n", 0)
    assert removed(group) == ["a"]


@both
@pytest.mark.parametrize("ending", [SystemExit, KeyboardInterrupt])
def test_a_program_that_is_to_end_gives_its_partition_back(
    group: Store, database_url: str, run: Any, ending: type[BaseException]
) -> None:
    group.append(DeviceSeen(device_id="a"))

    def handle(claim: Claim) -> None:
        raise ending

    with pytest.raises(ending):
        run(database_url, handle, "run")

    assert claim_device(group, types=[DeviceSeen]) is not None


@both
@pytest.mark.parametrize("error", [GeneratorExit, asyncio.CancelledError])
def test_any_other_exception_is_a_failure_of_the_handler(
    group: Store, database_url: str, run: Any, error: type[BaseException]
) -> None:
    group.append([DeviceSeen(device_id="a"), DeviceSeen(device_id="b")])
    seen = []

    def handle(claim: Claim) -> None:
        seen.append(claim.partition_value["device_id"])
        raise error

    later = FailurePolicy.park(delay=60, longest_delay=60)  # than this test takes
    assert run(database_url, handle, "run_until_idle", on_failure=later) == 2

    assert seen == ["a", "b"]
    (status,) = group.groups.list()
    assert (status.claimed, status.pending) == (0, 2)


@both
def test_a_handler_that_always_ends_the_program_is_parked(
    group: Store, database_url: str, run: Any
) -> None:
    group.append(DeviceSeen(device_id="a"))

    def handle(claim: Claim) -> None:
        sys.exit("no more")

    for _ in range(5):
        with pytest.raises(SystemExit):
            run(database_url, handle, "run_once")

    (parked,) = group.groups.parked("group")
    assert parked.error == "SystemExit: no more"


PROGRAM = """
import sys
import penstock
from tests.groups.school import DeviceSeen

with penstock.connect(sys.argv[1]) as store:
    penstock.Worker(
        store, "group", lambda claim: sys.exit(3), partition_by="device_id",
        handled_types=[DeviceSeen],
    ).run()
"""


def test_a_process_whose_handler_calls_exit_ends_with_its_code(
    group: Store, database_url: str
) -> None:
    group.append(DeviceSeen(device_id="a"))

    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, database_url], cwd=Path.cwd(), check=False, timeout=60
    )

    assert ended.returncode == 3
    assert group.groups.list()[0].claimed == 0
    assert claim_device(group, types=[DeviceSeen]) is not None


async def answer(claim: Claim) -> None:
    """Do nothing, asynchronously."""


async def remove(claim: Claim) -> AsyncIterator[DeviceRemoved]:
    """Yield what to append."""
    yield DeviceRemoved(**claim.partition_value)


async def test_a_worker_refuses_what_only_an_async_one_can_use(
    store: Store, async_store: AsyncStore
) -> None:
    for handler in (answer, remove):
        with pytest.raises(ValidationError, match="a plain function; AsyncWorker takes async ones"):
            Worker(store, "group", handler, **TERMS)  # type: ignore[arg-type]
    for other in (None, async_store):
        with pytest.raises(ValidationError, match=r"store that penstock\.connect\(\) returned"):
            Worker(other, "group", print, **TERMS)  # type: ignore[arg-type]


async def test_an_async_worker_refuses_a_blocking_store(store: Store) -> None:
    for other in (None, store):
        with pytest.raises(ValidationError, match=r"that penstock\.connect_async\(\) returned"):
            AsyncWorker(other, "group", print, **TERMS)  # type: ignore[arg-type]


async def test_a_handler_may_be_async_or_plain_or_yield_its_messages(
    group: Store, async_store: AsyncStore
) -> None:
    async def remove_one(claim: Claim) -> DeviceRemoved:
        messages, _ = await async_store.read_partition(claim.partition_value, [DeviceSeen])
        return DeviceRemoved(device_id=messages[0].data["device_id"])

    def remove_plainly(claim: Claim) -> DeviceRemoved:
        return DeviceRemoved(**claim.partition_value)

    for device, handler in (("a", remove_one), ("b", remove_plainly), ("c", remove)):
        group.append(DeviceSeen(device_id=device))
        worker = AsyncWorker(async_store, "group", handler, **TERMS)
        assert await worker.run_until_idle() == 1

    assert removed(group) == ["a", "b", "c"]


async def test_many_async_workers_share_a_loop(group: Store, async_store: AsyncStore) -> None:
    group.append([DeviceSeen(device_id=str(n)) for n in range(4)])
    everybody = asyncio.Barrier(4)

    async def meet(claim: Claim) -> None:
        await asyncio.wait_for(everybody.wait(), 30)

    workers = [AsyncWorker(async_store, "group", meet, **TERMS) for _ in range(4)]
    await asyncio.gather(*(worker.run_once() for worker in workers))

    assert len({worker.worker_id for worker in workers}) == 4
    assert group.groups.list()[0].pending == 0


@pytest.mark.parametrize("call", ["run", "run_until_idle", "run_once"])
async def test_a_task_that_is_cancelled_gives_its_partition_back(
    group: Store, async_store: AsyncStore, call: str
) -> None:
    group.append(DeviceSeen(device_id="a"))
    started = asyncio.Event()

    async def hang(claim: Claim) -> None:
        started.set()
        await asyncio.Event().wait()

    worker = AsyncWorker(async_store, "group", hang, **TERMS, on_failure=FailurePolicy.park(1))
    task = asyncio.ensure_future(getattr(worker, call)())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    claim = claim_device(group, types=[DeviceSeen])
    assert claim is not None
    assert claim.attempts == 1  # it did not count


async def test_a_task_that_is_cancelled_again_and_again_gives_its_partition_back(
    group: Store, async_store: AsyncStore
) -> None:
    group.append(DeviceSeen(device_id="a"))
    started = asyncio.Event()

    async def hang(claim: Claim) -> None:
        started.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(AsyncWorker(async_store, "group", hang, **TERMS).run())
    await started.wait()
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)

    assert task.cancelled()
    assert claim_device(group, types=[DeviceSeen]) is not None


async def test_a_worker_in_a_timeout_ends_with_it(group: Store, async_store: AsyncStore) -> None:
    group.append(DeviceSeen(device_id="a"))

    async def hang(claim: Claim) -> None:
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await AsyncWorker(async_store, "group", hang, **TERMS).run()

    assert group.groups.list()[0].claimed == 0


async def test_a_timeout_inside_the_handler_is_its_failure(
    group: Store, async_store: AsyncStore
) -> None:
    group.append(DeviceSeen(device_id="a"))

    async def hang(claim: Claim) -> None:
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()

    worker = AsyncWorker(async_store, "group", hang, **TERMS, on_failure=FailurePolicy.park(1))
    assert await worker.run_until_idle() == 1

    (parked,) = group.groups.parked("group")
    assert parked.error is not None
    assert parked.error.startswith("TimeoutError")


async def test_a_lease_is_extended_while_an_async_handler_awaits(
    group: Store, async_store: AsyncStore, database_url: str
) -> None:
    group.append(DeviceSeen(device_id="a"))
    is_extended = "select due > claimed_at + interval '2 seconds' from penstock.partition_states"
    extended = []

    async def work(claim: Claim) -> None:
        await asyncio.to_thread(
            wait_until,
            database_url,
            f"select ({is_extended}) or clock_timestamp() > claimed_at + interval '10 seconds'"
            " from penstock.partition_states",
        )
        extended.extend(sql(group, is_extended))

    await AsyncWorker(async_store, "group", work, **TERMS, lease=1.2).run_once()

    assert extended == [(True,)]
    assert group.groups.list()[0].pending == 0


def test_a_worker_in_a_thread_leaves_signals_alone(group: Store, database_url: str) -> None:
    before = signal.getsignal(signal.SIGTERM)

    with ThreadPoolExecutor(1) as threads:
        handled = threads.submit(run, database_url, print, "run_until_idle").result(30)

    assert handled == 0
    assert signal.getsignal(signal.SIGTERM) is before
