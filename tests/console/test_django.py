"""The console in Django, as the guide shows it: Django's sessions and users decide."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import django
import httpx2
import pytest
from django.conf import settings
from django.core.management import call_command
from django.http import HttpResponse
from django.urls import path

import penstock
from penstock import AsyncStore, Store
from tests.console.conftest import confirm
from tests.console.filled import fill
from tests.docs.pages import ROOT, blocks

#: the names that the guide's example is served under
ADDRESS = "https://shop.example.com"
GUIDE = ROOT / "docs" / "guides" / "console.md"
urlpatterns = [path("", lambda request: HttpResponse("the shop"))]


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Users of Django, each with the cookie of a session."""
    settings.configure(
        SECRET_KEY="of a test",
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF=__name__,
        INSTALLED_APPS=[f"django.contrib.{app}" for app in ("auth", "contenttypes", "sessions")],
        MIDDLEWARE=[],
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.sqlite3",
                "NAME": str(tmp_path_factory.mktemp("django") / "users.sqlite3"),
            }
        },
        LOGGING_CONFIG=None,
        USE_TZ=True,
    )
    django.setup()
    call_command("migrate", verbosity=0)
    from django.contrib.auth.models import User
    from django.test import Client

    rights = {"ada": {"is_staff": True, "is_superuser": True}, "joe": {"is_staff": True}, "eve": {}}
    cookies = {}
    for name, has in rights.items():
        client = Client()
        client.force_login(User.objects.create_user(name, **has))
        cookies[name] = client.cookies["sessionid"].value
    return cookies


@pytest.fixture
async def visitor(
    users: dict[str, str], store: Store, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[httpx2.AsyncClient]:
    """A visitor of the guide's `asgi.py`, on a filled database."""
    fill(store)
    opened: list[AsyncStore] = []

    async def connect() -> AsyncStore:
        opened.append(await penstock.connect_async(database_url))
        return opened[-1]

    [example] = [one.text for one in blocks(GUIDE) if one.title == "asgi.py"]
    namespace: dict[str, Any] = {"__name__": "asgi", "connect": connect}
    with monkeypatch.context() as patch:
        patch.setenv("DJANGO_SETTINGS_MODULE", "")  # so that it is removed afterwards
        own = example.replace("penstock.connect_async", "connect")  # to close it at the end
        exec(compile(own, GUIDE, "exec"), namespace)
    transport = httpx2.ASGITransport(app=namespace["application"])
    async with httpx2.AsyncClient(transport=transport, base_url=ADDRESS) as client:
        yield client
    for one in opened:
        await one.close()


async def test_staff_see_it_under_its_path_and_may_not_act(
    visitor: httpx2.AsyncClient, users: dict[str, str]
) -> None:
    visitor.cookies.set("sessionid", users["joe"])

    page = await visitor.get("/console/groups")
    facts = await visitor.get("/console/api/groups")
    refused = await visitor.get("/console/actions/stop-group", params={"group_id": "seats"})

    assert page.status_code == 200
    assert 'href="/console/groups/group?group_id=seats"' in page.text
    assert [one["group_id"] for one in facts.json()["groups"]["items"]] == ["seats"]
    assert refused.status_code == 403
    assert "read-only" in refused.text


async def test_a_superuser_acts_under_the_name_that_django_knows(
    visitor: httpx2.AsyncClient, users: dict[str, str], store: Store
) -> None:
    visitor.cookies.set("sessionid", users["ada"])

    shown = await visitor.get("/console/actions/stop-group", params={"group_id": "seats"})
    done = await confirm(visitor, shown)

    assert done.status_code == 200
    assert "/console/activity/action" in str(done.url)
    assert not store.groups.is_active("seats")
    [recorded] = store.get_category_messages("penstock:console")
    assert recorded.data["who"] == "ada"


@pytest.mark.parametrize("who", ["eve", "nobody", "a forged session"])
async def test_everybody_else_gets_the_answer_of_django(
    visitor: httpx2.AsyncClient, users: dict[str, str], store: Store, who: str
) -> None:
    if who != "nobody":
        visitor.cookies.set("sessionid", users.get(who, "x" * 32))

    answers = [await visitor.get(f"/console{one}") for one in ("", "/log", "/live?page=/log")]
    posted = await visitor.post("/console/actions/stop-group", data={"group_id": "seats"})

    assert [one.status_code for one in (*answers, posted)] == [404] * 4
    assert all("Penstock" not in one.text for one in answers)
    assert store.groups.is_active("seats")


async def test_the_rest_of_the_application_is_django_s(
    visitor: httpx2.AsyncClient, users: dict[str, str]
) -> None:
    visitor.cookies.set("sessionid", users["ada"])

    assert (await visitor.get("/")).text == "the shop"
    assert (await visitor.get("/consoles")).status_code == 404
