"""Promise 6, Flat: a decision reads as much on a long history as on a short one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

import penstock
from penstock import BorrowedConnection, Decider, Store, TypedMessage, Worker
from tests.conftest import Server
from tests.promises.test_flat import SLACK, entries_read

FEW, MANY = 20, 3_000


class Taken(TypedMessage, type="flat.taken"):
    course: str


class Asked(TypedMessage, type="flat.asked"):
    course: str


def decider(**options: object) -> Decider[int, object]:
    return Decider[int, object](
        initial=0,
        evolve=lambda taken, event: taken + 1,
        decide=lambda taken, command: [Taken(course=f"of {FEW}" if taken < MANY else f"of {MANY}")],
        **options,  # type: ignore[arg-type]
    )


KEPT = decider()
SAVED = decider(name="flat", snapshot_every=10)


@pytest.fixture(scope="module")
def database(server: Server) -> Iterator[str]:
    """A database with a short history and a long one, each with a snapshot."""
    name = server.create_database(server.template("penstock"))
    with penstock.connect(server.url(name)) as store:
        for size in (FEW, MANY):
            store.append([Taken(course=f"of {size}") for _ in range(size)])
            store.decide(SAVED, None, conditions(size))
    yield server.url(name)
    server.drop_database(name)


def conditions(size: int) -> list[penstock.QueryCondition]:
    return Taken.to_conditions(course=f"of {size}")


@pytest.fixture
def store(database: str) -> Iterator[Store]:
    with penstock.connect(database) as store:
        yield store


def cost(store: Store, decider: Decider[int, object], size: int) -> int:
    def decide(log: BorrowedConnection) -> None:
        assert log.decide(decider, None, conditions(size)) is not None

    return entries_read(store, decide)


def test_a_decision_on_a_kept_state_reads_as_much_on_a_long_history(store: Store) -> None:
    for size in (FEW, MANY):
        store.decide(KEPT, None, conditions(size))

    small, large = cost(store, KEPT, FEW), cost(store, KEPT, MANY)

    assert large <= small + SLACK


def test_a_decision_from_a_snapshot_reads_as_much_on_a_long_history(store: Store) -> None:
    small, large = cost(store, SAVED, FEW), cost(store, SAVED, MANY)

    assert large <= small + SLACK


def test_a_decision_without_either_reads_all_of_it(store: Store) -> None:
    assert cost(store, decider(), MANY) > MANY


def test_a_worker_reads_what_its_commands_led_to_and_not_the_history(database: str) -> None:
    reads: list[int] = []

    class Reads(penstock.Interceptor):
        def on_read(self, message: penstock.RecordedMessage) -> penstock.RecordedMessage:
            reads.append(message.global_position)
            return message

    with ExitStack() as stack:
        store = stack.enter_context(penstock.connect(database, interceptors=[Reads()]))
        worker = Worker(
            *(store, "flat", SAVED),
            partition_by="course",
            handled_types=[Asked],
            decides_on=[Taken],
        )
        store.append([Asked(course=f"of {MANY}") for _ in range(3)])
        worker.run_until_idle()

    assert len(reads) < 30
