"""Bad input gets a clear answer: unknown names, ids that are none, too much of everything."""

from __future__ import annotations

import httpx2
import pytest

from penstock import AsyncStore, Store
from penstock.console.pages import seconds
from tests.console.conftest import asking

MISSING = "01890000-0000-7000-8000-000000000000"


@pytest.mark.parametrize(
    ("address", "status", "said"),
    [
        ("/nowhere", 404, "no page /nowhere"),
        ("/log/message?key=999999", 404, "999999"),
        (f"/log/message?key={MISSING}", 404, MISSING),
        ("/log/message?key=abc", 400, "abc"),
        ("/log/message?key=99999999999999999999999", 400, "99999999999999999999999"),
        ("/log/message", 400, "key"),
        ("/log/messages?target=account&position=x", 400, "position"),
        ("/log/messages?target=account&position=-1", 400, "position"),
        ("/log/messages?target=account&time=yesterday", 400, "time"),
        ("/log/messages?target=account&after=x", 400, "after"),
        ("/log/messages?target=account&limit=x", 400, "limit"),
        ("/search?attribute=course", 400, "name=value"),
        ("/search?id=1", 400, "id"),
        ("/consumers/consumer?category=account&consumer_id=nobody", 404, "nobody"),
        ("/groups/group?group_id=nobody", 404, "nobody"),
        ("/groups/group?group_id=seats&state=odd", 400, "state"),
        ("/groups/group?group_id=seats&partition_key=course:x|user:y", 404, "course:x"),
        ("/outbox/message?id=x", 400, "x"),
        (f"/outbox/message?id={MISSING}", 404, MISSING),
        ("/outbox/messages?state=odd", 400, "state"),
        (f"/joins/join?id={MISSING}", 404, MISSING),
        ("/joins?status=odd", 400, "status"),
        ("/dead-letters?kind=odd", 400, "kind"),
        ("/dead-letters/letter?key=odd", 400, "odd"),
        (f"/dead-letters/letter?key=outbox/{MISSING}", 404, "outbox"),
        ("/pipelines/pipeline?pipeline=nobody", 404, "nobody"),
        ("/pipelines/processor?pipeline=nobody&processor=x", 404, "nobody"),
        ("/trace?key=x", 400, "x"),
        (f"/trace?key={MISSING}", 404, MISSING),
        ("/boundaries?conditions=%3D%3D", 400, "conditions"),
        ("/actions/nothing", 404, "nothing"),
        ("/actions/seek-consumer?category=account&consumer_id=billing", 400, "position"),
        ("/actions/end-writer?pid=2147483000", 404, "2147483000"),
        ("/actions/retry-letters", 400, "key"),
    ],
)
async def test_bad_input_is_named(
    client: httpx2.AsyncClient, address: str, status: int, said: str
) -> None:
    page = await client.get(address)

    assert page.status_code == status, page.text
    assert said in page.text
    if not address.startswith("/actions"):
        facts = await client.get(f"/api{address}")
        assert facts.status_code == status
        assert set(facts.json()) == {"error", "message"}


async def test_a_position_beyond_the_end_is_an_empty_page(client: httpx2.AsyncClient) -> None:
    page = await client.get("/log/messages?target=account&position=999999999999")

    assert page.status_code == 200
    assert "Nothing from there on" in page.text


async def test_a_huge_message_is_cut_and_can_be_downloaded(
    store: Store, async_store: AsyncStore
) -> None:
    huge = {"text": "x" * 20_000_000, "rows": [{"n": n} for n in range(100)]}
    position = store.write_message("big-1", "Huge", huge, returning="global_position")

    async with asking(async_store) as client:
        page = await client.get("/log/message", params={"key": position})
        facts = await client.get("/api/log/message", params={"key": position})
        listed = await client.get("/log/messages?target=big")
        whole = await client.get("/log/download", params={"key": position})

    assert page.status_code == listed.status_code == facts.status_code == 200
    assert len(page.content) + len(listed.content) + len(facts.content) < 200_000
    assert "Download the whole" in page.text
    assert whole.json()["data"] == huge
    assert whole.headers["content-disposition"].startswith("attachment")


async def test_deeply_nested_data_is_cut(store: Store, async_store: AsyncStore) -> None:
    nested: dict[str, object] = {}
    for _ in range(500):
        nested = {"deeper": nested}
    position = store.write_message("deep-1", "Deep", nested, returning="global_position")

    async with asking(async_store, redact=["secret"]) as client:
        page = await client.get("/log/message", params={"key": position})
        whole = await client.get("/log/download", params={"key": position})

    assert page.status_code == 200
    assert whole.status_code in (200, 400)


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "—"), (0, "0 s"), (0.004, "4 ms"), (2.34, "2.3 s"), (65, "1 min 5 s"),
     (3600, "1 h"), (90_061, "1 d 1 h")],
)  # fmt: skip
def test_durations_are_shown_in_their_two_largest_units(value: float | None, text: str) -> None:
    assert seconds(value) == text
