"""docs/reference.md has every public name."""

from __future__ import annotations

import re
from importlib import import_module

import penstock.pipeline
from penstock.errors import PenstockError
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
DOCUMENTED = re.findall(r"^::: (penstock[\w.]*)$", PAGE, re.MULTILINE)


def test_the_page_has_every_public_name_but_errors_which_come_as_one() -> None:
    public = {
        f"penstock.{name}" for name in penstock.__all__ if not _is_error(getattr(penstock, name))
    }

    assert public <= set(DOCUMENTED)
    assert "penstock.errors" in DOCUMENTED


def test_the_page_has_every_name_of_the_pipeline() -> None:
    public = {f"penstock.pipeline.{name}" for name in penstock.pipeline.__all__}

    assert public <= set(DOCUMENTED)


def test_what_the_page_names_exists() -> None:
    for name in DOCUMENTED:
        module, _, attribute = name.rpartition(".")

        assert hasattr(import_module(module), attribute), name


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, PenstockError)
