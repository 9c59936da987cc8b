"""Who may ask: host names, the token, forms of other sites, and what answers forbid."""

from __future__ import annotations

import httpx2
import pytest

from penstock import AsyncStore, console
from penstock.errors import ValidationError
from tests.console.conftest import ADDRESS, act, asking, csrf
from tests.console.filled import Filled

TOKEN = "a-token-that-nobody-guesses"


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "10.0.0.1", "[::1", "", "a b"],
)
async def test_another_host_name_is_refused(client: httpx2.AsyncClient, host: str) -> None:
    page = await client.get("/", headers={"Host": host})

    assert page.status_code == 421
    assert "account" not in page.text


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1:8765", "[::1]:8765", "LOCALHOST"])
async def test_loopback_is_served(client: httpx2.AsyncClient, host: str) -> None:
    assert (await client.get("/log", headers={"Host": host})).status_code == 200


async def test_a_host_name_that_is_given_is_served(filled_store: AsyncStore) -> None:
    async with asking(filled_store, hosts=["shop.example"]) as client:
        named = await client.get("/log", headers={"Host": "shop.example"})
        other = await client.get("/log")

    assert (named.status_code, other.status_code) == (200, 421)


@pytest.mark.parametrize(
    ("host", "status"),
    [("10.0.0.7:8765", 200), ("[fe80::1]:8765", 200), ("evil.example", 421), ("10.0.0.7.x", 421)],
)
async def test_a_console_on_all_addresses_is_asked_for_by_any_address_but_by_no_name(
    filled_store: AsyncStore, host: str, status: int
) -> None:
    async with asking(filled_store, hosts=["0.0.0.0"]) as client:
        assert (await client.get("/log", headers={"Host": host})).status_code == status


@pytest.mark.parametrize("address", ["/", "/log", "/api/overview", "/live", "/actions/reset-group",
                                     "/log/download?key=1", "/nowhere"])  # fmt: skip
async def test_without_the_token_nothing_is_shown(filled_store: AsyncStore, address: str) -> None:
    async with asking(filled_store, token=TOKEN, actions=True) as client:
        page = await client.get(address)
        wrong = await client.get(address, params={"token": "x" * 20})
        forged = await client.get(address, headers={"Cookie": "penstock_0=x"})
        bearer = await client.get(address, headers={"Authorization": "Bearer x"})

    assert {one.status_code for one in (page, wrong, forged, bearer)} == {401}
    assert "account" not in page.text


async def test_the_token_is_in_the_address_once(filled_store: AsyncStore) -> None:
    async with asking(filled_store, token=TOKEN) as client:
        first = await client.get(f"/log/messages?target=account&token={TOKEN}")
        cookie = first.headers["set-cookie"]
        second = await client.get(first.headers["location"])

    assert first.status_code == 303
    assert first.headers["location"] == "/log/messages?target=account"
    assert TOKEN not in cookie
    assert "httponly" in cookie.lower()
    assert "samesite=strict" in cookie.lower()
    assert second.status_code == 200


async def test_the_login_form_admits_with_the_token(filled_store: AsyncStore) -> None:
    async with asking(filled_store, token=TOKEN) as client:
        form = await client.get("/")
        secret = form.text.split('name="csrf" value="')[1].split('"')[0]
        wrong = await client.post("/login", data={"csrf": secret, "token": "wrong"})
        right = await client.post("/login", data={"csrf": secret, "token": TOKEN})
        page = await client.get("/log")

    assert (wrong.status_code, right.status_code, page.status_code) == (401, 303, 200)


async def test_the_api_takes_the_token_as_a_header(filled_store: AsyncStore) -> None:
    async with asking(filled_store, token=TOKEN) as client:
        answer = await client.get("/api/overview", headers={"Authorization": f"Bearer {TOKEN}"})
        refused = await client.get("/api/overview")

    assert answer.status_code == 200
    assert refused.json() == {"error": "Refused", "message": "A token is needed."}


@pytest.mark.parametrize("token", ["", "short", "fifteen letters"])
def test_a_token_that_can_be_guessed_is_refused(filled_store: AsyncStore, token: str) -> None:
    with pytest.raises(ValidationError, match="token"):
        console.app(filled_store, token=token)


