"""Blocking and async code have the same surface: names, parameters, defaults and promises."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import penstock
from penstock.database import execute
from penstock.database import pool as blocking_database
from penstock.database import pool_async as awaiting_database
from penstock.database.pool import OpenTransaction, Pool
from penstock.database.pool_async import AsyncOpenTransaction, AsyncPool
from penstock.log.calls import LogOperations
from penstock.log.calls_async import AsyncLogOperations

#: every public class with a twin, and those beneath them
TWINS: list[tuple[type, type]] = [
    *(
        (getattr(penstock, name.removeprefix("Async")), getattr(penstock, name))
        for name in penstock.__all__
        if name.startswith("Async")
    ),
    (LogOperations, AsyncLogOperations),
    (Pool, AsyncPool),
    (OpenTransaction, AsyncOpenTransaction),
]

FUNCTIONS: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (penstock.connect, penstock.connect_async),
    (blocking_database.connect, awaiting_database.connect),
    (execute.execute, execute.execute_async),
]

#: `connect_async` refers to `connect`; another thread may stop a consumer, but not an event loop's
OTHER_PROMISES = {"connect", "Consumer.stop"}

SPECIAL = {
    "__enter__": "__aenter__",
    "__exit__": "__aexit__",
    "__iter__": "__aiter__",
    "__next__": "__anext__",
}

# What the words of blocking code are in async code.
WORDS = [
    (r"\bAsync", ""),
    (r"\b[Aa]wait(able\[(.*)\])?\s?", r"\2"),
    (r"\ban `async with`", "a `with`"),
    (r"\basync (with|for)", r"\1"),
    (r"connect_async", "connect"),
    (r"\b(async|blocking) code\b", "code"),
    (r"\btasks?\b", "thread"),
    (r"\bthreads\b", "thread"),
]


def public_names(owner: type) -> set[str]:
    """The names that callers use; the special methods by their names in blocking code."""
    special = SPECIAL | {there: here for here, there in SPECIAL.items()}
    return {
        name if name not in SPECIAL.values() else special[name]
        for name in dir(owner)
        if not name.startswith("_") or name in special
    }


def members() -> Iterator[Any]:
    for blocking, awaiting in TWINS:
        for name in sorted(public_names(blocking) & public_names(awaiting)):
            other = SPECIAL.get(name, name)
            here, there = (
                inspect.getattr_static(blocking, name),
                inspect.getattr_static(awaiting, other),
            )
            if callable(here) or isinstance(here, property):
                yield pytest.param(here, there, id=f"{blocking.__name__}.{name}")
    for one, other_one in FUNCTIONS:
        yield pytest.param(one, other_one, id=f"{one.__module__}.{one.__name__}")


def translated(text: str | None) -> str | None:
    """What is said in async code, in the words of blocking code."""
    if text is not None:
        for async_words, blocking_words in WORDS:
            text = re.sub(async_words, blocking_words, text)
        text = " ".join(text.split())
    return text


def function_of(member: Any) -> Any:
    if isinstance(member, property):
        return member.fget
    return inspect.unwrap(getattr(member, "__func__", member))


def parameters_of(member: Any) -> list[tuple[Any, ...]]:
    return [
        (one.name, one.kind, default_of(one.default), translated(str(one.annotation)))
        for one in inspect.signature(function_of(member)).parameters.values()
    ]


def default_of(default: Any) -> Any:
    """The default; for a function, what it does."""
    return default.__code__.co_code if inspect.isfunction(default) else default


def kind_of(member: Any) -> str:
    """How a member is used, in words that are the same for both."""
    function = function_of(member)
    if isinstance(member, property):
        return "property"
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return "iterator"
    return "method"


@pytest.mark.parametrize(("blocking", "awaiting"), TWINS)
def test_twins_have_the_same_public_names(blocking: type, awaiting: type) -> None:
    assert public_names(blocking) == public_names(awaiting)


@pytest.mark.parametrize(("blocking", "awaiting"), list(members()))
class TestEachMember:
    def test_has_the_same_parameters_and_defaults(self, blocking: Any, awaiting: Any) -> None:
        assert parameters_of(blocking) == parameters_of(awaiting)

    def test_returns_the_same(self, blocking: Any, awaiting: Any) -> None:
        here, there = (
            inspect.signature(function_of(one)).return_annotation for one in (blocking, awaiting)
        )

        assert translated(str(here)) == translated(str(there))

    def test_promises_the_same(self, blocking: Any, awaiting: Any) -> None:
        same = translated(blocking.__doc__) == translated(awaiting.__doc__)

        assert same or function_of(blocking).__qualname__ in OTHER_PROMISES

    def test_is_of_the_same_kind(self, blocking: Any, awaiting: Any) -> None:
        assert kind_of(blocking) == kind_of(awaiting)
        assert not inspect.iscoroutinefunction(function_of(blocking))
