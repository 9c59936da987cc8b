"""`penstock console`: serve the console."""

from __future__ import annotations

import asyncio
import errno
import getpass
import ipaddress
import secrets
import socket
import webbrowser
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

import penstock
from penstock.cli.printing import note
from penstock.cli.target import existing_settings
from penstock.console import LOOPBACK, app
from penstock.errors import SetupError, ValidationError
from penstock.extras import from_extra
from penstock.settings import Settings

if TYPE_CHECKING:
    from starlette.requests import Request

PORT = 8765


def console(
    open: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    host: Annotated[
        str, typer.Option(help="The address to listen on; any but loopback needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for one that is free.")] = PORT,
    actions: Annotated[
        bool, typer.Option("--actions", help="Allow what changes something.")
    ] = False,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="PENSTOCK_CONSOLE_TOKEN",
            help="What viewers have to present; `new` for one that is made and printed.",
        ),
    ] = None,
    redact: Annotated[
        list[str] | None,
        typer.Option(help="Hide this field of data and metadata; can be repeated."),
    ] = None,
    served_as: Annotated[
        list[str] | None,
        typer.Option(help="A host name that viewers use; can be repeated."),
    ] = None,
) -> None:
    """Serve the console: a web page that shows the store, and acts on it with --actions.

    It listens on this machine only, unless --host says otherwise. Ctrl-C ends it.
    """
    with from_extra("console"):
        import uvicorn  # noqa: F401
    token = secrets.token_urlsafe(24) if token == "new" else token
    if not is_loopback(host) and token is None:
        raise SetupError(
            f"{host} can be reached by others: give --token (`--token new` makes one), "
            "or listen on 127.0.0.1"
        )
    settings = existing_settings()
    listening = listen(host, port)
    address = _address(host, listening.getsockname()[1])
    shown = f"{address}?token={quote(token)}" if token else address

    def announce() -> None:
        note(f"console at {shown} {'' if actions else '(read-only)'}; Ctrl-C ends it")
        if open:
            webbrowser.open(shown)

    options = {
        "actions": actions,
        "token": token,
        "redact": redact or (),
        "hosts": [host, socket.gethostname(), *LOOPBACK, *(served_as or ())],
        "user": _operator,
    }
    asyncio.run(_serve(settings, listening, announce, options))


async def _serve(
    settings: Settings,
    listening: socket.socket,
    announce: Callable[[], None],
    options: dict[str, Any],
) -> None:
    """Serve the console on a socket, until a signal ends it."""
    from penstock.console.server import run

    async with await penstock.connect_async(settings) as store:
        served = app(store, **options)
        announce()
        await run(served, listening)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens, or raise with the reason why not."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen()  # from now on, a request waits until it is served
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise SetupError(
                f"port {port} of {host} is taken: give another --port, or --port 0"
            ) from None
        raise SetupError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
    except ValueError:  # a name that cannot be one, or a null character
        raise ValidationError("host", host, "an address of this machine") from None
    return listening


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _address(host: str, port: int) -> str:
    anywhere = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}
    name = anywhere.get(host, "localhost" if is_loopback(host) else host)
    return f"http://{f'[{name}]' if ':' in name else name}:{port}/"


def _operator(request: Request) -> str:
    """Return who acts: the user who has started it, or where the viewer comes from."""
    client = request.client.host if request.client else "?"
    return getpass.getuser() if is_loopback(client) else f"a viewer at {client}"
