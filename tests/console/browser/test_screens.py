"""Each screen on a phone and as JSON, and what a person does on them.

On a desktop, `test_accessibility.py` loads each of them.
"""

from __future__ import annotations

import json
from datetime import timedelta, timezone
from urllib.request import urlopen

import pytest
from playwright.sync_api import Page, expect

from penstock import Store
from penstock.console.screens import SCREENS as SERVED
from tests.console.browser.conftest import PHONE, Visitor
from tests.console.browser.screens import SCREENS, Shown
from tests.console.serving import serving

each_screen = pytest.mark.parametrize("shown", SCREENS, ids=lambda one: one.name)


def test_every_screen_is_tested() -> None:
    assert {one.path for one in SCREENS} == {one.path for one in SERVED} - {"/activity/action"}


@each_screen
def test_a_screen_fits_a_phone(shown: Shown, visitor: Visitor, console: str, store: Store) -> None:
    page = visitor.open(shown.address(console, store), viewport=PHONE, has_touch=True)

    expect(page.get_by_role("main")).to_contain_text(shown.text)
    # tables and drawings may scroll inside, the page may not
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


@each_screen
def test_a_screen_is_there_as_json(shown: Shown, console: str, store: Store) -> None:
    path = next(one for one in SERVED if one.path == shown.path).api
    address = shown.address(console, store).replace(f"{console}{shown.path}", f"{console}{path}")

    with urlopen(address) as answer:
        assert answer.headers.get_content_type() == "application/json"
        assert json.load(answer)


def test_an_empty_database_says_what_to_do_next(visitor: Visitor, database_url: str) -> None:
    with serving(database_url) as console:
        page = visitor.open()
        for path in ("/", "/log", "/consumers", "/queues", "/groups", "/outbox", "/joins",
                     "/dead-letters", "/pipelines", "/tables", "/activity"):  # fmt: skip
            page.goto(console + path)

            expect(page.locator(".empty, .ok-panel").first).to_be_visible()
        visitor.close()


def test_the_overview_names_what_fails_and_leads_to_it(page: Page) -> None:
    troubles = page.get_by_role("region", name="Needs attention")

    expect(troubles).to_contain_text("DIVIDE_BY_ZERO")
    troubles.get_by_role("listitem").filter(has_text="stock").get_by_role(
        "link", name="Look"
    ).click()

    expect(page.get_by_role("heading", level=1)).to_have_text("stock")
    expect(page.get_by_role("table")).to_contain_text("the warehouse has no shelf for p3")


def test_a_person_finds_a_message_by_category_stream_and_position(page: Page) -> None:
    page.get_by_role("link", name="Messages", exact=True).click()
    page.get_by_role("link", name="order", exact=True).click()
    page.get_by_role("link", name="order-o596", exact=True).first.click()
    page.get_by_role("link", name="Ordered").click()

    expect(page.get_by_role("heading", level=1)).to_have_text("Ordered")
    expect(page.get_by_role("main")).to_contain_text('"o596"')


@pytest.mark.parametrize("what", ["position", "id", "stream", "category"])
def test_the_field_at_the_top_goes_to_what_is_typed(what: str, page: Page, store: Store) -> None:
    order = store.get_stream_messages("order-o0")[0]
    typed = {
        "position": str(order.global_position),
        "id": str(order.id),
        "stream": "order-o0",
        "category": "order",
    }[what]

    page.keyboard.press("/")
    page.keyboard.type(typed)
    page.keyboard.press("Enter")

    heading = {"position": "Ordered", "id": "Trace"}.get(what, typed)
    expect(page.get_by_role("heading", level=1)).to_have_text(heading)


def test_times_are_in_the_viewers_zone_with_utc_on_hover(
    visitor: Visitor, console: str, store: Store
) -> None:
    order = store.get_stream_messages("order-o0")[0]

    page = visitor.open(f"{console}/log/message?key={order.global_position}")

    tokyo = order.time.astimezone(timezone(timedelta(hours=9)))
    shown = page.locator("time").first
    expect(shown).to_contain_text(f"{tokyo:%H:%M:%S}")
    expect(shown).to_have_attribute("title", f"{order.time:%Y-%m-%d %H:%M:%S.%f} UTC")


