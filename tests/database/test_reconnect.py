"""A server that goes away and comes back, connections that die, pools that run dry.

No test waits for a clock: where something must not hang, the limit it would hang for is set higher
than the time that the test is given.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege

import penstock
from penstock import AsyncStore, Store
from penstock.errors import (
    CommandTimeout,
    DatabaseUnreachable,
    PoolExhausted,
    StoreClosed,
    TransactionClosed,
)
from tests.racing import at_once, pause, wait_until_gone
from tests.servers import OwnServer, own_server

TEN_MINUTES = 600_000
TIGHT: dict[str, Any] = {"pool_max_size": 1, "pool_timeout_ms": 500}
pytestmark = pytest.mark.timeout(90)


@pytest.fixture(scope="module")
def machine_that_ran() -> Iterator[OwnServer]:
    with own_server() as server:
        yield server


@pytest.fixture
def machine(machine_that_ran: OwnServer) -> Iterator[OwnServer]:
    """A machine that runs, with Penstock installed and nothing in its log."""
    url = machine_that_ran.start()
    yield machine_that_ran
    machine_that_ran.start()
    with psycopg.connect(url) as connection:
        connection.execute("truncate message_store.messages restart identity")
    machine_that_ran.stop()


@pytest.fixture
def url(machine: OwnServer) -> str:
    return machine.start()


@pytest.fixture
def connect(machine: OwnServer, url: str) -> Iterator[Callable[..., Store]]:
    """Connect to the machine, with waits so long that a test would not survive one."""
    with ExitStack() as stores:
        yield lambda **options: stores.enter_context(
            penstock.connect(url, **{"pool_timeout_ms": TEN_MINUTES, **options})
        )


class TestARestart:
    def test_is_not_noticed_by_the_next_operation(
        self, machine: OwnServer, connect: Callable[..., Store]
    ) -> None:
        store = connect()
        store.write_message("account-1", "Opened")

        machine.restart()

        assert store.write_message("account-1", "Deposited") == 1
        assert len(store.get_category_messages("account")) == 2

    def test_is_not_noticed_by_the_next_transaction(
        self, machine: OwnServer, connect: Callable[..., Store]
    ) -> None:
        store = connect()
        store.write_message("account-1", "Opened")

        machine.restart()

        with store.transaction("repeatable read") as transaction:
            assert transaction.write_message("account-1", "Deposited") == 1

    def test_is_not_noticed_with_a_full_pool(
        self, machine: OwnServer, connect: Callable[..., Store]
    ) -> None:
        store = connect(pool_min_size=5, pool_max_size=5)
        at_once(*[partial(store.stream_version, "account-1")] * 5)

        machine.restart()

        assert at_once(*[partial(store.stream_version, "account-1")] * 10) == [None] * 10

    def test_ends_a_transaction_that_was_open(
        self, machine: OwnServer, connect: Callable[..., Store]
    ) -> None:
        store = connect()
        transaction = store.begin_transaction()
        transaction.write_message("account-1", "Opened")

        machine.restart()

        with pytest.raises(DatabaseUnreachable):
            transaction.write_message("account-1", "Deposited")
        assert not transaction.is_active
        transaction.rollback()
        with pytest.raises(TransactionClosed):
            transaction.commit()
        assert store.write_message("account-1", "Opened") == 0

    def test_is_not_noticed_by_an_iterator(
        self, machine: OwnServer, connect: Callable[..., Store]
    ) -> None:
        store = connect()
        for _ in range(4):
            store.write_message("account-1", "Deposited")
        messages = store.read_category("account", 1, 2)
        read = [next(messages).position]

        machine.restart()

        assert read + [message.position for message in messages] == [0, 1, 2, 3]

    async def test_is_not_noticed_in_async_code(self, machine: OwnServer, url: str) -> None:
        async with await penstock.connect_async(url, pool_timeout_ms=TEN_MINUTES) as store:
            await store.write_message("account-1", "Opened")
            transaction = await store.begin_transaction()

            machine.restart()

            with pytest.raises(DatabaseUnreachable):
                await transaction.write_message("account-1", "Deposited")
            assert not transaction.is_active
            await transaction.rollback()
            assert await store.write_message("account-1", "Deposited") == 1
            async with store.transaction() as transaction:
                assert await transaction.write_message("account-1", "Closed") == 2


class TestWhileTheServerIsAway:
    def test_an_operation_fails_soon_and_says_why(
        self, machine: OwnServer, connect: Callable[..., Store]
    ) -> None:
        store = connect()
        store.write_message("account-1", "Opened")
        machine.stop()

        for _ in range(2):
            with pytest.raises(DatabaseUnreachable, match="cannot be reached") as caught:
                store.write_message("account-1", "Deposited")
            assert caught.value.retryable
            assert caught.value.where == store.settings.where()

    def test_a_transaction_fails_soon_and_says_why(
        self, machine: OwnServer, connect: Callable[..., Store]
    ) -> None:
        store = connect()
        store.write_message("account-1", "Opened")
        machine.stop()

        with pytest.raises(DatabaseUnreachable):
            store.begin_transaction()

    def test_many_callers_fail_soon(
        self, machine: OwnServer, connect: Callable[..., Store]
    ) -> None:
        store = connect(pool_max_size=3)
        machine.stop()

        outcomes = at_once(*[partial(store.stream_version, "account-1")] * 12)

        assert {type(outcome) for outcome in outcomes} == {DatabaseUnreachable}

    def test_connecting_fails_soon_and_says_why(self, machine: OwnServer, url: str) -> None:
        machine.stop()

        with pytest.raises(DatabaseUnreachable):
            penstock.connect(url)

    def test_a_store_can_be_closed(self, machine: OwnServer, connect: Callable[..., Store]) -> None:
        store = connect()
        store.write_message("account-1", "Opened")
        machine.stop()

        store.close()

        with pytest.raises(StoreClosed):
            store.stream_version("account-1")

    def test_all_works_again_once_it_is_back(
        self, machine: OwnServer, connect: Callable[..., Store]
    ) -> None:
        store = connect(pool_max_size=3)
        store.write_message("account-1", "Opened")
        machine.stop()
        at_once(*[partial(store.stream_version, "account-1")] * 6)

        machine.start()

        assert at_once(*[partial(store.stream_version, "account-1")] * 6) == [0] * 6
        assert store.write_message("account-1", "Deposited") == 1

    def test_all_works_again_after_the_pool_has_given_up(
        self, machine: OwnServer, connect: Callable[..., Store]
    ) -> None:
        store = connect(pool_max_size=2)
        store.write_message("account-1", "Opened")
        machine.stop()
        for _ in range(5):  # each lasts a second: longer than the pool tries by itself
            with pytest.raises(DatabaseUnreachable):
                store.stream_version("account-1")

        machine.start()

        assert store.write_message("account-1", "Deposited") == 1

    async def test_async_code_fails_soon_and_works_again(
        self, machine: OwnServer, url: str
    ) -> None:
        async with await penstock.connect_async(
            url, pool_timeout_ms=TEN_MINUTES, pool_max_size=3
        ) as store:
            await store.write_message("account-1", "Opened")
            machine.stop()

            outcomes = await asyncio.gather(
                *(store.stream_version("account-1") for _ in range(8)), return_exceptions=True
            )
            with pytest.raises(DatabaseUnreachable):
                await store.begin_transaction()
            machine.start()

            assert {type(outcome) for outcome in outcomes} == {DatabaseUnreachable}
            assert await store.write_message("account-1", "Deposited") == 1

    def test_a_retry_bridges_a_short_absence(
        self, machine: OwnServer, connect: Callable[..., Store]
    ) -> None:
        store = connect()
        store.write_message("account-1", "Opened")
        machine.stop()
        attempts: list[int] = []

        @penstock.retry(delay=0.001)
        def write() -> int:
            attempts.append(1)
            if len(attempts) == 2:
                machine.start()
            return store.write_message("account-1", "Deposited")

        assert write() == 1
        assert len(attempts) == 2


class TestADeadConnection:
    def test_is_replaced(self, store: Store) -> None:
        with store.transaction() as transaction:
            pid = transaction.connection.info.backend_pid
        kill(store, pid)

        assert store.write_message("account-1", "Opened") == 0

    def test_is_replaced_however_many_died(self, database_url: str) -> None:
        with penstock.connect(database_url, pool_min_size=4, pool_max_size=4) as store:
            open_ones = [store.begin_transaction() for _ in range(4)]
            pids = [one.connection.info.backend_pid for one in open_ones]
            for one in open_ones:
                one.rollback()
            for pid in pids:
                kill(store, pid)

            assert at_once(*[partial(store.write_message, "account-1", "Opened")] * 4)
            assert store.stream_version("account-1") == 3

    async def test_is_replaced_in_async_code(self, async_store: AsyncStore) -> None:
        async with async_store.transaction() as transaction:
            pid = transaction.connection.info.backend_pid
        kill(async_store, pid)

        assert await async_store.write_message("account-1", "Opened") == 0

    def test_loses_no_write_and_doubles_none(self, store: Store) -> None:
        for number in range(5):
            with store.transaction() as transaction:
                pid = transaction.connection.info.backend_pid
            kill(store, pid)
            assert store.write_message("account-1", "Opened") == number


class Crowd:
    """A role of the machine's server that may have no connection, or any number of them."""

    def __init__(self, machine: OwnServer) -> None:
        self._machine = machine
        self._owner = psycopg.connect(machine.start(), autocommit=True)
        self._owner.execute("create role crowd login in role message_store")
        self.url = f"{machine.start()}&user=crowd"

    def fill(self) -> None:
        """Let the role have no connection, and end those it has."""
        self._owner.execute("alter role crowd connection limit 0")
        self._owner.execute(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity where usename = 'crowd'"
        )

    def wait_until_refused(self) -> None:
        refused = self._machine.log().count(REFUSAL)
        while self._machine.log().count(REFUSAL) == refused:
            pause()

    def make_room(self) -> None:
        self._owner.execute("alter role crowd connection limit -1")

    def remove(self) -> None:
        self.fill()
        self._owner.execute("drop role crowd")
        self._owner.close()


