"""`penstock status` and `penstock version`: the state of the log, and the installed versions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Annotated, Any

import psycopg
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

import penstock
from penstock.admin import HealthFigure
from penstock.cli.printing import (
    console,
    facts,
    print_json,
    print_wrapped,
    printable,
    shown_age,
    table,
)
from penstock.cli.target import (
    Folder,
    Url,
    bare_connection,
    has_database,
    open_existing,
    place,
    settings_for,
)
from penstock.database import edition as editions
from penstock.database.edition import SCHEMA_VERSION, Edition
from penstock.database.execute import execute
from penstock.errors import PenstockError, first_line
from penstock.log.overview import OpenWriter, Status
from penstock.settings import Settings, redact

_EDITIONS = {
    Edition.PENSTOCK: "penstock: all functions are Penstock's",
    Edition.ON_MESSAGE_DB: "message-db: Message DB's functions, with Penstock beside them",
    Edition.GENUINE: "genuine: Message DB only; `penstock init` adds Penstock beside it",
}


def status(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    url: Url = None,
    folder: Folder = None,
) -> None:
    """Show the state of the log, open writers, and the lag of each reader.

    `lag` is how long the next message of a consumer, session, group or the outbox has waited.
    """
    settings = settings_for(url, folder)
    with open_existing(settings) as store:
        status = store.status()
        figures = store.admin.health() if store.edition.has_watermark else []
    if json:
        found = _as_json(status, settings) | {"figures": figures}
        print_json(found, indented=True)
    else:
        _print(status, settings, figures)


def version(url: Url = None, folder: Folder = None) -> None:
    """Show the versions of this package, its schema, and the server."""
    settings = settings_for(url, folder)
    console().print(
        facts(
            {
                "penstock": penstock.__version__,
                "schema version": str(SCHEMA_VERSION),
                "server": printable(_server(settings)),
            }
        )
    )


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
        out.print(_figures_table(figures))


def _schema_version(status: Status) -> str:
    found = "none" if status.schema_version is None else str(status.schema_version)
    return f"{found}; this client's is {SCHEMA_VERSION}"


def _watermark(status: Status) -> str | Text:
    if status.watermark is None and status.standby:
        return "unknown on a standby: use the primary"
    if status.watermark is None:
        return "none: genuine Message DB has no watermark"
    if not status.behind:
        return f"{status.watermark}, not behind: readers see all committed messages"
    text = f"{status.watermark}, {status.behind} behind: open writers hold readers back"
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
            "The first is a prepared transaction: commit it or roll it back "
            "(see pg_prepared_xacts)."
        )
    return (
        "To terminate the first one and roll back its writes: "
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


def _figures_table(figures: Sequence[HealthFigure]) -> Table:
    """Return the figures of consumers, sessions, groups and topics, one row for each."""
    listed = table(
        reader="left",
        lag="right",
        parked="right",
        failed="right",
        oldest_claim="right",
        claimed="left",
    )
    rows: dict[str, dict[str, str]] = {}
    for one in figures:
        kind, _, measure = one.name.partition(".")
        if kind != "watermark":  # shown with the state of the log
            row = rows.setdefault(" ".join([kind, *one.subject.values()]), {})
            row[measure] = _SHOWN[measure](one)
            if measure == "claim_age":
                row["claimed"] = f"{one.detail['partition_key']} by {one.detail['claimed_by']}"
    for reader, row in rows.items():
        cells = [row.get(name, "-") for name in ("lag", "parked", "failed", "claim_age")]
        listed.add_row(printable(reader), *cells, printable(row.get("claimed", "")))
    return listed


def _age(figure: HealthFigure) -> str:
    return shown_age(timedelta(seconds=figure.value))


def _count(figure: HealthFigure) -> str:
    return f"{figure.value:g}{'+' if figure.detail.get('at_least') else ''}"


_SHOWN: dict[str, Callable[[HealthFigure], str]] = {
    "lag": _age,
    "claim_age": _age,
    "parked": _count,
    "failed": _count,
}


def _server(settings: Settings) -> str:
    if not has_database(settings):
        return f"none: no database in {settings.folder}"
    try:
        return f"{_found(settings)}, at {place(settings)}"
    except (PenstockError, psycopg.Error) as error:
        return redact(first_line(error))


def _found(settings: Settings) -> str:
    with bare_connection(settings) as connection:
        server = f"PostgreSQL {connection.info.parameter_status('server_version')}"
        found = execute(connection, editions.find())
        if not found.has_message_store:
            return f"{server}, no message store"
        message_db = execute(connection, editions.message_store_version())
        last = execute(connection, editions.last_installation()) if found.has_penstock else None
        schema = f"Penstock's schema version {last.version}" if last else "no Penstock"
        return f"{server}, Message DB {message_db}, {schema}"
