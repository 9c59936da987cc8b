"""The boundary explorer: conditions as text, matching messages, and who is deciding."""

from __future__ import annotations

import pytest

from penstock import AsyncStore
from penstock.console.data.boundaries import explore, parse_conditions
from penstock.errors import UndeclaredAttribute, UndeclaredType, ValidationError
from penstock.message.conditions import QueryCondition
from penstock.message.typed import TypedMessage


class Joined(TypedMessage, type="boundary.joined"):
    course: str
    user: str


class Closed(TypedMessage, type="boundary.closed"):
    course: str


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.b", [("a.b", None, None)]),
        ("a.b x=1 y=2", [("a.b", "x", "1"), ("a.b", "y", "2")]),
        ('a x="two; words"; b', [("a", "x", "two; words"), ("b", None, None)]),
        ("a x=1=2\n\nb\n", [("a", "x", "1=2"), ("b", None, None)]),
        ("a x=", [("a", "x", "")]),
    ],
)
def test_conditions_are_parsed(
    text: str, expected: list[tuple[str, str | None, str | None]]
) -> None:
    assert parse_conditions(text) == tuple(QueryCondition(*one) for one in expected)


@pytest.mark.parametrize("text", ["", " ;\n", "x=1", "a b", 'a x="1', "a =1", "a x=\0"])
def test_conditions_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        parse_conditions(text)


async def test_what_a_guard_would_see(async_store: AsyncStore) -> None:
    await async_store.append([Joined(course="Algebra", user="joe")])
    await async_store.append([Joined(course="Logic", user="joe")])
    await async_store.append([Closed(course="Algebra")])
    text = "boundary.joined course=Algebra; boundary.closed course=Algebra"

    found = await explore(async_store, text)
    first = await explore(async_store, text, limit=1)
    second = await explore(async_store, text, first.next, limit=1)
    seen, guard = await async_store.read(found.conditions)

    assert [one.global_position for one in found.items] == [3, 1]
    assert sorted(one.global_position for one in found.items) == [
        one.global_position for one in seen
    ]
    assert found.complete_to == guard.low
    assert [one.global_position for one in (*first.items, *second.items)] == [3, 1]
    assert found.holders == ()


async def test_who_is_deciding_and_who_is_writing(async_store: AsyncStore) -> None:
    await async_store.append([Joined(course="Algebra", user="joe")])
    condition = QueryCondition("boundary.joined", "course", "Algebra")

    async with async_store.transaction() as transaction:
        await transaction.lock([condition])
        deciding = await explore(async_store, [condition])
        elsewhere = await explore(async_store, "boundary.joined course=Logic")
    async with async_store.transaction() as transaction:
        await transaction.append([Joined(course="Algebra", user="ann")])
        writing = await explore(async_store, [condition])

    assert [(one.what, one.waits) for one in deciding.holders] == [("decides", False)]
    assert elsewhere.holders == ()
    assert [(one.what, one.waits) for one in writing.holders] == [("writes", False)]
    assert len(writing.items) == 1


async def test_what_is_not_declared_is_refused(async_store: AsyncStore) -> None:
    await async_store.append([Closed(course="Algebra")])

    with pytest.raises(UndeclaredType):
        await explore(async_store, "no.such")
    with pytest.raises(UndeclaredAttribute):
        await explore(async_store, "boundary.closed user=joe")
