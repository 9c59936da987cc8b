"""The console: a web page that shows a store, and on which operators act on it.

`penstock console` serves it. An application mounts it, under its own authentication:

    application.mount("/console", penstock.console.app(store, hosts=["shop.example.com"]))

The folder `data` is what it shows and does, without the web; the command line uses it, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from penstock.extras import from_extra
from penstock.store_async import AsyncStore

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from penstock.pipeline.graph import Pipeline

__all__ = ["app"]

#: the names under which a console is served that is not told otherwise
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def app(
    store: AsyncStore | Callable[[], AsyncStore | Awaitable[AsyncStore]],
    *,
    actions: bool = False,
    token: str | None = None,
    redact: Iterable[str] = (),
    user: Callable[[Request], str] | None = None,
    hosts: Iterable[str] = LOOPBACK,
    pipelines: Iterable[Pipeline | Any] = (),
) -> ASGIApp:
    """Return the console as an ASGI application, to be served or mounted.

    Args:
        store: the store to show, or a function that returns it when it is first needed.
        actions: allow what changes something. Without it, everything is read-only.
        token: what a viewer has to present, once; at least 16 characters. Without one, every
            request is let in that reaches the application: leave that to loopback, or to the
            authentication of the application that it is mounted in.
        redact: names of fields of data, metadata, payloads and attributes to hide, at any depth.
        user: returns who acts, for the record in the category `penstock:console`.
        hosts: the host names under which it is served; `"*"` for any, if something in front of it
            checks them.
        pipelines: pipelines whose graphs are drawn as they are declared. Others are drawn from
            what their steps have read and written.
    """
    with from_extra("console"):
        from penstock.console.application import application

    return application(
        store,
        actions=actions,
        token=token,
        redact=redact,
        user=user,
        hosts=hosts,
        pipelines=tuple(pipelines),
    )
