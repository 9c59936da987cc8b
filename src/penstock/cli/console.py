"""`penstock console`: serve the console."""

from __future__ import annotations

import asyncio
import errno
import getpass
import ipaddress
import secrets
import socket
import webbrowser
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

import penstock
from penstock.cli.printing import note
from penstock.cli.target import has_database, selected_settings
from penstock.errors import NotInstalled, SetupError
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
    settings = selected_settings()
    if not has_database(settings):
        raise NotInstalled(
            f"no database in {settings.folder}: give --url, --folder or PENSTOCK_URL, or create "
            "one with `penstock init`"
        )
    listening = listen(host, port)
    address = _address(host, listening.getsockname()[1])
    hosts = [host, *penstock_hosts(), *(served_as or ())]
    options: dict[str, Any] = {"actions": actions, "token": token, "redact": redact or ()}
    shown = f"{address}?token={quote(token)}" if token else address
    note(f"console at {shown}{'' if actions else ', read-only'}; Ctrl-C ends it")
    if open:
        webbrowser.open(shown)
    asyncio.run(serve(settings, listening, hosts=hosts, user=_operator, **options))


async def serve(settings: Settings, listening: socket.socket, **options: Any) -> None:
    """Serve the console on a socket, until a signal ends it."""
    from penstock.console import app
    from penstock.console.server import run

    async with await penstock.connect_async(settings) as store:
        await run(app(store, **options), listening)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens, or raise with the reason why not."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise SetupError(
                f"port {port} of {host} is taken: give another --port, or --port 0"
            ) from None
        raise SetupError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
    return listening


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def penstock_hosts() -> tuple[str, ...]:
    """Return the names under which this machine is always served."""
    from penstock.console import LOOPBACK

    return LOOPBACK


def _address(host: str, port: int) -> str:
    anywhere = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}
    name = anywhere.get(host, "localhost" if is_loopback(host) else host)
    return f"http://{f'[{name}]' if ':' in name else name}:{port}/"


def _operator(request: Request) -> str:
    """Return who acts: the user who has started it, or where the viewer comes from."""
    client = request.client.host if request.client else "?"
    return getpass.getuser() if is_loopback(client) else f"a viewer at {client}"
