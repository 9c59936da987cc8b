"""Every screen: as a page and as JSON, with what applications have written shown as text."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Callable
from html import unescape

import httpx2
import pytest

import penstock
from penstock import AsyncStore, Consumer, Store, Worker
from penstock.console.screens import SCREENS
from tests.cli.conftest import run as run_command
from tests.console.conftest import asking
from tests.console.filled import SCRIPT, Filled, Joined

LISTS = [
    *("/", "/log", "/log/messages", "/log/streams?category=account", "/search?type=Opened"),
    *("/consumers", "/queues", "/groups", "/groups/group?group_id=seats"),
    *("/consumers/consumer?category=account&consumer_id=billing", "/outbox", "/outbox/messages"),
    *("/outbox/messages?topic=email.send&state=failed", "/joins", "/dead-letters", "/pipelines"),
    *("/tables", "/activity", "/reference", "/trace", "/boundaries", "/search"),
    "/boundaries?conditions=joined+course%3DAlgebra",
]


@pytest.mark.parametrize("address", LISTS)
async def test_a_screen_is_a_page_and_json(client: httpx2.AsyncClient, address: str) -> None:
    api = "/api/overview" if address == "/" else f"/api{address}"

    page, facts = await client.get(address), await client.get(api)

    assert (page.status_code, facts.status_code) == (200, 200)
    assert page.headers["content-type"].startswith("text/html")
    assert facts.headers["content-type"] == "application/json"
    assert isinstance(facts.json(), dict)


async def test_every_page_that_is_linked_answers(client: httpx2.AsyncClient) -> None:
    """Follow every link, three of each kind."""
    seen: dict[str, int] = {}
    left, failed = ["/"], {}
    while left:
        address = left.pop()
        kind = re.sub(r"=[^&]*", "=", address)
        if seen.get(kind, 0) >= 3:
            continue
        seen[kind] = seen.get(kind, 0) + 1
        page = await client.get(address, follow_redirects=True)
        if page.status_code != 200:
            failed[address] = page.status_code
        if page.headers["content-type"].startswith("text/html"):
            assert "<script>alert" not in page.text, address
            found = re.findall(r'<a [^>]*href="(/[^"]*)"', page.text)
            left += [unescape(one) for one in found if not one.startswith("/api")]

    assert failed == {}
    assert len(seen) > 40


async def test_markup_in_every_field_is_shown_as_text(
    client: httpx2.AsyncClient, filled: Filled
) -> None:
    page = await client.get("/log/message", params={"key": filled.script})
    facts = await client.get("/api/log/message", params={"key": filled.script})

    shown = unescape(re.sub(r"<[^>]+>", "", page.text))
    assert shown.count(SCRIPT) >= 6  # stream, type, and names and values of data and metadata
    assert "<script>alert" not in page.text
    assert facts.json()["message"]["data"]["value"] == {SCRIPT: SCRIPT}


async def test_an_empty_store_says_what_to_do_next(async_store: AsyncStore) -> None:
    async with asking(async_store) as client:
        overview = await client.get("/")
        pages = {one.path: await client.get(one.path) for one in SCREENS if not one.parameters}

    assert "Nothing is failing" in overview.text
    assert all(page.status_code == 200 for page in pages.values())
    empty = [path for path, page in pages.items() if 'class="empty"' in page.text]
    assert set(empty) >= {"/", "/outbox", "/pipelines", "/tables", "/activity"}


async def test_messages_in_an_errors_queue_need_attention(async_store: AsyncStore) -> None:
    facts = {"failed_stream_name": "order-7", "failed_global_position": 1, "error": "no price"}
    await async_store.write_message("shop.errors-1", "Placed", {"a": 1}, facts)

    async with asking(async_store) as client:
        page, found = await client.get("/"), (await client.get("/api/overview")).json()

    [trouble] = found["overview"]["troubles"]
    assert (trouble["name"], trouble["subject"]) == (
        "errors.waiting",
        {"errors_queue": "shop.errors"},
    )
    assert (trouble["count"]["value"], trouble["error"]) == (1, "no price")
    assert "Needs attention" in page.text
    assert 'href="/dead-letters?kind=error"' in page.text


async def test_what_an_empty_screen_tells_one_to_do_works(
    store: Store, async_store: AsyncStore
) -> None:
    async with asking(async_store) as client:
        paths = ("/", "/log", "/consumers", "/queues", "/groups", "/outbox", "/joins")
        pages = [(await client.get(path)).text for path in paths]
    commands = [
        unescape(one) for page in pages for one in re.findall(r'class="command">(.*?)</pre>', page)
    ]
    names = {
        "store": store,
        "Consumer": Consumer,
        "Worker": Worker,
        "Joined": Joined,
        "bill": lambda message: None,
        "seat": lambda claim: [],
    }

    def run() -> None:
        for command in commands:
            if command.startswith("penstock "):
                done = run_command(*shlex.split(command)[1:], url=store.settings.database_url)
                assert done.exit_code == 0, done.output
            else:
                exec(command.removesuffix(".run()"), dict(names))

    await asyncio.to_thread(run)
    assert len(commands) == 7


async def test_a_genuine_message_db_says_what_it_lacks(new_database: Callable[[str], str]) -> None:
    async with await penstock.connect_async(new_database("genuine")) as store:
        await store.write_message("account-1", "Opened")
        async with asking(store) as client:
            overview = await client.get("/")
            missing = [await client.get(one) for one in ("/log", "/groups", "/dead-letters")]

    assert overview.status_code == 200
    assert [page.status_code for page in missing] == [501, 501, 501]
    assert "penstock init" in missing[0].text


async def test_the_reference_lists_every_screen(client: httpx2.AsyncClient) -> None:
    listed = (await client.get("/api/")).json()["addresses"]

    assert [one["path"] for one in listed] == [screen.api for screen in SCREENS]
    assert all(one["about"] for one in listed)


@pytest.mark.parametrize(
    ("to", "path"),
    [
        ("5", "/log/message?key=5"),
        ("account", "/log/messages?target=account"),
        ("account-1", "/log/messages?target=account-1"),
        ("Opened", "/search?type=Opened"),
        ("", "/search"),
    ],
)
async def test_the_search_box_jumps(client: httpx2.AsyncClient, to: str, path: str) -> None:
    answer = await client.get("/jump", params={"to": to})

    assert (answer.status_code, answer.headers["location"]) == (303, path)


async def test_messages_are_shown_from_a_position_or_a_time(client: httpx2.AsyncClient) -> None:
    at = await client.get("/api/log/messages?target=account&position=11&limit=3")
    late = await client.get("/api/log/messages?target=account&time=2999-01-01T00:00:00Z")

    rows = at.json()["page"]["items"]
    assert [row["global_position"] for row in rows] == [11, 12, 13]
    assert at.json()["next_position"] == 14
    assert len(late.json()["page"]["items"]) <= 1


async def test_pages_of_a_list_lead_to_its_end(client: httpx2.AsyncClient) -> None:
    after, positions = "", []
    for _ in range(10):
        page = (await client.get(f"/api/log/messages?target=account&limit=20&after={after}")).json()
        positions += [row["global_position"] for row in page["page"]["items"]]
        after = page["page"]["next"]
        if after is None:
            break

    assert len(positions) == 61
    assert positions == sorted(positions, reverse=True)
