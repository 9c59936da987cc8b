"""A program that never calls `close` ends at once, whatever ends it, and shows its own error.

A pool with threads or tasks of its own would keep the interpreter or `asyncio.run` from ending. The
programs here are real ones. One that hangs is ended by the limit of the test.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from tests.racing import pause

HEAD = "import asyncio, gc, os, signal, sys, threading, time, penstock\n"

#: how a program goes on after it has connected; its exit status; its last line
BLOCKING = {
    "reaches its end": ("store.stream_version('account-1')", 0, ""),
    "raises": ("raise RuntimeError('mine')", 1, "RuntimeError: mine"),
    "raises in a transaction": (
        "open_one = store.begin_transaction()\n"
        "open_one.write_message('account-1', 'Opened')\n"
        "raise RuntimeError('mine')",
        1,
        "RuntimeError: mine",
    ),
    "exits": ("store.stream_version('account-1')\nsys.exit(3)", 3, ""),
    "is interrupted": (
        "store.stream_version('account-1')\nsignal.raise_signal(signal.SIGINT)",
        -signal.SIGINT,
        "KeyboardInterrupt",
    ),
    "is terminated": ("signal.raise_signal(signal.SIGTERM)", -signal.SIGTERM, ""),
    "forgets its store": ("store.stream_version('account-1')\ndel store\ngc.collect()", 0, ""),
    "forks": (
        "store.stream_version('account-1')\n"
        "if os.fork() == 0: sys.exit(0)\n"
        "os.wait()\n"
        "store.stream_version('account-1')",
        0,
        "",
    ),
    "has a thread in a call": (
        "called = threading.Event()\n"
        "def call():\n"
        "    while True:\n"
        "        store.write_message('account-1', 'Opened')\n"
        "        called.set()\n"
        "threading.Thread(target=call, daemon=True).start()\n"
        "called.wait()",
        0,
        "",
    ),
}
ASYNC = {
    "reaches its end": ("await store.stream_version('account-1')", 0, ""),
    "raises": ("raise RuntimeError('mine')", 1, "RuntimeError: mine"),
    "raises in a transaction": (
        "open_one = await store.begin_transaction()\n"
        "await open_one.write_message('account-1', 'Opened')\n"
        "raise RuntimeError('mine')",
        1,
        "RuntimeError: mine",
    ),
    "exits": ("await store.stream_version('account-1')\nsys.exit(3)", 3, ""),
    "is interrupted": (
        "signal.raise_signal(signal.SIGINT)\nawait asyncio.Event().wait()",
        -signal.SIGINT,
        "KeyboardInterrupt",
    ),
    "is terminated": ("signal.raise_signal(signal.SIGTERM)", -signal.SIGTERM, ""),
    "forgets its store": (
        "await store.stream_version('account-1')\ndel store\ngc.collect()",
        0,
        "",
    ),
    "raises while tasks open connections": (
        "calls = [asyncio.create_task(store.stream_version('account-1')) for _ in range(20)]\n"
        "await asyncio.sleep(0)\n"
        "raise RuntimeError('mine')",
        1,
        "RuntimeError: mine",
    ),
}


def program(connect: str, then: str) -> str:
    return f"{HEAD}store = penstock.connect({connect})\n{then}\n"


def async_program(connect: str, then: str) -> str:
    body = f"store = await penstock.connect_async({connect})\n{then}".replace("\n", "\n    ")
    return f"{HEAD}async def main():\n    {body}\nasyncio.run(main())\n"


def run(program: str) -> tuple[int, str]:
    """Run a program with all of Python's warnings on; return its exit status and what it said."""
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", program],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout.strip()