REFUSAL = 'too many connections for role "crowd"'


@pytest.fixture
def crowd(machine: OwnServer) -> Iterator[Crowd]:
    crowd = Crowd(machine)
    yield crowd
    crowd.remove()


class TestAFullServer:
    def test_is_asked_again_for_as_long_as_a_caller_may_wait(self, crowd: Crowd) -> None:
        with (
            penstock.connect(crowd.url, pool_timeout_ms=TEN_MINUTES) as store,
            ThreadPoolExecutor(1) as threads,
        ):
            store.stream_version("account-1")
            crowd.fill()
            writing = threads.submit(store.write_message, "account-1", "Opened")
            crowd.wait_until_refused()
            crowd.make_room()
            assert writing.result(60) == 0

    async def test_is_asked_again_in_async_code(self, crowd: Crowd) -> None:
        async with await penstock.connect_async(crowd.url, pool_timeout_ms=TEN_MINUTES) as store:
            await store.stream_version("account-1")
            crowd.fill()
            writing = asyncio.create_task(store.write_message("account-1", "Opened"))
            await asyncio.to_thread(crowd.wait_until_refused)
            crowd.make_room()
            assert await writing == 0

    def test_is_not_mistaken_for_a_pool_in_use(self, crowd: Crowd) -> None:
        with penstock.connect(crowd.url, pool_timeout_ms=500) as store:
            crowd.fill()
            with pytest.raises(DatabaseUnreachable, match=REFUSAL):
                store.write_message("account-1", "Opened")