async def _post(client: httpx2.AsyncClient, filled: Filled, **headers: str) -> httpx2.Response:
    secret = await csrf(client)
    fields = {"id": str(filled.failed), "csrf": secret}
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return await client.post("/actions/retry-outbox", data=fields, headers=names)


async def test_a_form_of_the_console_is_taken(client: httpx2.AsyncClient, filled: Filled) -> None:
    ours = await _post(client, filled, Origin=ADDRESS, Sec_Fetch_Site="same-origin")

    assert ours.status_code == 200
    assert "ready again" in ours.text  # it asks to confirm


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:9999"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
async def test_a_form_of_another_origin_is_refused(
    client: httpx2.AsyncClient, filled: Filled, headers: dict[str, str]
) -> None:
    assert (await _post(client, filled, **headers)).status_code == 403


async def test_a_form_without_the_secret_of_this_browser_is_refused(
    client: httpx2.AsyncClient, filled_store: AsyncStore, filled: Filled
) -> None:
    fields = {"id": str(filled.failed), "confirmed": "yes"}
    async with asking(filled_store, actions=True) as other:
        stolen = await csrf(other)
    missing = await client.post("/actions/retry-outbox", data=fields)
    wrong = await client.post("/actions/retry-outbox", data={**fields, "csrf": stolen})

    assert (missing.status_code, wrong.status_code) == (403, 403)
    assert (await filled_store.outbox.get(filled.failed)).state == "failed"


async def test_json_is_not_a_form(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/actions/retry-outbox", json={"id": "x"})

    assert answer.status_code == 415


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
async def test_other_methods_are_refused(client: httpx2.AsyncClient, method: str) -> None:
    assert (await client.request(method, "/")).status_code == 405


async def test_a_read_only_console_refuses_every_action(
    filled_store: AsyncStore, filled: Filled
) -> None:
    async with asking(filled_store) as client:
        shown = await client.get("/actions/retry-outbox", params={"id": str(filled.failed)})
        secret = await csrf(client)
        sent = await client.post(
            "/actions/retry-outbox",
            data={"id": str(filled.failed), "csrf": secret, "confirmed": "yes"},
        )
        page = await client.get("/outbox/message", params={"id": str(filled.failed)})

    assert (shown.status_code, sent.status_code) == (403, 403)
    assert "read-only" in sent.text
    assert "/actions/" not in page.text
    assert (await filled_store.outbox.get(filled.failed)).state == "failed"


@pytest.mark.parametrize("address", ["/", "/api/overview", "/static/console.js", "/nowhere"])
async def test_answers_forbid_what_others_could_add(
    client: httpx2.AsyncClient, address: str
) -> None:
    headers = (await client.get(address)).headers

    policy = headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"


async def test_pages_have_no_inline_scripts_or_styles(client: httpx2.AsyncClient) -> None:
    for address in ("/", "/log/message?key=1", "/groups/group?group_id=seats", "/joins"):
        page = (await client.get(address)).text
        assert " style=" not in page
        assert "<style" not in page
        assert " onclick" not in page
        assert all('src="/static/' in one.split(">")[0] for one in page.split("<script")[1:])
        assert "http://" not in page.replace("http://localhost", "")
        assert "https://" not in page


async def test_static_files_are_only_those_of_the_folder(client: httpx2.AsyncClient) -> None:
    for address in ("/static/../application.py", "/static/%2e%2e/application.py", "/static/"):
        assert (await client.get(address)).status_code == 404


async def test_who_acts_is_recorded(client: httpx2.AsyncClient, filled_store: AsyncStore) -> None:
    done = await act(client, "stop-group", group_id="seats")
    await act(client, "start-group", group_id="seats")

    [*_, stopped, _] = await filled_store.get_category_messages("penstock:console")
    assert done.status_code == 200
    assert stopped.data["who"] == "ada"
    assert stopped.data["what"] == "Stop a group"
    assert stopped.data["facts"]["group_id"] == "seats"
