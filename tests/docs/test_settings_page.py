"""docs/settings.md has every setting, its variable and its default."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from penstock import Settings
from tests.docs.pages import ROOT

ROW = re.compile(r"^\| `(\w+)` \| `(\w+)` \| `([^`]+)` \| .+ \|$", re.MULTILINE)
ROWS = ROW.findall((ROOT / "docs" / "settings.md").read_text(encoding="utf-8"))


def test_the_page_has_every_setting_once() -> None:
    documented = [name for name, _, _ in ROWS]

    assert documented == [field.name for field in fields(Settings)]


@pytest.mark.parametrize(("name", "variable", "default"), ROWS)
def test_a_default_is_as_the_page_says(name: str, variable: str, default: str) -> None:
    value = getattr(Settings(), name)

    assert str(value) == default


@pytest.mark.parametrize(("name", "variable", "default"), ROWS)
def test_a_variable_sets_its_setting(
    name: str, variable: str, default: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = _another(name)
    if name == "replica":  # which has a primary
        monkeypatch.setenv("PENSTOCK_URL", "postgresql://localhost/elsewhere")
    monkeypatch.setenv(variable, json.dumps(value) if isinstance(value, dict) else str(value))

    assert getattr(Settings.load(), name) == value


def _another(name: str) -> object:
    """A value that the setting may have, and not by default if it has a choice."""
    default = getattr(Settings(), name)
    match name:
        case "database_url" | "replica":
            return "postgresql://localhost/elsewhere"
        case "folder":
            return Path("elsewhere")
        case "schema_name":
            return default
        case "session_timezone":
            return "Europe/Zurich"
        case "port":
            return 5433
        case "max_write_seconds":
            return 60
        case "sslmode":
            return "require"
        case "warehouse":
            return "file:///elsewhere"
        case "lake_options":
            return {"s3.region": "elsewhere"}
    if isinstance(default, bool):
        return not default
    return default + 1 if isinstance(default, int | float) else "elsewhere"