class TestAConnectionThatCannotBeSetUp:
    """Found at once, and named: nothing is tried again and again in the background."""

    @pytest.fixture
    def walled_url(self, machine: OwnServer, url: str) -> Iterator[str]:
        with psycopg.connect(url, autocommit=True) as owner:
            owner.execute("create role walled login in role message_store")
            yield f"{url}&user=walled"
            owner.execute(f"grant execute on {SETTING} to public")
            owner.execute(
                "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
                " where usename = 'walled'"
            )
            owner.execute("drop role walled")

    def test_says_why(self, url: str, walled_url: str) -> None:
        with (
            penstock.connect(walled_url, pool_timeout_ms=TEN_MINUTES) as store,
            psycopg.connect(url, autocommit=True) as owner,
        ):
            owner.execute(f"revoke execute on {SETTING} from public")
            with pytest.raises(InsufficientPrivilege, match="set_config"):
                store.write_message("account-1", "Opened")
            owner.execute(f"grant execute on {SETTING} to public")
            assert store.write_message("account-1", "Opened") == 0

    async def test_says_why_in_async_code(self, url: str, walled_url: str) -> None:
        async with await penstock.connect_async(walled_url, pool_timeout_ms=TEN_MINUTES) as store:
            with psycopg.connect(url, autocommit=True) as owner:
                owner.execute(f"revoke execute on {SETTING} from public")
                with pytest.raises(InsufficientPrivilege, match="set_config"):
                    await store.write_message("account-1", "Opened")
                owner.execute(f"grant execute on {SETTING} to public")
            assert await store.write_message("account-1", "Opened") == 0