def test_the_trace_of_an_order_has_its_cause_and_all_its_consequences(
    visitor: Visitor, console: str, store: Store
) -> None:
    order = store.get_stream_messages("order-o0")[0]

    page = visitor.open(f"{console}/trace?key={order.global_position}")

    tree = page.get_by_role("main")
    for text in ("PlaceOrder", "Ordered", "Invoiced", "reservation.requested", "Shipped", "mail"):
        expect(tree).to_contain_text(text)


def test_joins_of_one_grouping_key_are_chosen_and_left_again(
    visitor: Visitor, console: str
) -> None:
    page = visitor.open(f"{console}/joins")
    rows = page.get_by_role("main").get_by_role("row")
    expect(rows.filter(has_text="nightly")).to_have_count(1)
    page.get_by_role("link", name="shop", exact=True).first.click()

    expect(page.get_by_text("Of the grouping key shop")).to_be_visible()
    expect(rows.filter(has_text="nightly")).to_have_count(0)

    page.get_by_role("link", name="All joins").click()
    expect(rows.filter(has_text="nightly")).to_have_count(1)


def test_a_graph_can_be_zoomed(visitor: Visitor, console: str) -> None:
    page = visitor.open(f"{console}/pipelines/pipeline?pipeline=shop")
    width = "one => one.getBoundingClientRect().width"
    before = page.locator("svg.graph").evaluate(width)

    page.get_by_role("button", name="Zoom in").click()

    assert page.locator("svg.graph").evaluate(width) > before


def test_a_chosen_theme_is_kept(page: Page) -> None:
    background = "getComputedStyle(document.documentElement).backgroundColor"
    page.emulate_media(color_scheme="light")
    light = page.evaluate(background)

    while page.locator("[data-theme-name]").inner_text() != "dark":
        page.get_by_role("button", name="Theme").click()
    dark = page.evaluate(background)
    page.reload()

    assert dark != light
    assert page.evaluate(background) == dark


class TestBadInput:
    @pytest.mark.parametrize(
        ("path", "text"),
        [
            ("/nowhere", "/nowhere"),
            ("/log/message?key=999999999", "999,999,999|999999999"),
            ("/log/message?key=not-an-id", "not-an-id"),
            ("/log/messages?target=order&position=-1", "-1"),
            ("/log/messages?target=order&time=yesterday", "yesterday"),
            ("/log/messages?target=order&after=%00rubbish", "after"),
            ("/groups/group?group_id=nobody", "nobody"),
            ("/consumers/consumer?category=order&consumer_id=nobody", "nobody"),
            ("/outbox/message?id=1", "1"),
            ("/outbox/message?id=00000000-0000-0000-0000-000000000000", "00000000-0000"),
            ("/joins/join?id=00000000-0000-0000-0000-000000000000", "00000000-0000"),
            ("/dead-letters/letter?key=rubbish", "rubbish"),
            ("/pipelines/processor?pipeline=shop&processor=nobody", "nobody"),
            ("/tables/table?table=nobody", "nobody"),
            ("/boundaries?conditions=%3D", "="),
            ("/actions/nothing", "nothing"),
        ],
    )
    def test_gets_an_answer_that_names_it(
        self, path: str, text: str, visitor: Visitor, console: str
    ) -> None:
        visitor.expected = ("status of 4",)

        page = visitor.open()
        answer = page.goto(console + path)

        assert answer is not None
        assert 400 <= answer.status < 500
        shown = page.get_by_role("alert").filter(visible=True).inner_text()
        assert any(one in shown for one in text.split("|")), shown

    def test_a_position_beyond_the_end_shows_that_nothing_is_there(
        self, visitor: Visitor, console: str
    ) -> None:
        page = visitor.open(f"{console}/log/messages?target=order&position=999999999")

        expect(page.get_by_role("main")).to_contain_text("Nothing from there on")

    def test_a_message_of_20_mb_is_cut_and_can_be_downloaded(
        self, visitor: Visitor, console: str, store: Store
    ) -> None:
        text = "0123456789" * 2_000_000
        position = store.write_message(
            "video-1", "Uploaded", {"bytes": text}, returning="global_position"
        )
        page = visitor.open(f"{console}/log/message?key={position}")

        expect(page.get_by_role("main")).to_contain_text("cut here")
        assert len(page.content()) < 1_000_000
        with page.expect_download() as download:
            page.get_by_role("link", name="Download the whole").click()
        message = json.loads(download.value.path().read_bytes())

        assert message["data"]["bytes"] == text
