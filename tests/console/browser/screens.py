"""The screens of the shop's console: what each shows, for tests that go through all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlencode

from penstock import Store

Query = Callable[[Store], dict[str, str]]


@dataclass(frozen=True)
class Shown:
    """A screen, the query that fills it, and a text that it then shows."""

    name: str
    path: str
    text: str
    query: Query = lambda store: {}
    #: whether the guide has a picture of it
    picture: bool = False

    def address(self, console: str, store: Store) -> str:
        """Return its address."""
        query = self.query(store)
        return f"{console}{self.path}" + (f"?{urlencode(query)}" if query else "")


def _failed(store: Store) -> dict[str, str]:
    return {"id": str(store.outbox.list(topic="mail", state="failed")[0].id)}


def _letter(store: Store) -> dict[str, str]:
    return {"key": f"outbox/{_failed(store)['id']}"}


def _join(store: Store) -> dict[str, str]:
    (join,) = store.joins.list(grouping_key="nightly")
    return {"id": str(join.join_id)}


def _order(store: Store) -> dict[str, str]:
    return {"key": str(store.get_stream_messages("order-o0")[0].global_position)}


def _correlation(store: Store) -> dict[str, str]:
    return {"correlation": str(store.get_stream_messages("order-o0")[0].correlation_id)}


def _processor(name: str) -> Query:
    return lambda store: {"pipeline": "shop", "processor": name}


SCREENS = (
    Shown("overview", "/", "Needs attention", picture=True),
    Shown("categories", "/log", "reservation", picture=True),
    Shown("streams", "/log/streams", "order-o12", lambda _: {"category": "order"}),
    Shown("messages", "/log/messages", "order-o596", lambda _: {"target": "order"}, picture=True),
    Shown("message", "/log/message", "Global position", _order, picture=True),
    Shown("search", "/search", "PlaceOrder", _correlation),
    Shown("trace", "/trace", "PlaceOrder", _order, picture=True),
    Shown(
        *("boundaries", "/boundaries", "Messages that a guard would see"),
        lambda _: {"conditions": "reservation.requested product_id=p1"},
        picture=True,
    ),
    Shown("consumers", "/consumers", "mailer", picture=True),
    Shown(
        *("consumer", "/consumers/consumer", "Move it"),
        lambda _: {"category": "order", "consumer_id": "auditor"},
    ),
    Shown("queues", "/queues", "labels"),
    Shown("groups", "/groups", "stock"),
    Shown("group", "/groups/group", "no shelf for p3", lambda _: {"group_id": "stock"}, True),
    Shown("outbox", "/outbox", "export.stock", picture=True),
    Shown("outbox-messages", "/outbox/messages", "no such mailbox", lambda _: {"state": "failed"}),
    Shown("outbox-message", "/outbox/message", "Timeline", _failed, picture=True),
    Shown("joins", "/joins", "nightly"),
    Shown("join", "/joins/join", "export.customers", _join, picture=True),
    Shown("dead-letters", "/dead-letters", "no such mailbox", picture=True),
    Shown("dead-letter", "/dead-letters/letter", "Edit a copy", _letter),
    Shown("pipelines", "/pipelines", "shop"),
    Shown(
        *("pipeline", "/pipelines/pipeline", "invoicing"),
        lambda _: {"pipeline": "shop"},
        picture=True,
    ),
    Shown("processor", "/pipelines/processor", "Open snapshot", _processor("invoicing"), True),
    Shown("tables", "/tables", "shop.sale"),
    Shown("table", "/tables/table", "append", lambda _: {"table": "shop.sale"}),
    Shown("activity", "/activity", "Retry messages"),
    Shown("api", "/reference", "/api/overview"),
)
