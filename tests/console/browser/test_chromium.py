"""Without a browser the tests are skipped, and say why."""

from __future__ import annotations

import platform

import pytest
from playwright.sync_api import Playwright

from tests.console.browser import chromium


def test_a_machine_without_a_browser_says_what_was_tried(
    playwright: Playwright, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")

    with pytest.raises(chromium.NoBrowser) as raised:
        chromium.launch(playwright)

    assert "none of chromium, chromium-browser" in str(raised.value)
    assert "@sparticuz/chromium is for Linux on x86_64" in str(raised.value)


def test_a_program_that_does_not_start_is_named_with_its_reason(
    playwright: Playwright, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chromium, "ON_THE_MACHINE", ("false",))
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")

    with pytest.raises(chromium.NoBrowser, match="false: "):
        chromium.launch(playwright)
