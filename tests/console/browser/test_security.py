"""Other origins, forged hosts, missing tokens and rights, and script in data: refused or inert."""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import urlencode, urlsplit

import psycopg
import pytest
from playwright.sync_api import expect
from psycopg import sql
from psycopg.conninfo import make_conninfo

import penstock
from penstock import Consumer, FailurePolicy, Message, OutboxMessageId, Store, TypedMessage
from penstock.console.actions.acting import ACTIONS
from penstock.console.screens import SCREENS
from tests.console.browser.conftest import TOKEN, Visitor
from tests.console.serving import serving


def ask(
    address: str, path: str = "/", method: str = "GET", body: str | None = None, **headers: str
) -> tuple[int, str, http.client.HTTPMessage]:
    """Send a request with any headers, and return the status, the body and the headers."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=30)
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, names)
    answer = connection.getresponse()
    found = answer.status, answer.read().decode(), answer.headers
    connection.close()
    return found


def failed_message(store: Store, topic: str) -> OutboxMessageId:
    id = store.outbox.enqueue(topic, "payload")
    (claimed,) = store.outbox.claim("test", topics=[topic])
    store.outbox.fail(claimed, "no")
    return id


class TestAnotherOrigin:
    @pytest.fixture
    def evil(self, console: str, store: Store) -> Iterator[tuple[str, OutboxMessageId]]:
        """Serve a page that sends a form to the console by itself, as other sites can."""
        id = failed_message(store, "evil")
        fields = {"id": id, "confirmed": "yes", "csrf": "guessed"}
        inputs = "".join(f'<input name="{name}" value="{one}">' for name, one in fields.items())
        content = (
            f'<form method="post" action="{console}/actions/retry-outbox">{inputs}</form>'
            f'<iframe src="{console}"></iframe>'
            "<script>document.forms[0].submit()</script>"
        )

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(content.encode())

            def log_message(self, *_: Any) -> None: ...

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://localhost:{server.server_port}", id
        server.shutdown()
        thread.join()
        server.server_close()

    def test_cannot_send_a_form(
        self, evil: tuple[str, OutboxMessageId], visitor: Visitor, console: str, store: Store
    ) -> None:
        visitor.expected = ("status of 403", "frame", "Framing", "X-Frame-Options")
        address, id = evil
        page = visitor.open(console)  # the browser has the console's cookies

        page.goto(address)

        expect(page.get_by_role("heading", level=1)).to_have_text("Not allowed")
        assert store.outbox.get(id).state == "failed"

    @pytest.mark.parametrize(
        "headers",
        [
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Sec_Fetch_Site": "cross-site"},
            {"Sec_Fetch_Site": "same-site"},
            {},
        ],
        ids=str,
    )
    def test_cannot_act_without_the_secret_of_the_form(
        self, headers: dict[str, str], console: str, store: Store
    ) -> None:
        id = failed_message(store, "forged")
        body = urlencode({"id": id, "confirmed": "yes", "csrf": ""})
        kind = {"Content_Type": "application/x-www-form-urlencoded"}

        status, _, _ = ask(console, "/actions/retry-outbox", "POST", body, **headers, **kind)

        assert status == 403
        assert store.outbox.get(id).state == "failed"

    def test_cannot_use_the_secret_of_another_browser(
        self, visitor: Visitor, console: str, store: Store
    ) -> None:
        id = failed_message(store, "borrowed")
        theirs = visitor.open(f"{console}/actions/retry-outbox?id={id}")
        secret = theirs.locator("input[name=csrf]").get_attribute("value")
        visitor.expected = ("status of 403",)
        page = visitor.open(f"{console}/actions/retry-outbox?id={id}")
        page.locator("input[name=csrf]").evaluate("(one, secret) => one.value = secret", secret)

        page.get_by_role("button", name="Retry a message").click()

        expect(page.get_by_role("alert").filter(visible=True)).to_contain_text(
            "load the page again"
        )
        assert store.outbox.get(id).state == "failed"

    def test_cannot_read_or_frame_it(self, console: str) -> None:
        _, _, headers = ask(console, Origin="http://evil.example")

        assert headers["Access-Control-Allow-Origin"] is None
        assert headers["X-Frame-Options"] == "DENY"
        policy = headers["Content-Security-Policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe-inline" not in policy
        assert "unsafe-eval" not in policy


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil", ""])
@pytest.mark.parametrize("path", ["/", "/api/overview", "/live?page=/", "/log/download?key=1"])
def test_a_forged_host_is_refused(host: str, path: str, console: str) -> None:
    status, body, _ = ask(console, path, Host=host)

    assert status in (400, 421)
    assert "Needs attention" not in body
    assert "last_position" not in body
    assert "<dt>Position" not in body  # nor the figures that every page has


class TestAToken:
    @pytest.mark.parametrize(
        "path",
        [
            *(one.path for one in SCREENS), *(one.api for one in SCREENS), "/live?page=/",
            "/log/download?key=1", "/outbox/download?id=1", "/jump?to=1", "/actions/reset-group",
        ],
    )  # fmt: skip
    def test_that_is_missing_refuses_every_address(self, path: str, guarded_console: str) -> None:
        status, body, _ = ask(guarded_console, path)

        assert status == 401
        assert "shop" not in body
        assert "<dt>Position" not in body

    def test_that_is_wrong_is_refused(self, guarded_console: str) -> None:
        assert ask(guarded_console, f"/?token={'x' * 29}")[0] == 401
        assert ask(guarded_console, "/api/overview", Authorization="Bearer wrong")[0] == 401
        assert ask(guarded_console, Cookie="penstock_=1; penstock_browser=1")[0] == 401

    def test_that_is_right_admits_a_program(self, guarded_console: str) -> None:
        status, body, _ = ask(guarded_console, "/api/overview", Authorization=f"Bearer {TOKEN}")

        assert status == 200
        assert json.loads(body)

    def test_in_the_address_leaves_it_at_once(self, visitor: Visitor, guarded_console: str) -> None:
        page = visitor.open(f"{guarded_console}/groups?{urlencode({'token': TOKEN})}")

        expect(page.get_by_role("heading", level=1)).to_have_text("Groups")
        assert page.url == f"{guarded_console}/groups"
        (cookie,) = [one for one in page.context.cookies() if one["name"] != "penstock_browser"]
        assert cookie["httpOnly"]
        assert cookie["sameSite"] == "Strict"
        assert TOKEN not in str(cookie["value"])

    def test_can_be_typed(self, visitor: Visitor, guarded_console: str) -> None:
        visitor.expected = ("status of 401",)
        page = visitor.open(guarded_console)

        page.get_by_label("Token").fill("wrong")
        page.keyboard.press("Enter")
        expect(page.get_by_text("The token is wrong")).to_be_visible()
        page.get_by_label("Token").fill(TOKEN)
        page.keyboard.press("Enter")

        expect(page.get_by_role("heading", level=1)).to_have_text("Overview")


class TestAViewerWithoutRights:
    @pytest.mark.parametrize("action", ACTIONS)
    def test_cannot_act_on_a_console_that_is_read_only(
        self, action: str, read_only_console: str
    ) -> None:
        for method in ("GET", "POST"):
            status, body, _ = ask(read_only_console, f"/actions/{action}", method)

            assert status == 403
            assert "read-only" in body

    def test_sees_no_buttons_there(self, visitor: Visitor, read_only_console: str) -> None:
        page = visitor.open()
        for path in (
            "/",
            "/dead-letters",
            "/outbox/messages?state=failed",
            "/groups/group?group_id=stock",
            "/pipelines/processor?pipeline=shop&processor=margins",
        ):
            page.goto(read_only_console + path)

            expect(page.locator("[href*='/actions/'], [action*='/actions/']")).to_have_count(0)
            expect(page.locator("[formaction*='/actions/']")).to_have_count(0)

    def test_of_the_database_gets_its_refusal(
        self, visitor: Visitor, new_role: str, store: Store
    ) -> None:
        """A role that may read only: pages are shown, and an action is refused by the server."""
        id = failed_message(store, "unprivileged")
        visitor.expected = ("status of 403",)
        with serving(new_role, actions=True) as console:
            page = visitor.open(f"{console}/outbox/message?id={id}")
            page.get_by_role("link", name="Retry …").click()
            page.get_by_role("button", name="Retry a message").click()

            expect(page.get_by_role("alert").filter(visible=True)).to_contain_text("permission")
            visitor.close()
        assert store.outbox.get(id).state == "failed"

    @pytest.fixture
    def new_role(self, the_shop: Any) -> Iterator[str]:
        with psycopg.connect(the_shop.url, autocommit=True) as connection:
            role = sql.Identifier(f"console_reader_{os.getpid()}")
            create = sql.SQL("create role {} login in role penstock_reader")
            connection.execute(create.format(role))
            try:
                yield make_conninfo(the_shop.url, user=f"console_reader_{os.getpid()}")
            finally:
                connection.execute(sql.SQL("drop role {}").format(role))


SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'`{{7*7}}"


class Attacked(TypedMessage, type="attacked"):
    """A message whose attribute is markup."""

    victim: str


class TestScriptInData:
    """Everything that applications write is shown as text, on every screen."""

    @pytest.fixture(scope="class")
    def attacked(self, server: Any) -> Iterator[tuple[str, Store]]:
        name = server.create_database(server.template("penstock"))
        with penstock.connect(server.url(name)) as store:
            _attack(store)
            with serving(server.url(name), actions=True) as console:
                yield console, store
        server.drop_database(name)

    def test_is_text_on_every_screen(self, attacked: tuple[str, Store], visitor: Visitor) -> None:
        console, store = attacked
        page = visitor.open()
        for address in _addresses(store):
            page.goto(console + address)

            assert "<script>alert" not in page.content().replace("&lt;", "<!>"), address
            expect(page.get_by_role("main")).to_contain_text("<script>alert(1)</script>"[:8])
            assert page.locator("img").count() == 0, address
            assert "49" not in page.locator("h1").inner_text()

    def test_is_text_when_it_is_pushed(self, attacked: tuple[str, Store], visitor: Visitor) -> None:
        console, store = attacked
        page = visitor.open(f"{console}/log/messages?target=pushed")

        store.write_message("pushed-1", "Pushed", {"text": SCRIPT, "more": "</table>\nevent: live"})

        expect(page.get_by_role("table")).to_contain_text("<script>alert(1)</script>")
        assert page.locator("img").count() == 0

    def test_is_no_page_when_it_is_downloaded(self, attacked: tuple[str, Store]) -> None:
        console, _ = attacked

        status, _, headers = ask(console, "/log/download?key=1")

        assert status == 200
        assert headers["Content-Disposition"].startswith("attachment")
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers.get_content_type() != "text/html"


def _attack(store: Store) -> None:
    """Write markup into every field that an application can fill."""
    store.declare(Attacked)
    stream = f"attack-{SCRIPT}"
    first = Message(SCRIPT, {SCRIPT: [SCRIPT]}, {SCRIPT: SCRIPT, "correlation_id": SCRIPT})
    store.write_messages(stream, [first, first.follow(SCRIPT, {"text": SCRIPT})])
    store.write_message("attack-1", "Ordered", {"text": SCRIPT})
    store.append(Attacked(victim=SCRIPT))

    def fail(message: object) -> None:
        raise ValueError(SCRIPT)

    park = FailurePolicy.park(attempts=1)
    handlers = {SCRIPT: fail, "Ordered": fail}
    Consumer(store, "attack", SCRIPT, handlers=handlers, on_failure=park).run_until_idle()
    store.groups.register(SCRIPT)
    options: dict[str, Any] = {"partition_by": "victim", "handled_types": [Attacked]}
    claim = store.groups.claim_next(SCRIPT, worker_id=SCRIPT, **options)
    assert claim is not None
    store.groups.release(claim, park=True, error=SCRIPT)
    queue = store.queue(SCRIPT)
    queue.offer(SCRIPT)
    with queue.create_consumer(SCRIPT) as session:
        session.poll()
    join = store.joins.start(SCRIPT, 2, metadata=SCRIPT)
    store.outbox.enqueue(SCRIPT, {SCRIPT: SCRIPT}, joins=[join], correlation_id=SCRIPT,
                         dedupe_key=SCRIPT)  # fmt: skip
    (claimed,) = store.outbox.claim(SCRIPT, topics=[SCRIPT])
    store.outbox.fail(claimed, SCRIPT)
    with psycopg.connect(store.settings.conninfo(), autocommit=True) as connection:
        connection.execute("select penstock.open_processor(%s, %s, 'sink')", (SCRIPT, SCRIPT))
        connection.execute("select penstock.fail_step(%s, %s, '', %s)", (SCRIPT,) * 3)


def _addresses(store: Store) -> Iterator[str]:
    """Yield the address of every screen that shows some of it."""
    message = store.get_stream_messages(f"attack-{SCRIPT}")[0]
    (failed,) = store.outbox.list(state="failed")
    (join,) = store.joins.list()
    pages: list[tuple[str, dict[str, Any]]] = [
        ("/", {}), ("/log", {}), ("/log/streams", {"category": "attack"}),
        ("/log/messages", {"target": "$all"}), ("/log/messages", {"target": message.stream_name}),
        ("/log/message", {"key": message.global_position}), ("/trace", {"key": message.id}),
        ("/search", {"correlation": SCRIPT}), ("/search", {"type": "attacked"}),
        ("/boundaries", {"conditions": "attacked"}), ("/consumers", {}),
        ("/consumers/consumer", {"category": "attack", "consumer_id": SCRIPT}), ("/queues", {}),
        ("/groups", {}), ("/groups/group", {"group_id": SCRIPT}), ("/outbox", {}),
        ("/outbox/messages", {"topic": SCRIPT}), ("/outbox/message", {"id": failed.id}),
        ("/joins", {}), ("/joins/join", {"id": join.join_id}), ("/dead-letters", {}),
        ("/dead-letters/letter", {"key": f"outbox/{failed.id}"}), ("/pipelines", {}),
        ("/pipelines/pipeline", {"pipeline": SCRIPT}),
        ("/pipelines/processor", {"pipeline": SCRIPT, "processor": SCRIPT}),
        ("/actions/retry-outbox", {"id": failed.id}),
        ("/actions/reset-group", {"group_id": SCRIPT}),
    ]  # fmt: skip
    for path, query in pages:
        yield f"{path}?{urlencode(query)}"
