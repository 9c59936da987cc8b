"""Pages define message classes of their own, whatever the tests before them have defined."""

from __future__ import annotations

import importlib

import pytest


@pytest.fixture(autouse=True)
def _no_message_classes_from_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("penstock.message.typed")
    monkeypatch.setattr(module, "_registry", {})
