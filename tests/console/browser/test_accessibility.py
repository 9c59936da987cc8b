"""What a screen reader, a keyboard and weak eyes need: axe-core's rules, and the keyboard."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from penstock import Store
from tests import npm
from tests.console.browser.conftest import PHONE, Visitor, change_scheme
from tests.console.browser.screens import SCREENS, Shown

AXE = "4.14.0"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


@cache
def axe() -> str:
    return (npm.package("axe-core", AXE) / "axe.min.js").read_text(encoding="utf-8")


def findings(page: Page, **options: Any) -> list[str]:
    """Return what axe-core finds that is serious or critical."""
    page.evaluate(axe())  # not as a script of the page: its policy forbids that
    found = page.evaluate(
        "options => axe.run(document, {resultTypes: ['violations'], ...options})", options
    )
    return [
        f"{one['id']}: {node['failureSummary']} {node['html'][:200]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


@pytest.mark.parametrize("shown", SCREENS, ids=lambda one: one.name)
def test_a_screen_shows_what_there_is_without_a_serious_finding(
    shown: Shown, visitor: Visitor, console: str, store: Store
) -> None:
    page = visitor.open(shown.address(console, store), color_scheme="light")
    expect(page.get_by_role("main")).to_contain_text(shown.text)
    expect(page.get_by_role("heading", level=1)).to_have_count(1)

    assert findings(page, runOnly=RULES) == []
    change_scheme(page, "dark")
    assert findings(page, runOnly={"type": "rule", "values": ["color-contrast"]}) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_and_a_page_that_asks_have_none_either(
    scheme: Any, visitor: Visitor, console: str, store: Store
) -> None:
    failed = store.outbox.list(topic="mail", state="failed")[0]
    asks = f"{console}/actions/retry-outbox?id={failed.id}"

    for address in (console, f"{console}/dead-letters", asks):
        page = visitor.open(address, viewport=PHONE, color_scheme=scheme)

        assert findings(page, runOnly=RULES) == []


def test_an_error_and_the_page_for_the_token_have_none(
    visitor: Visitor, console: str, guarded_console: str
) -> None:
    visitor.expected = ("status of 4",)

    for address in (f"{console}/groups/group?group_id=nobody", guarded_console):
        assert findings(visitor.open(address), runOnly=RULES) == []


class TestTheKeyboard:
    def test_skips_to_the_content(self, page: Page) -> None:
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        page.keyboard.press("Enter")

        expect(page.get_by_role("main")).to_be_focused()

    def test_shows_where_it_is(self, page: Page) -> None:
        outline = "getComputedStyle(document.activeElement).outlineStyle"

        seen = []
        for _ in range(20):
            page.keyboard.press("Tab")
            seen.append(page.evaluate(outline))

        assert set(seen) == {"solid"}

    def test_alone_is_enough_to_act(self, visitor: Visitor, console: str, store: Store) -> None:
        id = store.outbox.enqueue("by keyboard", "payload")
        (claimed,) = store.outbox.claim("test", topics=["by keyboard"])
        store.outbox.fail(claimed, "no")
        page = visitor.open(f"{console}/outbox/message?id={id}")

        for name, next in (("Retry …", "**/actions/**"), ("Retry a message", "**/activity/**")):
            _tab_to(page, name)
            page.keyboard.press("Enter")
            page.wait_for_url(next)

        expect(page.get_by_role("status")).to_contain_text("ready again")
        assert store.outbox.get(id).state == "ready"

    def test_opens_the_menu_of_a_phone(self, visitor: Visitor, console: str) -> None:
        page = visitor.open(console, viewport=PHONE)
        menu = page.get_by_role("button", name="Menu")
        expect(page.get_by_role("link", name="Groups")).to_be_hidden()

        menu.focus()
        page.keyboard.press("Enter")

        expect(menu).to_have_attribute("aria-expanded", "true")
        page.get_by_role("link", name="Groups").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Groups")


def _tab_to(page: Page, name: str) -> None:
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.innerText") == name:
            return
    pytest.fail(f"the Tab key does not reach {name!r}")
