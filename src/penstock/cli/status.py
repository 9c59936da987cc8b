"""`penstock status`: where the store is, how it stands, and who holds readers back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from penstock.admin.health import HealthFigure
from penstock.cli.figures import figures_table
from penstock.cli.printing import (
    console,
    facts,
    print_json,
    print_wrapped,
    printable,
    shown_age,
    table,
)
from penstock.cli.target import Folder, Url, open_existing, place, settings_for
from penstock.database.edition import SCHEMA_VERSION, Edition
from penstock.log.overview import OpenWriter, Status
from penstock.settings import Settings

_EDITIONS = {
    Edition.PENSTOCK: "penstock: all functions are Penstock's",
    Edition.ON_MESSAGE_DB: "message-db: Message DB's functions, with Penstock's schema",
    Edition.GENUINE: "genuine: Message DB alone; `penstock init` adds Penstock beside it",
}


def status(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    url: Url = None,
    folder: Folder = None,
) -> None:
    """Show how the log stands, who holds its readers back, and who lags behind.

    A lag is for how long the next message of a consumer, session, group or the outbox has waited.
    """
    settings = settings_for(url, folder)
    with open_existing(settings) as store:
        status = store.status()
        figures = store.health() if store.edition.has_watermark else []
    if json:
        found = _as_json(status, settings) | {"figures": figures}
        print_json(found, indented=True)
    else:
        _print(status, settings, figures)


def _print(status: Status, settings: Settings, figures: Sequence[HealthFigure]) -> None:
    out = console()
    out.print(
        facts(
            {
                "where": printable(place(settings)),
                "edition": _EDITIONS[status.edition],
                "schema version": _schema_version(status),
                "Message DB": f"{status.message_store_version}, the interface",
                "server": f"PostgreSQL {printable(status.server_version)}"
                + (", a standby" if status.standby else ""),
                "head": f"{status.head}, the last message's global position",
                "watermark": _watermark(status),
                "pool": f"{settings.pool_min_size} to {settings.pool_max_size} connections, "
                f"{settings.pool_timeout_ms / 1000:g} s to wait for one",
            }
        )
    )
    if status.open_writers:
        _print_writers(out, status.open_writers)
    if figures:
        out.print()
        out.print(figures_table(figures))


def _schema_version(status: Status) -> str:
    found = "none" if status.schema_version is None else str(status.schema_version)
    return f"{found}; this client's is {SCHEMA_VERSION}"


def _watermark(status: Status) -> str | Text:
    if status.watermark is None and status.standby:
        return "not known on a standby: ask the primary"
    if status.watermark is None:
        return "none: only Penstock keeps one"
    if not status.behind:
        return f"{status.watermark}, not behind: readers get all that is committed"
    text = f"{status.watermark}, {status.behind} behind: open writers hold readers back there"
    return Text(text, style="bold yellow")


def _print_writers(out: Console, writers: tuple[OpenWriter, ...]) -> None:
    listed = table(pid="right", age="right", state="left", application="left", role="left")
    listed.add_column("holds back from", justify="right")
    for one in writers:
        listed.add_row(
            "-" if one.pid is None else str(one.pid),
            shown_age(one.age),
            "prepared" if one.pid is None else printable(one.state or "?"),
            printable(one.application_name or ""),
            printable(one.role or ""),
            str(one.bound),
        )
    out.print()
    out.print(Text("Open writers, oldest first", style="bold"))
    out.print(listed)
    print_wrapped(out, Text(_remedy(writers), style="dim"))


def _remedy(writers: tuple[OpenWriter, ...]) -> str:
    if writers[0].pid is None:
        return (
            "The first is a prepared transaction: find it in pg_prepared_xacts, and commit it "
            "or roll it back."
        )
    return (
        "Each ends when its transaction does. To end the first by force, losing what it wrote: "
        f"select pg_terminate_backend({writers[0].pid})"
    )


def _as_json(status: Status, settings: Settings) -> dict[str, Any]:
    return {
        "where": place(settings),
        "edition": status.edition.value,
        "schema_version": status.schema_version,
        "client_schema_version": SCHEMA_VERSION,
        "message_store_version": status.message_store_version,
        "server_version": status.server_version,
        "standby": status.standby,
        "head": status.head,
        "watermark": status.watermark,
        "behind": status.behind,
        "open_writers": [
            {
                "pid": one.pid,
                "role": one.role,
                "application_name": one.application_name,
                "state": one.state,
                "age_seconds": one.age and one.age.total_seconds(),
                "bound": one.bound,
            }
            for one in status.open_writers
        ],
        "pool": {
            "min_size": settings.pool_min_size,
            "max_size": settings.pool_max_size,
            "timeout_ms": settings.pool_timeout_ms,
        },
    }
