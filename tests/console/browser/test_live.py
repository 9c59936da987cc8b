"""Live pages: figures and rows are pushed, and an outage of the database passes by itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, Request, expect

import penstock
from penstock import Store
from tests.console.browser.conftest import PHONE, Visitor
from tests.console.serving import serving
from tests.servers import OwnServer, own_server


def test_a_category_is_followed(visitor: Visitor, console: str, store: Store) -> None:
    page = visitor.open(f"{console}/log/messages?target=parcel")
    expect(page.get_by_role("main")).to_contain_text("No messages")

    for number in range(3):
        store.write_message(f"parcel-{number}", "Sent", {"to": f"customer {number}"})
        expect(page.get_by_role("table")).to_contain_text(f"customer {number}")


def test_following_can_be_paused(visitor: Visitor, console: str, store: Store) -> None:
    store.write_message("letter-1", "Sent")
    page = visitor.open(f"{console}/log/messages?target=letter")
    other = visitor.open(f"{console}/log/messages?target=letter")
    page.get_by_role("button", name="pause").click()

    store.write_message("letter-2", "Sent")

    expect(other.get_by_role("table")).to_contain_text("letter-2")  # it was pushed to both
    expect(page.get_by_role("table")).not_to_contain_text("letter-2")
    page.get_by_role("button", name="Paused").click()
    expect(page.get_by_role("table")).to_contain_text("letter-2")


def test_two_viewers_see_the_same(visitor: Visitor, console: str, store: Store) -> None:
    pages = [
        visitor.open(f"{console}/outbox/messages?topic=fax"),
        visitor.open(f"{console}/outbox/messages?topic=fax", viewport=PHONE, color_scheme="dark"),
    ]

    store.outbox.enqueue("fax", {"to": "everybody"})

    for page in pages:
        expect(page.get_by_role("table")).to_contain_text("fax")


def test_an_open_page_shows_what_starts_to_fail(page: Page, store: Store) -> None:
    expect(page.get_by_role("main")).not_to_contain_text("telegram")

    store.outbox.enqueue("telegram", "stop")
    (claimed,) = store.outbox.claim("test", topics=["telegram"])
    store.outbox.fail(claimed, "the wire is cut")

    expect(page.get_by_role("region", name="Needs attention")).to_contain_text("telegram")


def test_a_live_page_keeps_what_the_reader_does(
    visitor: Visitor, console: str, store: Store
) -> None:
    """The field that is being filled in is not replaced by what is pushed."""
    page = visitor.open(f"{console}/log/messages?target=note")
    page.get_by_role("textbox", name="Type").fill("half a wo")

    store.write_message("note-1", "Written")

    expect(page.get_by_role("table")).to_contain_text("note-1")
    expect(page.get_by_role("textbox", name="Type")).to_have_value("half a wo")
    expect(page.get_by_role("textbox", name="Type")).to_be_focused()


def test_a_tab_that_nobody_looks_at_gives_its_stream_back(
    visitor: Visitor, console: str, store: Store
) -> None:
    visitor.expected = ("[object Event]",)  # htmx logs that it has lost the stream
    page, opened = visitor.open(), list[str]()
    page.clock.install()
    page.on("request", lambda one: opened.append(one.url) if _is_live(one) else None)
    page.goto(f"{console}/log/messages?target=postcard")
    expect(page.get_by_role("main")).to_contain_text("No messages")

    page.evaluate(HIDE, True)
    page.clock.run_for(15_000)
    store.write_message("postcard-1", "Sent")
    expect(page.get_by_role("table")).to_contain_text("postcard-1")  # the viewer may be back soon
    with page.expect_event("requestfailed", _is_live):  # closed by the page
        page.clock.run_for(10_000)
    store.write_message("postcard-2", "Sent")
    page.clock.run_for(60_000)
    hidden = len(opened), page.get_by_role("table").inner_text()
    page.evaluate(HIDE, False)

    expect(page.get_by_role("table")).to_contain_text("postcard-2")
    expect(page.get_by_text("The console does not answer")).to_be_hidden()
    assert hidden[0] == 1
    assert "postcard-2" not in hidden[1]
    assert len(opened) == 2


#: what a browser does when its viewer changes to another tab, or comes back
HIDE = """hidden => {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def _is_live(request: Request) -> bool:
    return "/live?" in request.url


class TestTheDatabaseAway:
    @pytest.fixture(scope="class")
    def away(self) -> Iterator[OwnServer]:
        with own_server() as server:
            yield server

    def test_an_open_page_says_so_and_recovers(self, visitor: Visitor, away: OwnServer) -> None:
        visitor.expected = ("status of 503",)
        with penstock.connect(away.start()) as store, serving(away.url) as console:
            store.write_message("before-1", "Written")
            page = visitor.open(f"{console}/log")
            expect(page.get_by_role("main")).to_contain_text("before-1")

            away.stop()
            expect(page.get_by_role("alert").filter(visible=True)).to_contain_text(
                "The database cannot be reached"
            )
            expect(page.get_by_role("main")).to_contain_text("before-1")  # what was seen stays

            away.start()
            expect(page.get_by_role("alert").filter(visible=True)).to_have_count(0)
            store.write_message("after-1", "Written")
            expect(page.get_by_role("main")).to_contain_text("after-1")
            visitor.close()

    def test_a_page_that_is_opened_meanwhile_says_so_and_recovers(
        self, visitor: Visitor, away: OwnServer
    ) -> None:
        visitor.expected = ("status of 503",)
        away.start()
        with serving(away.url) as console:
            visitor.open(console)
            away.stop()

            page = visitor.open(f"{console}/log")
            expect(page.get_by_role("alert").filter(visible=True).first).to_contain_text("reach")

            away.start()
            expect(page.get_by_role("heading", level=1)).to_have_text("Messages")
            visitor.close()


def test_the_console_away_is_said_too(visitor: Visitor, database_url: str) -> None:
    visitor.expected = ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE", "[object Event]")
    with serving(database_url) as console:
        page = visitor.open(console)
        expect(page.get_by_role("main")).to_contain_text("Nothing is failing")

    expect(page.get_by_text("The console does not answer")).to_be_visible()