SETTING: LiteralString = "function set_config(text, text, boolean)"


class TestAPoolThatRunsDry:
    def test_says_so(self, database_url: str) -> None:
        with penstock.connect(database_url, **TIGHT) as store, store.transaction() as held:
            with pytest.raises(PoolExhausted, match="all 1 connections") as caught:
                store.stream_version("account-1")
            with pytest.raises(PoolExhausted):
                store.begin_transaction()

            assert caught.value.retryable
            assert held.write_message("account-1", "Opened") == 0

    def test_works_again_when_a_connection_comes_free(self, database_url: str) -> None:
        with penstock.connect(database_url, **TIGHT) as store:
            with store.transaction(), pytest.raises(PoolExhausted):
                store.stream_version("account-1")

            assert store.write_message("account-1", "Opened") == 0

    async def test_says_so_in_async_code(self, database_url: str) -> None:
        async with await penstock.connect_async(database_url, **TIGHT) as store:
            async with store.transaction():
                with pytest.raises(PoolExhausted):
                    await store.stream_version("account-1")

            assert await store.write_message("account-1", "Opened") == 0


class TestACommandThatTakesTooLong:
    def test_is_ended_on_the_server(self, database_url: str) -> None:
        with (
            penstock.connect(database_url, command_timeout_ms=500) as store,
            store.transaction() as holder,
        ):
            holder.write_message("account-1", "Opened")

            with pytest.raises(CommandTimeout, match="statement timeout") as caught:
                store.write_message("account-1", "Deposited")

            assert caught.value.retryable
            assert waiting(database_url) == 0

    def test_leaves_the_store_usable(self, database_url: str) -> None:
        with penstock.connect(database_url, command_timeout_ms=500) as store:
            with store.transaction() as holder:
                holder.write_message("account-1", "Opened")
                with pytest.raises(CommandTimeout):
                    store.write_message("account-1", "Deposited")

            assert store.write_message("account-1", "Deposited") == 1

    @pytest.mark.parametrize("edition", ["beside", "genuine"])
    def test_is_ended_on_other_editions(
        self, new_database: Callable[[str], str], edition: str
    ) -> None:
        with penstock.connect(new_database(edition), command_timeout_ms=500) as store:
            with store.transaction() as holder:
                holder.write_message("account-1", "Opened")
                with pytest.raises(CommandTimeout):
                    store.write_message("account-1", "Deposited")

            assert store.write_message("account-1", "Deposited") == 1

    async def test_is_ended_in_async_code(self, database_url: str) -> None:
        async with await penstock.connect_async(database_url, command_timeout_ms=500) as store:
            async with store.transaction() as holder:
                await holder.write_message("account-1", "Opened")
                with pytest.raises(CommandTimeout):
                    await store.write_message("account-1", "Deposited")

            assert await store.write_message("account-1", "Deposited") == 1


