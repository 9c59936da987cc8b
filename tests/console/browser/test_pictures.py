"""Pictures of the screens, for the guide.

    python -m pytest tests/console/browser/test_pictures.py --pictures

Without the option they are made and thrown away: a screen that cannot be drawn is found out.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal

import psycopg
import pytest
from playwright.sync_api import Browser, Page, expect

from penstock import Store
from tests.console.browser.conftest import DESKTOP, PHONE, Shop, Visitor, change_scheme, visiting
from tests.console.browser.screens import SCREENS, Shown

pytestmark = pytest.mark.timeout(900)  # minutes of writing, for the charts
FOLDER = Path(__file__).parents[3] / "docs" / "images" / "console"


@pytest.fixture(scope="module")
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not request.config.getoption("--pictures"):
        return tmp_path_factory.mktemp("pictures")
    FOLDER.mkdir(parents=True, exist_ok=True)
    return FOLDER


@pytest.fixture(scope="module", autouse=True)
def _past(request: pytest.FixtureRequest, console: str, the_shop: Shop, browser: Browser) -> None:
    """Let the charts show some minutes of writing, if the pictures are kept."""
    if not request.config.getoption("--pictures"):
        return
    with visiting(browser) as visitor:
        page = visitor.open(console)  # the console looks at the figures while somebody watches
        for second in range(280):
            wave = round(6 + 5 * math.sin(second / 25) + 3 * math.sin(second / 7))
            for number in range(max(0, wave)):
                the_shop.store.write_message(f"click-{second}-{number}", "Clicked")
            page.wait_for_timeout(1_000)


@contextmanager
def open_writer(url: str) -> Iterator[None]:
    """Let a transaction hold readers back meanwhile."""
    with psycopg.connect(url, application_name="nightly import") as connection:
        connection.execute("select message_store.write_message(%s, %s, %s, %s)", _WRITTEN)
        with psycopg.connect(url, autocommit=True) as other:
            other.execute(_LATER)
        yield
        connection.rollback()


_LATER = """
select message_store.write_message(gen_random_uuid()::text, 'order-late-' || n, 'Ordered', '{}')
from generate_series(1, 17) n
"""
_WRITTEN = ("01a1ed39-66f3-79a5-9ab8-c83687bb694b", "import-1", "Imported", "{}")


@pytest.mark.parametrize("shown", [one for one in SCREENS if one.picture], ids=lambda one: one.name)
def test_a_picture_of_each_screen(
    shown: Shown, visitor: Visitor, console: str, the_shop: Shop, store: Store, folder: Path
) -> None:
    address = shown.address(console, store)
    with open_writer(the_shop.url) if shown.path == "/" else nullcontext():
        _draw(shown, address, visitor, folder)


def _draw(shown: Shown, address: str, visitor: Visitor, folder: Path) -> None:
    schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    for device, viewport in (("desktop", DESKTOP), ("phone", PHONE)):
        page = visitor.open(address, viewport=viewport, device_scale_factor=1.5)
        text = "holds readers back" if shown.path == "/" else shown.text
        expect(page.get_by_role("main")).to_contain_text(text)
        for scheme in schemes:
            change_scheme(page, scheme)
            picture = folder / f"{shown.name}-{device}-{scheme}.webp"
            picture.write_bytes(_webp(page))

            assert picture.stat().st_size > 4_000


def _webp(page: Page) -> bytes:
    """Return what is in the viewport: Playwright has no WebP, a third of PNG."""
    session = page.context.new_cdp_session(page)
    options: dict[str, Any] = {"format": "webp", "quality": 60}
    picture = session.send("Page.captureScreenshot", options)
    return base64.b64decode(picture["data"])
