"""The addresses of pages, as templates write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from jinja2 import pass_context
from jinja2.runtime import Context


@pass_context
def link(context: Context, path: str, **query: object) -> str:
    """Return the address of a page, without parameters that are None or empty."""
    return address(context["base"], path, query)


@pass_context
def reader_link(context: Context, kind: str, subject: Mapping[str, str]) -> str:
    """Return the address of a reader's page, by its kind and the names that lead to it."""
    path, names = _READERS.get(kind, ("/", ()))
    return address(context["base"], path, {name: subject.get(name) for name in names})


#: by kind of reader: its page, and the parameters of that
_READERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "consumer": ("/consumers/consumer", ("category", "consumer_id")),
    "session": ("/queues", ()),
    "group": ("/groups/group", ("group_id",)),
    "outbox": ("/outbox/messages", ("topic",)),
    "errors": ("/dead-letters", ()),
    "processor": ("/pipelines/processor", ("pipeline", "processor")),
}


def address(base: str, path: str, query: Mapping[str, Any]) -> str:
    """Return the address of a page of a console that is mounted at `base`."""
    given = {name: value for name, value in query.items() if value is not None and value != ""}
    return f"{base}{path}" + (f"?{urlencode(given, doseq=True)}" if given else "")
