"""Workers share the partitions of a log: each student's course is handled by one at a time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import penstock
from penstock import Claim, TypedMessage, Worker

GROUP = f"welcome {penstock.new_id()}"
TERM = str(penstock.new_id())


class Joined(TypedMessage, type="student.joined"):
    term: str
    course: str
    student: str


class Welcomed(TypedMessage, type="student.welcomed"):
    term: str
    course: str
    student: str
    order: int


def welcome(claim: Claim) -> list[Welcomed]:
    """Welcome a student. The result is appended together with the acknowledgement."""
    return [
        Welcomed(term=TERM, order=order, **without_term(claim.partition_value))
        for order, message in enumerate(claim.messages)
        if message.data["term"] == TERM
    ]


def without_term(value: dict[str, str]) -> dict[str, str]:
    return {name: value[name] for name in ("course", "student")}


def main() -> None:
    with penstock.connect() as store:
        for course in ("Algebra", "History"):
            store.append(
                [Joined(term=TERM, course=course, student=f"student {n}") for n in range(10)]
            )

        def work(number: int) -> None:
            worker = Worker(
                store,
                GROUP,
                welcome,
                partition_by=["course", "student", "term"],
                handled_types=[Joined],
                worker_id=f"worker {number}",
            )
            worker.run_until_idle()

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(work, range(4)))
        work(0)  # what the others left, while they were busy

        messages, _ = store.read(Welcomed.to_conditions(term=TERM))
        status = next(group for group in store.groups.list() if group.group_id == GROUP)
        print(f"{len(messages)} students welcomed, {status.pending} partitions pending")


if __name__ == "__main__":
    main()

# Output:
# 20 students welcomed, 0 partitions pending
