"""A reader that is stopped between any two of its steps, while others commit, misses nothing.

A read takes three looks: at the sequence, at the announcements, at the rows. Only this order is
right, and only if the rows are seen in a snapshot younger than the rest. (If no position is missing
since the last read, the announcements are left out.) Here the first two looks have a gate before
and after them, and while the reader waits at a gate the others make the most of it: one commits
what it wrote long before, one writes and lingers, one writes and commits.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from typing import Protocol

import pytest

import penstock
from penstock import Store
from tests.log.client import Client

GATES = 4711  # the class of the gates' locks

ADD_GATES = f"""
create function public.gate() returns void language plpgsql as $$
declare
  number constant int := nullif(current_setting('test.gate', true), '')::int;
begin
  if number is not null then
    perform pg_advisory_lock_shared({GATES}, number);
    perform pg_advisory_unlock_shared({GATES}, number);
    perform set_config('test.gate', (number + 1)::text, false);
  end if;
end
$$;

alter function penstock.last_position() rename to last_position_behind_gates;
create function penstock.last_position() returns bigint
language plpgsql security definer as $$
declare
  result bigint;
begin
  perform public.gate();
  result := penstock.last_position_behind_gates();
  perform public.gate();
  return result;
end
$$;

alter function penstock.announcements(bigint) rename to announcements_behind_gates;
create function penstock.announcements(near bigint) returns table (bound bigint, pid integer)
language plpgsql security definer as $$
begin
  perform public.gate();
  return query select * from penstock.announcements_behind_gates(near);
  perform public.gate();
end
$$;
"""


class Others:
    """Those who write while the reader waits: some linger, one is prompt."""

    def __init__(self, connect: Callable[[], Client]) -> None:
        self.prompt = connect()
        self._idle = [connect(), connect()]
        self._lingering: list[Client] = []
        self._streams = (f"account-{number}" for number in count())

    def act(self) -> None:
        """Commit what lingered; write something that lingers; write something above it."""
        self._commit()
        self._linger()
        self.prompt.write(next(self._streams))

    def end(self) -> list[int]:
        """Commit everything, and return what there is."""
        self._commit()
        return self.prompt.values("select global_position from message_store.messages order by 1")

    def roll_back(self) -> None:
        """Take a position and give it up."""
        self._linger()
        self._lingering[0].execute("rollback")
        self._idle.append(self._lingering.pop())

    def _commit(self) -> None:
        for client in self._lingering:
            client.execute("commit")
        self._idle += self._lingering
        self._lingering = []

    def _linger(self) -> None:
        client = self._idle.pop()
        client.execute("begin")
        client.write(next(self._streams))
        self._lingering.append(client)


class Reader(Protocol):
    """Reads on one connection: `Client` does, and `SnapshotReader`."""

    def execute(self, statement: str) -> object: ...

    def read(self, category: str, position: int) -> list[int]: ...


class SnapshotReader:
    """Reads each page in a transaction that keeps its snapshot."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def execute(self, statement: str) -> None:
        with self._store.transaction() as transaction:
            transaction.connection.execute(statement.encode())

    def read(self, category: str, position: int) -> list[int]:
        with self._store.transaction("repeatable read", read_only=True) as transaction:
            page = transaction.get_category_messages(category, position)
        return [message.global_position for message in page]


class Keeper:
    """Stops a reader at each gate, and does something before it lets the reader go on."""

    def __init__(self, client: Client, reader: Reader, act: Callable[[int], None]) -> None:
        self._client = client
        self._client.execute(ADD_GATES)
        self._reader = reader
        self._act = act

    def read(self, position: int) -> list[int]:
        self._reader.execute("set test.gate = 1")
        self._client.execute("select pg_advisory_lock(%s, 1)", GATES)
        with ThreadPoolExecutor(1) as thread:
            page = thread.submit(self._reader.read, "$all", position)
            try:
                self._keep(page)
            finally:
                self._client.execute("select pg_advisory_unlock_all()")
        self._reader.execute("reset test.gate")
        return page.result()

    def _keep(self, page: Future[list[int]]) -> None:
        for gate in count(1):
            if not self._has_come_to(gate, page):
                return
            self._act(gate)
            self._client.execute("select pg_advisory_lock(%s, %s)", GATES, gate + 1)
            self._client.execute("select pg_advisory_unlock(%s, %s)", GATES, gate)

    def _has_come_to(self, gate: int, page: Future[list[int]]) -> bool:
        waits = (
            "select exists (select from pg_locks where not granted and classid = %s and objid = %s"
            " and database = (select oid from pg_database where datname = current_database()))"
        )
        while not page.done():
            if self._client.value(waits, GATES, gate):
                return True
        return False


def read_at_gates(
    connect: Callable[[], Client], reader: Reader, gates: int | str, before: str
) -> tuple[list[int], list[int], list[int]]:
    """Let others act while a reader waits; return what it saw, what there is, and the gates."""
    others = Others(connect)
    passed: list[int] = []

    def act(gate: int) -> None:
        passed.append(gate)
        if gates in (gate, "all"):
            others.act()

    keeper = Keeper(connect(), reader, act)
    others.prompt.write("account-first")  # or a reader would see at once that there is nothing
    if before == "busy":
        others.act()
    elif before == "gap":  # no writer is open, but a position is missing
        others.roll_back()
        others.prompt.write("account-second")
    seen: list[int] = []
    for _ in range(3):
        seen += keeper.read(max(seen, default=0) + 1)
    there = others.end()
    seen += others.prompt.read(position=max(seen, default=0) + 1)
    return seen, there, passed


@pytest.mark.parametrize("before", ["busy", "quiet", "gap"])
@pytest.mark.parametrize("gates", [*range(1, 11), "all"])
def test_a_reader_stopped_at_a_gate_misses_nothing(
    connect: Callable[[], Client], gates: int | str, before: str
) -> None:
    seen, there, passed = read_at_gates(connect, connect(), gates, before)

    assert seen == there
    assert len(passed) > 2


@pytest.mark.parametrize("gates", [*range(1, 5), "all"])
def test_a_snapshot_taken_at_a_gate_misses_nothing(
    connect: Callable[[], Client], database_url: str, gates: int | str
) -> None:
    with penstock.connect(database_url, pool_min_size=1, pool_max_size=1) as store:
        seen, there, passed = read_at_gates(connect, SnapshotReader(store), gates, "busy")

    assert seen == there
    assert len(passed) == 3 * 4
