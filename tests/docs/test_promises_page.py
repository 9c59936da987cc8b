"""docs/promises.md names, for each promise, tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
PROMISES = re.split(r"^## (?=\d)", PAGE, flags=re.MULTILINE)[1:]
NAMED = re.compile(r"^- `(tests/[^`]+)`$", re.MULTILINE)


def test_there_are_seven_promises_each_with_tests() -> None:
    numbers = [promise.partition(".")[0] for promise in PROMISES]

    assert numbers == ["1", "2", "3", "4", "5", "6", "7"]
    assert all(NAMED.findall(promise) for promise in PROMISES)


@pytest.mark.parametrize("name", sorted(set(NAMED.findall(PAGE))))
def test_a_test_that_is_named_exists(name: str) -> None:
    file, _, path = name.partition("[")[0].partition("::")

    assert path in _tests(ROOT / file)


@cache
def _tests(file: Path) -> set[str]:
    """The tests of a file, as pytest names them."""
    module = ast.parse(file.read_text(encoding="utf-8"))
    classes = [one for one in module.body if isinstance(one, ast.ClassDef)]
    return set(_functions(module)) | {
        f"{one.name}::{test}" for one in classes for test in _functions(one)
    }


def _functions(body: ast.Module | ast.ClassDef) -> list[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [
        one.name for one in body.body if isinstance(one, kinds) and one.name.startswith("test_")
    ]
