"""The blocking modules come from the async ones, and both offer the same."""

from __future__ import annotations

import ast
import inspect

import pytest

import penstock
from tools.generate_blocking import BY_HAND, PACKAGE, generated, to_blocking


def test_every_blocking_module_is_what_its_async_one_makes_of_it() -> None:
    stale = [str(target) for target, text in generated() if target.read_text() != text]

    assert stale == []


@pytest.mark.parametrize(
    ("written", "made"),
    [
        ("async def f(): await g()", "def f(): g()"),
        ("async with a as b: pass", "with a as b: pass"),
        ("x = [one async for one in y]", "x = [one for one in y]"),
        ("return (await self.f(x))[0]", "return (self.f(x))[0]"),
        ("f: Callable[[], Awaitable[list[int]]]", "f: Callable[[], list[int]]"),
        ("class AsyncStore(AsyncCalls): pass", "class Store(Calls): pass"),
        ("from penstock.log.read_async import read", "from penstock.log.read import read"),
        ("async def __aenter__(self): pass", "def __enter__(self): pass"),
        ('"""For async code: `async with` it."""', '"""For blocking code: `with` it."""'),
        ("asynchronous = 1  # await nothing", "asynchronous = 1  # nothing"),
        ("x = 'Async'; y = is_async_name", "x = 'Async'; y = is_async_name"),
    ],
)
def test_async_words_become_blocking_ones(written: str, made: str) -> None:
    assert to_blocking(written) == made


def test_only_one_pair_is_written_by_hand() -> None:
    assert {path.relative_to(PACKAGE).as_posix() for path in BY_HAND} == {
        "loops/concurrency_async.py"
    }


@pytest.mark.parametrize("name", [one for one in penstock.__all__ if one.startswith("Async")])
def test_every_async_class_has_a_blocking_one_with_the_same_calls(name: str) -> None:
    special = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__"}
    ours, theirs = getattr(penstock, name), getattr(penstock, name.removeprefix("Async"))

    def surface(one: type) -> dict[str, list[str]]:
        return {
            special.get(name, name): list(inspect.signature(member).parameters)
            for name, member in inspect.getmembers(one, inspect.isfunction)
            if not name.startswith("_") or name in special or name in special.values()
        }

    assert surface(ours) == surface(theirs)


def test_the_two_concurrency_modules_have_the_same_names() -> None:
    from penstock.loops import concurrency, concurrency_async

    modules = (concurrency.__name__, concurrency_async.__name__)
    imported = {
        alias.name
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module in modules
        for alias in node.names
    }

    assert imported <= vars(concurrency).keys() & vars(concurrency_async).keys()
