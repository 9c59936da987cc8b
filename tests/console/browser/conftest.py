"""One browser, one shop and one console for all tests of this folder; a fresh page for each.

Playwright keeps an event loop running in this thread, in which no async test could run. So all of
it is of this package: pytest ends it before a test of another folder begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

import psycopg
import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Playwright,
    Request,
    expect,
    sync_playwright,
)

import penstock
from penstock import Store
from tests.conftest import Server
from tests.console.browser import chromium, shop
from tests.console.serving import serving

DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
DEFAULTS = {"viewport": DESKTOP, "timezone_id": "Asia/Tokyo", "locale": "en-GB"}
SLOW = 20_000  # milliseconds, for a machine that is busy with other tests
expect.set_options(timeout=SLOW)


@pytest.fixture(scope="package")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as playwright:
        yield playwright


@pytest.fixture(scope="package")
def browser(playwright: Playwright) -> Iterator[Browser]:
    try:
        browser = chromium.launch(playwright)
    except chromium.NoBrowser as error:
        pytest.skip(f"no browser: {error}")
    yield browser
    browser.close()


@dataclass(frozen=True)
class Shop:
    """The database of a busy shop. Tests add what they act on, under names of their own."""

    url: str
    settings: Mapping[str, Any]
    store: Store


@pytest.fixture(scope="package")
def the_shop(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    name, folder = (
        server.create_database(server.template("penstock")),
        tmp_path_factory.mktemp("shop"),
    )
    settings: dict[str, Any] = {"warehouse": f"file://{folder}/lake"}
    with penstock.connect(server.url(name), **settings) as store:
        shop.fill(store, folder)
        with psycopg.connect(server.url(name), autocommit=True) as connection:
            connection.execute("analyze")
        yield Shop(server.url(name), settings, store)
    server.drop_database(name)


@pytest.fixture
def store(the_shop: Shop) -> Store:
    """The store of the shop."""
    return the_shop.store


@pytest.fixture(scope="package")
def console(the_shop: Shop) -> Iterator[str]:
    """The address of the shop's console, with actions."""
    with serving(the_shop.url, settings=the_shop.settings, actions=True) as address:
        yield address


TOKEN = "a token that nobody can guess"


@pytest.fixture(scope="package")
def guarded_console(the_shop: Shop) -> Iterator[str]:
    """The address of a console that asks for a token."""
    with serving(the_shop.url, actions=True, token=TOKEN) as address:
        yield address


class Visitor:
    """Opens pages, and remembers what a console must not do: errors, and requests to others."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self.contexts: list[BrowserContext] = []
        self.complaints: list[str] = []
        #: what the test does on purpose: a refused request, a database that is away
        self.expected: tuple[str, ...] = ()

    def open(self, address: str = "", **options: object) -> Page:
        """Open a page in a browser session of its own."""
        context = self._browser.new_context(
            **{**DEFAULTS, **options},  # type: ignore[arg-type]
        )
        context.set_default_timeout(SLOW)
        self.contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: self.complaints.append(f"script: {error}"))
        page.on("console", self._hear)
        page.on("dialog", lambda one: self.complaints.append(f"dialog: {one.message}"))
        page.on("request", self._watch)
        if address:
            page.goto(address)
        return page

    def _watch(self, request: Request) -> None:
        if urlsplit(request.url).hostname not in ("127.0.0.1", "localhost"):
            self.complaints.append(f"request to another host: {request.url}")

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type == "error":  # a script that failed, a violation of the security policy
            self.complaints.append(message.text)

    def close(self) -> None:
        for context in self.contexts:
            context.close()
        unexpected = [
            one for one in self.complaints if not any(known in one for known in self.expected)
        ]
        assert not unexpected, unexpected


def change_scheme(page: Page, scheme: Literal["light", "dark"]) -> None:
    """Change the colours of a page as the viewer's system does, and wait until it has them."""
    page.emulate_media(color_scheme=scheme)
    page.evaluate("Promise.allSettled(document.getAnimations().map(one => one.finished))")


@contextmanager
def visiting(browser: Browser) -> Iterator[Visitor]:
    visitor = Visitor(browser)
    try:
        yield visitor
    finally:
        visitor.close()


@pytest.fixture
def visitor(browser: Browser) -> Iterator[Visitor]:
    with visiting(browser) as visitor:
        yield visitor


@pytest.fixture
def page(visitor: Visitor, console: str) -> Page:
    """The overview of the shop's console, on a desktop."""
    return visitor.open(console)


@pytest.fixture(scope="package")
def read_only_console(the_shop: Shop) -> Iterator[str]:
    """The address of a console without actions."""
    with serving(the_shop.url, settings=the_shop.settings) as address:
        yield address