def last_line(said: str) -> str:
    """The last line of what a program said: the only one, but for the traceback above it."""
    lines = said.splitlines()
    assert not any("Warning" in line or "ignored" in line for line in lines), said
    return lines[-1] if lines else ""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """The folder of an embedded server, which runs while the programs of the tests do."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-"))
    with penstock.connect(folder=folder):
        yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("ending", BLOCKING)
def test_a_program_ends_that(ending: str, database_url: str) -> None:
    then, status, said = BLOCKING[ending]

    outcome = run(program(repr(database_url), then))

    assert (outcome[0], last_line(outcome[1])) == (status, said), outcome[1]


@pytest.mark.parametrize("ending", ASYNC)
def test_an_async_program_ends_that(ending: str, database_url: str) -> None:
    then, status, said = ASYNC[ending]

    outcome = run(async_program(repr(database_url), then))

    assert (outcome[0], last_line(outcome[1])) == (status, said), outcome[1]


@pytest.mark.parametrize("ending", ["reaches its end", "raises"])
class TestBesideARunningEmbeddedServer:
    def test_a_program_ends_that(self, ending: str, folder: Path) -> None:
        then, status, said = BLOCKING[ending]

        outcome = run(program(f"folder={str(folder)!r}", then))

        assert (outcome[0], last_line(outcome[1])) == (status, said), outcome[1]

    def test_an_async_program_ends_that(self, ending: str, folder: Path) -> None:
        then, status, said = ASYNC[ending]

        outcome = run(async_program(f"folder={str(folder)!r}", then))

        assert (outcome[0], last_line(outcome[1])) == (status, said), outcome[1]


def test_the_last_user_of_an_embedded_server_need_not_close_it(tmp_path: Path) -> None:
    folder = Path(tempfile.mkdtemp(prefix="penstock-"))

    status, said = run(program(f"folder={str(folder)!r}", "raise RuntimeError('mine')"))

    assert (status, last_line(said)) == (1, "RuntimeError: mine")
    assert not (folder / "data" / "postmaster.pid").exists()
    shutil.rmtree(folder)


class TestAStore:
    def test_has_no_thread_of_its_own_unless_it_notifies(self, database_url: str) -> None:
        before = set(threading.enumerate())

        with penstock.connect(database_url) as store:
            store.get_category_messages("account")
            reading = set(threading.enumerate()) - before
            store.write_message("account-1", "Opened")
            writing = {one.name for one in set(threading.enumerate()) - before}

        assert (reading, writing) == (set(), {"penstock wake-ups"})
        assert set(threading.enumerate()) == before

    async def test_has_no_task_of_its_own(self, database_url: str) -> None:
        async with await penstock.connect_async(database_url) as store:
            await store.write_message("account-1", "Opened")

            assert asyncio.all_tasks() == {asyncio.current_task()}

    async def test_passes_a_connection_to_whoever_waits_longest(self, database_url: str) -> None:
        async with await penstock.connect_async(
            database_url, pool_max_size=1, coalesce=False
        ) as store:
            order: list[int] = []

            async def write(number: int) -> None:
                await store.write_message(f"account-{number}", "Opened")
                order.append(number)

            await asyncio.gather(*(write(number) for number in range(20)))

        assert order == list(range(20))

    async def test_loses_no_connection_to_callers_that_stop_waiting(
        self, database_url: str
    ) -> None:
        async with await penstock.connect_async(database_url, pool_max_size=1) as store:
            for _ in range(50):
                calls = [asyncio.create_task(store.stream_version("account-1")) for _ in range(5)]
                await asyncio.sleep(0)
                for call in calls[::2]:
                    call.cancel()
                await asyncio.gather(*calls, return_exceptions=True)

            assert await store.stream_version("account-1") is None

    def test_that_is_closed_tells_those_who_wait(self, database_url: str) -> None:
        store = penstock.connect(database_url, pool_max_size=1)
        outcome: list[BaseException] = []

        def call() -> None:
            try:
                store.stream_version("account-1")
            except penstock.errors.StoreClosed as error:
                outcome.append(error)

        with store.transaction() as holder:
            holder.write_message("account-1", "Opened")
            waiting = threading.Thread(target=call)
            waiting.start()
            while not store._pool._waiting:
                pause()
            store.close()
            waiting.join()

        assert len(outcome) == 1


#: threads that write until the program ends, more than may wait
FULL_QUEUE = """
store = penstock.connect(sys.argv[1], max_queued_writes=4)
refused, written = threading.Event(), threading.Event()

def write():
    while True:
        try:
            store.write_message("account-1", "Opened")
            written.set()
        except penstock.errors.WriteQueueFull:
            refused.set()
            time.sleep(0.01)

for _ in range(20):
    threading.Thread(target=write, daemon=True).start()
refused.wait()
written.wait()
"""
FORKS = """
for _ in range(5):
    if os.fork() == 0:
        try:
            store.write_message("account-1", "Opened")
        except penstock.errors.StoreClosed:
            sys.exit(7)
        sys.exit(1)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
    written.clear()
    written.wait()
"""
FULL_ASYNC_QUEUE = """
async def main():
    store = await penstock.connect_async(sys.argv[1], max_queued_writes=4)
    calls = [asyncio.create_task(store.write_message("account-1", "Opened")) for _ in range(20)]
    done, waiting = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    errors = [one.exception() for one in done]
    assert any(isinstance(one, penstock.errors.WriteQueueFull) for one in errors)
    assert waiting

asyncio.run(main())
"""


@pytest.mark.parametrize(
    "program", [FULL_QUEUE, FULL_QUEUE + FORKS, FULL_ASYNC_QUEUE], ids=["threads", "forks", "tasks"]
)
def test_a_program_ends_with_a_full_queue_of_writes(program: str, database_url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", HEAD + program, database_url],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
