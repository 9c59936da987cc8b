"""docs/errors.md has the tree of errors, and for each error what to do about it."""

from __future__ import annotations

import re

import pytest

from penstock import errors
from penstock.errors import PenstockError
from tests.docs.pages import ROOT
from tools.generate_errors_page import generated

PAGE = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(\w+)` \| .+? \| (yes|no) \| .+ \|$", re.MULTILINE)
ROWS: dict[str, str] = dict(ROW.findall(PAGE))
ERRORS = [
    one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, PenstockError)
]


def test_the_page_has_every_error_and_no_other() -> None:
    documented = sorted(ROWS)

    assert documented == sorted(error.__name__ for error in ERRORS)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: str(error.__name__))
def test_the_page_says_of_an_error_whether_to_retry(error: type[PenstockError]) -> None:
    advice = ROWS[error.__name__]

    assert advice == ("yes" if error.retryable else "no")


def test_the_page_is_generated_from_the_classes() -> None:
    assert generated(PAGE) == PAGE, "run `make generate`"


@pytest.mark.parametrize("text", [PAGE, errors.__doc__ or ""], ids=["page", "module"])
def test_the_tree_is_drawn_as_the_classes_are(text: str) -> None:
    drawn = _branches(text)

    assert drawn == {error.__name__: _parent(error) for error in ERRORS}


def _branches(text: str) -> dict[str, str]:
    """Each error of a drawn tree, and the one that it hangs from."""
    parents: dict[str, str] = {}
    path: list[str] = []
    root = re.search(r"^( *)PenstockError$", text, re.MULTILINE)
    assert root, "no tree"
    for line in text[root.start() :].splitlines():
        branch = re.match(r"([│├└─ ]*)(\w+)", line.removeprefix(root[1]))
        if branch is None:
            break
        depth = len(branch[1]) // 4
        path[depth:] = [branch[2]]
        parents[branch[2]] = path[depth - 1] if depth else ""
    return parents


def _parent(error: type[PenstockError]) -> str:
    parent = error.__bases__[0]
    return parent.__name__ if issubclass(parent, PenstockError) else ""