class TestACancelledTask:
    async def test_gives_its_connection_back(self, database_url: str) -> None:
        async with await penstock.connect_async(
            database_url, pool_max_size=2, pool_timeout_ms=TEN_MINUTES
        ) as store:
            async with store.transaction() as holder:
                await holder.write_message("account-1", "Opened")
                blocked = asyncio.create_task(store.write_message("account-1", "Deposited"))
                while not await asyncio.to_thread(waiting, database_url):
                    pass
                blocked.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await blocked

            async with store.transaction() as one, store.transaction() as two:
                assert await one.stream_version("account-1") == 0
                assert await two.stream_version("account-1") == 0


class TestAClosedStore:
    def test_says_so(self, database_url: str) -> None:
        store = penstock.connect(database_url)
        store.close()

        with pytest.raises(StoreClosed, match="connect again"):
            store.stream_version("account-1")
        with pytest.raises(StoreClosed):
            store.begin_transaction()

    def test_may_be_closed_again(self, database_url: str) -> None:
        store = penstock.connect(database_url)

        store.close()
        store.close()

    async def test_says_so_in_async_code(self, database_url: str) -> None:
        store = await penstock.connect_async(database_url)
        await store.close()
        await store.close()

        with pytest.raises(StoreClosed):
            await store.stream_version("account-1")
        with pytest.raises(StoreClosed):
            await store.begin_transaction()

    def test_has_left_no_connection(self, database_url: str) -> None:
        with penstock.connect(database_url) as store, store.transaction() as transaction:
            pid = transaction.connection.info.backend_pid

        wait_until_gone(database_url, pid)


FORKING = """
import asyncio, os, sys, penstock

def in_child(use):
    child = os.fork()
    if child == 0:
        try:
            use()
        except penstock.errors.StoreClosed as error:
            print("was forked" in str(error), flush=True)
        os._exit(0)
    os.waitpid(child, 0)

async def in_async_code():
    async with await penstock.connect_async(sys.argv[1]) as store:
        print(await store.stream_version("account-1"), flush=True)
        in_child(lambda: store.stream_version("account-1").send(None))

with penstock.connect(sys.argv[1]) as store:
    with store.transaction() as transaction:
        transaction.write_message("account-1", "Opened")
        in_child(store.close)
        in_child(lambda: store.stream_version("account-1"))
asyncio.run(in_async_code())
"""


def test_a_forked_child_cannot_use_its_parents_connections(database_url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKING, database_url],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.stdout.splitlines() == ["True", "0", "True"], done.stderr


def kill(store: Store | AsyncStore, pid: int) -> None:
    """End a backend, and return once it has gone."""
    with psycopg.connect(store.settings.conninfo(), autocommit=True) as connection:
        connection.execute("select pg_terminate_backend(%s)", [pid])
    wait_until_gone(store.settings.conninfo(), pid)


def waiting(url: str) -> int:
    """How many backends of the database wait for a lock."""
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "select count(*) from pg_stat_activity"
            " where datname = current_database() and wait_event_type = 'Lock'"
        ).fetchone()
    assert row is not None
    return int(row[0])
